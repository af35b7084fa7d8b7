/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    size_t offset; /* in struct nvml */
} functions[] = {
#define NVML_FN(symbol, params, args) {#symbol, offsetof(struct nvml, symbol)},
#include "abi/hooks.def"
};

/* Without these there is no work. */
static const char *const required[] = {
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryInfo",
};

static bool is_required(const char *name) {
    for (size_t i = 0; i < COUNT(required); i++)
        if (strcmp(required[i], name) == 0)
            return true;
    return false;
}

static const char *unnamed_error(nvmlReturn_t code) {
    (void) code;
    return "unknown error";
}

/* ISO C has no cast from object to function pointer; POSIX says that the bits are the same. */
static int resolve(void *library, const char *name, void *ret_pointer) {
    void *symbol = dlsym(library, name);

    memcpy(ret_pointer, &symbol, sizeof(symbol));
    return symbol ? 0 : -ENOSYS;
}

int nvml_load(const char *path, struct nvml *ret, struct err *err) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct nvml n = {0};

    if (!library)
        return err_set(err, ENOENT, "cannot load NVML: %s", dlerror());
    if (resolve(library, "nvmlErrorString", &n.error_string) < 0)
        n.error_string = unnamed_error;
    for (size_t i = 0; i < COUNT(functions); i++)
        if (resolve(library, functions[i].name, (char *) &n + functions[i].offset) < 0 &&
            is_required(functions[i].name))
            return err_set(err, ENOSYS, "%s has no %s: the driver is too old", path,
                           functions[i].name);
    *ret = n;
    return 0;
}
