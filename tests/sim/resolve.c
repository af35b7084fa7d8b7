/* SPDX-License-Identifier: Apache-2.0 */

/* resolve LIBRARY: reads names, asks the library's cuGetProcAddress (both forms) for each of them
 * with every version and flag, and prints what it answers, by the exported name it points to. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 1024

static char names[NAMES_MAX][128];
static void *address[NAMES_MAX];
static int nnames;

static const int versions[] = {
    2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,  4010,  4020,  5000,  5050,
    6000,  6050,  7000,  7050,  8000,  9000,  9010,  9020,  10000, 10010, 10020, 11000,
    11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020,
};

typedef int (*get_proc_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_proc)(const char *, void **, int, unsigned long long);

static const char *name_of(const void *p) {
    if (!p)
        return "-";
    for (int i = 0; i < nnames; i++)
        if (address[i] == p)
            return names[i];
    return "?";
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        (void) fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
    get_proc_v2 v2 = (get_proc_v2) dlsym(library, "cuGetProcAddress_v2");
    get_proc v1 = (get_proc) dlsym(library, "cuGetProcAddress");
    while (nnames < NAMES_MAX && fgets(names[nnames], sizeof(names[0]), stdin)) {
        names[nnames][strcspn(names[nnames], "\n")] = '\0';
        address[nnames] = dlsym(library, names[nnames]);
        nnames++;
    }
    for (int i = 0; i < nnames; i++)
        for (unsigned long long flags = 0; flags < 4; flags++)
            for (size_t k = 0; k < sizeof(versions) / sizeof(versions[0]); k++) {
                void *p = NULL, *q = NULL;
                int status = -1;
                int r2 = v2(names[i], &p, versions[k], flags, &status);
                int r0 = v2(names[i], &q, versions[k], flags, NULL);
                int r1 = v1(names[i], &q, versions[k], flags);
                (void) printf("%s %llu %d: %d %d %s, %d, %d %s\n", names[i], flags, versions[k], r2,
                              status, name_of(p), r0, r1, name_of(q));
            }
    return 0;
}
