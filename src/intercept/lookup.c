/* SPDX-License-Identifier: Apache-2.0 */

/* How programs find the driver's functions by name: dlsym, dlvsym (the entries are in entry.S) and
 * cuGetProcAddress. In each case the driver is asked first, and only if what it answered is a
 * function that we hook, ours takes its place. So a name that the driver does not have stays
 * unknown, and the version that the driver chose is the version that we hook. */

#include <dlfcn.h>
#include <stddef.h>

#include "intercept/driver.h"
#include "intercept/objects.h"

/* In two registers for entry.S: where to jump to, or NULL and the answer. */
struct decision {
    void *jump;
    void *answer;
};

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);

struct decision lookup_dlsym(void *handle, const char *name, const void *caller);
struct decision lookup_dlvsym(void *handle, const char *name, const char *version,
                              const void *caller);

static void *libc_function(const char *name, void **cache) {
    void *found = __atomic_load_n(cache, __ATOMIC_RELAXED);

    if (!found) {
        found = elf_libc_symbol(name);
        __atomic_store_n(cache, found, __ATOMIC_RELAXED);
    }
    return found;
}

static dlsym_fn *real_dlsym(void) {
    static void *cache;

    return (dlsym_fn *) libc_function("dlsym", &cache);
}

static dlvsym_fn *real_dlvsym(void) {
    static void *cache;

    return (dlvsym_fn *) libc_function("dlvsym", &cache);
}

/* What a program that got `found` from the C library shall get for a name that we hook. NULL with
 * the C library's error set: nothing, only our own export was found and no driver behind it. */
static void *substitute(const struct hook *hook, void *found) {
    bool known;

    switch (elf_kind_of(found, &known)) {
    case ELF_CUDA:
    case ELF_NVML:
        driver_note(hook, found);
        return hook->ours;
    case ELF_SELF:
        return real_dlsym()(RTLD_NEXT, hook->name) ? hook->ours : NULL;
    case ELF_SHADOW: /* which is not loaded without a driver behind it; one of us must do the books
                      */
        return hook->ours;
    case ELF_OTHER:
    default:
        if (known)
            return found; /* somebody else's function of that name */
        driver_note(hook, found);
        return hook->ours; /* a driver in a namespace of its own */
    }
}

/* dlsym with RTLD_DEFAULT or RTLD_NEXT depends on who calls it, so we must look ourselves. What a
 * library may see is not to be found out; the main program sees what is global, which is what we
 * see. */
static void *find_for(const struct hook *hook, void *handle, const void *caller) {
    void *found = elf_definition_after(handle == RTLD_NEXT ? caller : NULL, hook->name);

    if (!found || elf_in_program(caller))
        found = real_dlsym()(RTLD_NEXT, hook->name);
    return found ? substitute(hook, found) : NULL;
}

struct decision lookup_dlsym(void *handle, const char *name, const void *caller) {
    dlsym_fn *dlsym_of_libc = real_dlsym();
    const struct hook *hook = name ? hook_by_name(name) : NULL;
    void *found;

    if (!dlsym_of_libc)
        return (struct decision){NULL, NULL};
    if (__builtin_expect(!hook, 1))
        return (struct decision){(void *) dlsym_of_libc, NULL};
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        return (struct decision){NULL, find_for(hook, handle, caller)};
    found = dlsym_of_libc(handle, name);
    return (struct decision){NULL, found ? substitute(hook, found) : NULL};
}

struct decision lookup_dlvsym(void *handle, const char *name, const char *version,
                              const void *caller) {
    dlvsym_fn *dlvsym_of_libc = real_dlvsym();
    const struct hook *hook = name ? hook_by_name(name) : NULL;
    void *found;

    (void) caller;
    if (!dlvsym_of_libc)
        return (struct decision){NULL, NULL};
    if (__builtin_expect(!hook, 1))
        return (struct decision){(void *) dlvsym_of_libc, NULL};
    /* From us, RTLD_NEXT is what comes behind us in the global scope. */
    if (handle == RTLD_DEFAULT)
        handle = RTLD_NEXT;
    found = dlvsym_of_libc(handle, name, version);
    return (struct decision){NULL, found ? substitute(hook, found) : NULL};
}

static void substitute_address(void **pfn) {
    const struct hook *hook = pfn && *pfn ? hook_by_address(*pfn) : NULL;

    if (hook)
        *pfn = hook->ours;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags) {
    CUresult r = driver.cuGetProcAddress(symbol, pfn, cuda_version, flags);

    if (r == CUDA_SUCCESS)
        substitute_address(pfn);
    return r;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbol_status) {
    CUresult r = driver.cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, symbol_status);

    if (r == CUDA_SUCCESS)
        substitute_address(pfn);
    return r;
}
