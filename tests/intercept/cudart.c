/* SPDX-License-Identifier: Apache-2.0 */

/* A program linked with NVIDIA's static runtime. Its first call makes the runtime look up every
 * function of the driver; each answer is printed as "name version flags result file symbol", what
 * it asks dlsym with "dlsym" for the version. Linked with -Wl,--wrap=dlsym, so that the runtime's
 * lookups pass here on their way. */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int query_v1(const char *, void **, int, uint64_t);
typedef int query_v2(const char *, void **, int, uint64_t, int *);

int cudaGetDeviceCount(int *count);
int cudaRuntimeGetVersion(int *version);
void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

static query_v1 *driver_v1;
static query_v2 *driver_v2;

static void print(const char *name, const char *how, int r, const void *found) {
    Dl_info info = {.dli_fname = "-", .dli_sname = "-"};

    if (r == 0 && found && !dladdr(found, &info))
        info.dli_fname = "?";
    (void) printf("%s %s %d %s %s\n", name[0] ? name : "-", how, r, info.dli_fname,
                  info.dli_saddr == found && found ? info.dli_sname : "-");
}

static void print_query(const char *name, int version, uint64_t flags, int r, const void *found) {
    char how[64];

    (void) snprintf(how, sizeof(how), "%d %d", version, (int) flags);
    print(name, how, r, found);
}

static int ask_v1(const char *name, void **pfn, int version, uint64_t flags);
static int ask_v2(const char *name, void **pfn, int version, uint64_t flags, int *status);

/* Between the runtime and the function by which it asks on. */
static void step_between(const char *name, bool second, void **pfn) {
    if (!*pfn || strncmp(name, "cuGetProcAddress", strlen("cuGetProcAddress")) != 0)
        return;
    if (second) {
        driver_v2 = (query_v2 *) *pfn;
        *pfn = (void *) ask_v2;
    } else {
        driver_v1 = (query_v1 *) *pfn;
        *pfn = (void *) ask_v1;
    }
}

static int ask_v1(const char *name, void **pfn, int version, uint64_t flags) {
    int r = driver_v1(name, pfn, version, flags);

    print_query(name, version, flags, r, *pfn);
    step_between(name, version >= 12000, pfn);
    return r;
}

static int ask_v2(const char *name, void **pfn, int version, uint64_t flags, int *status) {
    int r = driver_v2(name, pfn, version, flags, status);

    print_query(name, version, flags, r, *pfn);
    step_between(name, version >= 12000, pfn);
    return r;
}

void *__wrap_dlsym(void *handle, const char *name) {
    void *found = __real_dlsym(handle, name);

    if (strncmp(name, "cu", 2) == 0)
        print(name, "dlsym -", 0, found);
    step_between(name, strcmp(name, "cuGetProcAddress_v2") == 0, &found);
    return found;
}

int main(void) {
    int version = 0, count = 0;

    /* What it says is the driver's business: there need be no GPU, and the simulated driver runs no
     * program of NVIDIA's runtime. */
    (void) cudaRuntimeGetVersion(&version);
    (void) cudaGetDeviceCount(&count);
    return version ? 0 : 1;
}
