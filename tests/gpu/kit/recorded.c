/* SPDX-License-Identifier: Apache-2.0 */

/* A driver with one private table, for the recorder's test: as much of libcuda as the recorder asks
 * for. The table's function adds its seven arguments, of which the last is on the stack, and the
 * product of two floating-point ones. */

#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int cuGetExportTable(const void **table, const void *id);
PUBLIC int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *why);

static double add(long a, long b, long c, long d, long e, long f, double x, double y, long g) {
    return (double) (a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g) + x * y;
}

/* The size, a function, something that is none. */
static struct {
    uint64_t bytes;
    double (*function)(long, long, long, long, long, long, double, double, long);
    uint64_t number;
} table_of_one;

int cuGetExportTable(const void **table, const void *id) {
    if (*(const char *) id != 1)
        return 1;
    table_of_one.bytes = sizeof(table_of_one); /* anew at each request, as the simulator does */
    table_of_one.function = add;
    table_of_one.number = 42;
    *table = &table_of_one;
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *why) {
    (void) version;
    (void) flags;
    *why = 0;
    *pfn = strcmp(name, "cuGetExportTable") == 0 ? (void *) cuGetExportTable : NULL;
    return 0;
}
