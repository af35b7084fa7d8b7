/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the driver's functions in every way that programs have, and prints what each gave. A test
 * runs it with and without libaliquot.so and compares.
 *
 *     resolver names      reads names; prints "way name object symbol" for link, dlsym and dlvsym
 *     resolver queries    reads names; prints "base abi version flags result status object symbol"
 *     resolver answers    reads names; prints "base version flags symbol" ("-": none), by
 * cuGetProcAddress resolver namespace  as names, with the driver in a link namespace of its own */

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

/* A linked program's view: weak, so that what the library at hand lacks is NULL. */
#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    __attribute__((weak)) CUresult symbol params;
#define NVML_FN(symbol, params, args) __attribute__((weak)) nvmlReturn_t symbol params;
#include "abi/hooks.def"

typedef CUresult query_v1(const char *, void **, int, cuuint64_t);
typedef CUresult query_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static const int versions[] = {2000,  3010,  3020,  4000,  4010,  5050,  6000,  6050,  7000,  8000,
                               9000,  9020,  10000, 10020, 11000, 11010, 11020, 11030, 11040, 11060,
                               11070, 12000, 12010, 12020, 12030, 12050, 12080, 13000, 13050};

static const void *linked(const char *name) {
#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    if (strcmp(name, #symbol) == 0)                                                                \
        return (const void *) symbol;
#define NVML_FN(symbol, params, args)                                                              \
    if (strcmp(name, #symbol) == 0)                                                                \
        return (const void *) symbol;
#include "abi/hooks.def"
    return NULL;
}

static const char *object_of(const void *address, const char **ret_symbol) {
    static char name[256];
    const char *slash;
    Dl_info info;

    *ret_symbol = "-";
    if (!address)
        return "-";
    if (!dladdr(address, &info))
        return "?";
    slash = strrchr(info.dli_fname, '/');
    (void) snprintf(name, sizeof(name), "%.*s",
                    (int) strcspn(slash ? slash + 1 : info.dli_fname, "."),
                    slash ? slash + 1 : info.dli_fname);
    if (info.dli_saddr == address)
        *ret_symbol = info.dli_sname;
    return name;
}

static void print_name(const char *way, const char *name, const void *address) {
    const char *symbol, *object = object_of(address, &symbol);

    (void) printf("%s %s %s %s\n", way, name, object, symbol);
}

static void names(void *handle, const char *name) {
    print_name("link", name, linked(name));
    print_name("handle", name, dlsym(handle, name));
    print_name("default", name, dlsym(RTLD_DEFAULT, name));
    print_name("next", name, dlsym(RTLD_NEXT, name));
    print_name("program", name, dlsym(dlopen(NULL, RTLD_NOW), name));
    print_name("dlvsym-handle", name, dlvsym(handle, name, "GLIBC_2.2.5"));
    print_name("dlvsym-default", name, dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5"));
}

static void queries(void *handle, const char *base) {
    query_v1 *v1 = (query_v1 *) dlsym(handle, "cuGetProcAddress");
    query_v2 *v2 = (query_v2 *) dlsym(handle, "cuGetProcAddress_v2");

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        for (cuuint64_t flags = 0; flags < 4; flags++) {
            CUdriverProcAddressQueryResult status = 77;
            const char *symbol, *object;
            void *found = (void *) 1;
            CUresult r = v1(base, &found, versions[i], flags);

            object = object_of(r == CUDA_SUCCESS ? found : NULL, &symbol);
            (void) printf("%s v1 %d %d %d - %s %s\n", base, versions[i], (int) flags, (int) r,
                          object, symbol);
            found = (void *) 1;
            r = v2(base, &found, versions[i], flags, &status);
            object = object_of(r == CUDA_SUCCESS ? found : NULL, &symbol);
            (void) printf("%s v2 %d %d %d %d %s %s\n", base, versions[i], (int) flags, (int) r,
                          (int) status, object, symbol);
        }
}

static void answers(void *handle, const char *base) {
    query_v1 *v1 = (query_v1 *) dlsym(handle, "cuGetProcAddress");

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        for (cuuint64_t flags = 0; flags < 3; flags++) {
            const char *symbol = "-";
            void *found = NULL;

            if (v1(base, &found, versions[i], flags) == CUDA_SUCCESS)
                (void) object_of(found, &symbol);
            (void) printf("%s %d %d %s\n", base, versions[i], (int) flags, symbol);
        }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    bool apart = strcmp(mode, "namespace") == 0;
    void *cuda =
        apart ? dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW) : dlopen("libcuda.so.1", RTLD_NOW);
    void *nvml = apart ? dlmopen(LM_ID_NEWLM, "libnvidia-ml.so.1", RTLD_NOW)
                       : dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char name[256];

    if (!cuda || !nvml) {
        (void) fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    while (fgets(name, sizeof(name), stdin)) {
        void *handle = strncmp(name, "nvml", 4) == 0 ? nvml : cuda;

        name[strcspn(name, "\n")] = '\0';
        if (strcmp(mode, "names") == 0)
            names(handle, name);
        else if (strcmp(mode, "queries") == 0)
            queries(handle, name);
        else if (strcmp(mode, "answers") == 0)
            answers(handle, name);
        else
            print_name("handle", name, dlsym(handle, name));
    }
    return 0;
}
