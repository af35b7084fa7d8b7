/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the driver's functions in every way that programs have, and prints what each gave: the
 * file that holds it and its name there, "-" for nothing. A test runs it with and without
 * libaliquot.so and compares.
 *
 *     resolver SCOPE names CUDA NVML      reads names; "way name file symbol" for link, dlsym,
 * dlvsym resolver SCOPE queries CUDA NVML    reads names; "base abi version flags result status
 * file symbol" for both cuGetProcAddress resolver SCOPE answers CUDA NVML    reads names; "base
 * version flags symbol"
 *
 * CUDA and NVML are what to dlopen (several files with commas between: the last is asked). SCOPE
 * says who looks: `program` this program itself; `deep` a library that it opens with RTLD_DEEPBIND;
 * `apart` a library in a link namespace of its own; and `across` the program, with the driver in a
 * namespace of its own. The library is this same source (resolver-inside.so), linked with the
 * driver. */

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
typedef int inside_fn(const char *what, const char *cuda, const char *nvml);

static const int versions[] = {2000,  3010,  3020,  4000,  4010,  5050,  6000,  6050,  7000,  8000,
                               9000,  9020,  10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040,
                               11060, 11070, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080,
                               12090, 13000, 13010, 13020, 13030, 13040, 13050, 99999};

/* What this object's own references were bound to. */
static const struct {
    const char *name;
    const void *address;
} links[] = {
#define CUDA_FN(base, symbol, since, until, stream, params, args) {#symbol, (const void *) symbol},
#define NVML_FN(symbol, params, args) {#symbol, (const void *) symbol},
#include "abi/hooks.def"
};

static const void *linked(const char *name) {
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (strcmp(links[i].name, name) == 0)
            return links[i].address;
    return NULL;
}

static const char *file_of(const void *address, const char **ret_symbol) {
    Dl_info info;

    *ret_symbol = "-";
    if (!address)
        return "-";
    if (!dladdr(address, &info))
        return "?";
    if (info.dli_saddr == address)
        *ret_symbol = info.dli_sname;
    return info.dli_fname;
}

static void print_name(const char *way, const char *name, const void *address) {
    const char *symbol, *file = file_of(address, &symbol);

    (void) printf("%s %s %s %s\n", way, name, file, symbol);
}

static void names(void *handle, const char *name) {
    print_name("link", name, linked(name));
    print_name("handle", name, dlsym(handle, name));
    print_name("default", name, dlsym(RTLD_DEFAULT, name));
    print_name("next", name, dlsym(RTLD_NEXT, name));
    print_name("program", name, dlsym(dlopen(NULL, RTLD_NOW), name));
    print_name("dlvsym-handle", name, dlvsym(handle, name, "GLIBC_2.2.5"));
    print_name("dlvsym-default", name, dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5"));
    print_name("dlvsym-next", name, dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5"));
}

static void queries(void *handle, const char *base) {
    query_v1 *v1 = (query_v1 *) dlsym(handle, "cuGetProcAddress");
    query_v2 *v2 = (query_v2 *) dlsym(handle, "cuGetProcAddress_v2");

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        for (cuuint64_t flags = 0; flags < 4; flags++) {
            CUdriverProcAddressQueryResult status = 77;
            const char *symbol, *file;
            void *found = (void *) 1;
            CUresult r = v1(base, &found, versions[i], flags);

            file = file_of(r == CUDA_SUCCESS ? found : NULL, &symbol);
            (void) printf("%s v1 %d %d %d - %s %s\n", base, versions[i], (int) flags, (int) r, file,
                          symbol);
            found = (void *) 1;
            r = v2(base, &found, versions[i], flags, &status);
            file = file_of(r == CUDA_SUCCESS ? found : NULL, &symbol);
            (void) printf("%s v2 %d %d %d %d %s %s\n", base, versions[i], (int) flags, (int) r,
                          (int) status, file, symbol);
        }
}

static void answers(void *handle, const char *base) {
    query_v1 *v1 = (query_v1 *) dlsym(handle, "cuGetProcAddress");

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        for (cuuint64_t flags = 0; flags < 3; flags++) {
            const char *symbol = "-";
            void *found = NULL;

            if (v1(base, &found, versions[i], flags) == CUDA_SUCCESS)
                (void) file_of(found, &symbol);
            (void) printf("%s %d %d %s\n", base, versions[i], (int) flags, symbol);
        }
}

static int ask(const char *what, void *cuda, void *nvml) {
    static void (*const kinds[])(void *, const char *) = {names, queries, answers};
    static const char *const words[] = {"names", "queries", "answers"};
    char name[256];
    size_t k = 0;

    if (!cuda || !nvml) {
        (void) fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    while (k < 3 && strcmp(words[k], what) != 0)
        k++;
    while (k < 3 && fgets(name, sizeof(name), stdin)) {
        name[strcspn(name, "\n")] = '\0';
        kinds[k](strncmp(name, "nvml", 4) == 0 ? nvml : cuda, name);
    }
    /* In a namespace of its own this is another stdio than the program's. */
    return k < 3 && fflush(stdout) == 0 ? 0 : 1;
}

__attribute__((visibility("default"))) int resolver_inside(const char *what, const char *cuda,
                                                           const char *nvml);

/* Opens all files between commas, one after the other, and returns the last. */
static void *open_last(const char *files) {
    void *last = NULL;

    for (size_t n; *files; files += n + (files[n] == ',')) {
        char file[4096];

        n = strcspn(files, ",");
        (void) snprintf(file, sizeof(file), "%.*s", (int) n, files);
        last = dlopen(file, RTLD_NOW);
    }
    return last;
}

int resolver_inside(const char *what, const char *cuda, const char *nvml) {
    return ask(what, open_last(cuda), open_last(nvml));
}

static int ask_inside(bool apart, const char *what, const char *cuda, const char *nvml) {
    inside_fn *inside;
    void *handle = apart ? dlmopen(LM_ID_NEWLM, RESOLVER_INSIDE, RTLD_NOW)
                         : dlopen(RESOLVER_INSIDE, RTLD_NOW | RTLD_DEEPBIND);

    inside = handle ? (inside_fn *) dlsym(handle, "resolver_inside") : NULL;
    if (!inside) {
        (void) fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return inside(what, cuda, nvml);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "program") == 0)
        return resolver_inside(argv[2], argv[3], argv[4]);
    if (argc == 5 && strcmp(argv[1], "across") == 0)
        return ask(argv[2], dlmopen(LM_ID_NEWLM, argv[3], RTLD_NOW),
                   dlmopen(LM_ID_NEWLM, argv[4], RTLD_NOW));
    if (argc == 5 && (strcmp(argv[1], "deep") == 0 || strcmp(argv[1], "apart") == 0))
        return ask_inside(argv[1][0] == 'a', argv[2], argv[3], argv[4]);
    (void) fprintf(stderr,
                   "usage: resolver program|deep|apart|across names|queries|answers CUDA NVML\n");
    return 2;
}
