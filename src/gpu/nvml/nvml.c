/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/nvml.h"

#include <dlfcn.h>
#include <string.h>

#include "base/err.h"

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
#define NVML_REQUIRED(name, params)                                                                \
    if (resolve(library, #name, &n.name) < 0)                                                      \
        return err_set(err, ENOSYS, "%s has no %s: the driver is too old", path, #name);
#define NVML_OPTIONAL(name, params) (void) resolve(library, #name, &n.name);
    NVML_BINDING(NVML_REQUIRED, NVML_OPTIONAL)
#undef NVML_REQUIRED
#undef NVML_OPTIONAL
    *ret = n;
    return 0;
}
