/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/resolve/driver.h"

#include <string.h>

#include "intercept/resolve/elf.h"

static void bind_cuda(void);
static void bind_nvml(void);

/* For functions that the driver does not have, and for all when there is no driver. */
static CUresult missing_cuda(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult absent_cuda(void) {
    return CUDA_ERROR_NO_DEVICE;
}

static nvmlReturn_t missing_nvml(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static nvmlReturn_t absent_nvml(void) {
    return NVML_ERROR_LIBRARY_NOT_FOUND;
}

/* The first content of the slots: find the driver, then make the call. */
#define UNBOUND(type, library, symbol, params, args)                                               \
    static type unbound_##symbol params {                                                          \
        bind_##library();                                                                          \
        if (driver.symbol == unbound_##symbol)                                                     \
            return absent_##library();                                                             \
        return driver.symbol args;                                                                 \
    }
#define CUDA_HOOK(base, symbol, since, until, stream, params, args)                                \
    UNBOUND(CUresult, cuda, symbol, params, args)
#define CUDA_USE CUDA_HOOK
#define NVML_HOOK(symbol, params, args) UNBOUND(nvmlReturn_t, nvml, symbol, params, args)
#define NVML_USE NVML_HOOK
#include "abi/hooks.def"

struct driver driver = {
#define CUDA_HOOK(base, symbol, since, until, stream, params, args) .symbol = unbound_##symbol,
#define CUDA_USE CUDA_HOOK
#define NVML_HOOK(symbol, params, args) .symbol = unbound_##symbol,
#define NVML_USE NVML_HOOK
#include "abi/hooks.def"
};

#define ROW(symbol, ours, is_nvml)                                                                 \
    {#symbol, (void *) (ours), (void **) (void *) &driver.symbol, (void *) unbound_##symbol,       \
     is_nvml},

const struct hook hooks[] = {
#define CUDA_HOOK(base, symbol, since, until, stream, params, args) ROW(symbol, symbol, false)
#define CUDA_USE(base, symbol, since, until, stream, params, args) ROW(symbol, NULL, false)
#define NVML_HOOK(symbol, params, args) ROW(symbol, symbol, true)
#define NVML_USE(symbol, params, args) ROW(symbol, NULL, true)
#include "abi/hooks.def"
};

const size_t hooks_count = sizeof(hooks) / sizeof(hooks[0]);

const struct hook *hook_by_name(const char *name) {
    if (strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0)
        return NULL;
    for (size_t i = 0; i < hooks_count; i++)
        if (hooks[i].ours && strcmp(hooks[i].name, name) == 0)
            return &hooks[i];
    return NULL;
}

static void *slot_load(const struct hook *hook) {
    return __atomic_load_n(hook->slot, __ATOMIC_RELAXED);
}

const struct hook *hook_by_address(const void *address) {
    for (size_t i = 0; i < hooks_count; i++)
        if (hooks[i].ours && slot_load(&hooks[i]) == address)
            return &hooks[i];
    return NULL;
}

static void *missing(bool nvml) {
    return nvml ? (void *) missing_nvml : (void *) missing_cuda;
}

/* Threads that bind at the same time write the same values. */
static void fill(elf_lookup_fn *lookup, const void *object, bool nvml) {
    for (size_t i = 0; i < hooks_count; i++) {
        void *found;

        if (hooks[i].nvml != nvml)
            continue;
        found = lookup(object, hooks[i].name);
        __atomic_store_n(hooks[i].slot, found ? found : missing(nvml), __ATOMIC_RELEASE);
    }
}

static void fill_cuda(elf_lookup_fn *lookup, const void *object) {
    fill(lookup, object, false);
}

static void fill_nvml(elf_lookup_fn *lookup, const void *object) {
    fill(lookup, object, true);
}

static void bind_cuda(void) {
    (void) elf_with_driver(ELF_CUDA, fill_cuda);
}

static void bind_nvml(void) {
    (void) elf_with_driver(ELF_NVML, fill_nvml);
}

void driver_note(const struct hook *hook, void *address, driver_lookup_fn *lookup,
                 const void *library) {
    if (slot_load(hook) == address)
        return;
    if (hook->nvml)
        bind_nvml();
    else
        bind_cuda();
    /* Calls with what one library made must not go to another: the first one stays. */
    if (slot_load(hook) == hook->unbound)
        fill(lookup, library, hook->nvml);
}
