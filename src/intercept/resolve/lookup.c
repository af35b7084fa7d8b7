/* SPDX-License-Identifier: Apache-2.0 */

/* How programs find the driver's functions by name: dlsym, dlvsym (the entries are in entry.S) and
 * cuGetProcAddress. In each case the driver is called first, and only if its result is a function
 * that we hook, the hook replaces it. So a name that the driver does not have stays
 * unknown, and the version that the driver chose is the version that we hook. */

#include <dlfcn.h>
#include <stddef.h>

#include "intercept/resolve/driver.h"
#include "intercept/resolve/elf.h"

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

/* The next dlsym after ours: another interposer's, or the C library's. */
static void *chained(const char *name, void **cache) {
    void *found = __atomic_load_n(cache, __ATOMIC_RELAXED);

    if (!found) {
        found = elf_definition_after((const void *) lookup_dlsym, name);
        if (!found)
            found = elf_libc_symbol(name);
        __atomic_store_n(cache, found, __ATOMIC_RELAXED);
    }
    return found;
}

static void *look_up_by_handle(const void *library, const char *name) {
    return real_dlsym()((void *) (uintptr_t) library, name);
}

/* What a program that got `found` from the C library shall get for a name that we hook. NULL with
 * the C library's error set: nothing, only our own export was found and no driver behind it. */
static void *substitute(const struct hook *hook, void *found, void *handle) {
    bool known;

    switch (elf_kind_of(found, &known)) {
    case ELF_CUDA:
    case ELF_NVML:
        driver_note(hook, found, look_up_by_handle, handle);
        return hook->ours;
    case ELF_SELF:
        return real_dlsym()(RTLD_NEXT, hook->name) ? hook->ours : NULL;
    case ELF_SHADOW: /* never loaded without a driver behind it; one copy must keep the books */
        return hook->ours;
    case ELF_OTHER:
    default:
        if (known)
            return found; /* a function of that name in another library */
        driver_note(hook, found, look_up_by_handle, handle);
        return hook->ours; /* a driver in a namespace of its own */
    }
}

/* dlsym with RTLD_DEFAULT or RTLD_NEXT depends on its caller, so the search is done here. An
 * interposer that was loaded before this library comes first. The scope of a library cannot be
 * found out; that of the main program is the global one, which is searched here. */
static void *find_for(const struct hook *hook, void *handle, const void *caller) {
    const void *after = handle == RTLD_NEXT ? caller : NULL;
    void *found = elf_definition_before_us(after, hook->name);

    if (!found)
        found = elf_definition_after(after, hook->name);
    else
        return found;
    if (!found || elf_in_program(caller))
        found = real_dlsym()(RTLD_NEXT, hook->name);
    return found ? substitute(hook, found, RTLD_NEXT) : NULL;
}

struct decision lookup_dlsym(void *handle, const char *name, const void *caller) {
    static void *next;
    const struct hook *hook = name ? hook_by_name(name) : NULL;
    void *found;

    if (__builtin_expect(!hook, 1))
        return (struct decision){chained("dlsym", &next), NULL};
    if (!real_dlsym())
        return (struct decision){NULL, NULL};
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        return (struct decision){NULL, find_for(hook, handle, caller)};
    found = real_dlsym()(handle, name);
    return (struct decision){NULL, found ? substitute(hook, found, handle) : NULL};
}

struct decision lookup_dlvsym(void *handle, const char *name, const char *version,
                              const void *caller) {
    static void *next;
    const struct hook *hook = name ? hook_by_name(name) : NULL;
    void *found;

    (void) caller;
    if (__builtin_expect(!hook, 1))
        return (struct decision){chained("dlvsym", &next), NULL};
    if (!real_dlsym() || !real_dlvsym())
        return (struct decision){NULL, NULL};
    /* From us, RTLD_NEXT is what comes behind us in the global scope. */
    if (handle == RTLD_DEFAULT)
        handle = RTLD_NEXT;
    found = real_dlvsym()(handle, name, version);
    return (struct decision){NULL, found ? substitute(hook, found, handle) : NULL};
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
