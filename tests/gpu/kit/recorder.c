/* SPDX-License-Identifier: Apache-2.0 */

/* A driver library in front of the real one. It writes down which private tables are asked for, and
 * which of their functions are called. Built as libcuda.so.1 and as libnvidia-ml.so.1; the real
 * library is found under a name of its own (libcuda-driver.so.1, libnvidia-ml-driver.so.1), which
 * is a link that tests/gpu/kit/tables.py makes.
 *
 *     RECORD_TO      file that lines are appended to
 *     RECORD_SLOTS   if set, functions of the tables are recorded, too: their entries in the
 *                    driver's own table are replaced by thunks, so that its address is unchanged
 *
 *     table LIBRARY UUID RESULT BYTES PATCHED     BYTES: the table's first word
 *     call UUID SLOT ARGUMENT x 6                 the first calls of each function; slot 0 is the
 *                                                 first word */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_MAX 4096 /* of all tables; recorder-thunks.S has as many thunks */
#define TABLE_BYTES_MAX 16384
#define RANGES_MAX 512
#define CALLS_RECORDED 4
#define THUNK_BYTES 16
#define PUBLIC __attribute__((visibility("default")))

struct range {
    uintptr_t begin, end;
};

static struct {
    char table[37];
    unsigned int slot;
    unsigned int calls;
    void **entry;
    void *real;
} slots[SLOTS_MAX];
static unsigned int nslots;

extern const char record_thunks[];
void *record_call(uint64_t index, const uint64_t *arguments);

static void *real(const char *name) {
    static void *library;

    if (!library)
        library = dlopen(RECORDED "-driver.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    const char *path = getenv("RECORD_TO");
    char line[256];
    va_list arguments;
    int fd, n, error = errno;

    va_start(arguments, format);
    n = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        (void) !write(fd, line, n < (int) sizeof(line) ? (size_t) n : sizeof(line) - 1);
        (void) close(fd);
    }
    errno = error;
}

/* What a thunk calls before it goes on to the function that stood in the table. */
void *record_call(uint64_t index, const uint64_t *arguments) {
    if (__atomic_fetch_add(&slots[index].calls, 1, __ATOMIC_RELAXED) < CALLS_RECORDED)
        say("call %s %u %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 "\n",
            slots[index].table, slots[index].slot, arguments[0], arguments[1], arguments[2],
            arguments[3], arguments[4], arguments[5]);
    return slots[index].real;
}

static unsigned int code_ranges(struct range *ret) {
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned int n = 0;
    char line[512], mode[5];

    while (maps && n < RANGES_MAX && fgets(line, sizeof(line), maps))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &ret[n].begin, &ret[n].end, mode) == 3 &&
            mode[2] == 'x')
            n++;
    if (maps)
        (void) fclose(maps);
    return n;
}

static int is_code(const void *address, const struct range *ranges, unsigned int n) {
    for (unsigned int i = 0; i < n; i++)
        if ((uintptr_t) address >= ranges[i].begin && (uintptr_t) address < ranges[i].end)
            return 1;
    return 0;
}

static int writable(const void *address, size_t size, int protection) {
    uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE), begin = (uintptr_t) address & -page;

    return mprotect((void *) begin, (uintptr_t) address + size - begin, protection) == 0;
}

static int is_thunk(const void *address) {
    return (const char *) address >= record_thunks &&
           (const char *) address < record_thunks + (size_t) SLOTS_MAX * THUNK_BYTES;
}

/* The slot that records what is called through an entry of a table; SLOTS_MAX if there is none. */
static unsigned int slot_of(void **entry) {
    unsigned int i = 0;

    while (i < nslots && slots[i].entry != entry)
        i++;
    if (i == nslots && nslots < SLOTS_MAX)
        nslots++;
    return i;
}

/* Puts thunks into a table whose first word is its size in bytes, again where the library has
 * filled it anew. Returns how many. */
static unsigned int patch(const char *id, void **table, size_t size) {
    static struct range ranges[RANGES_MAX];
    unsigned int n, patched = 0;

    if (size < 16 || size > TABLE_BYTES_MAX || size % sizeof(void *))
        return 0;
    n = code_ranges(ranges);
    if (!writable(table, size, PROT_READ | PROT_WRITE))
        return 0;
    for (unsigned int i = 1; i < size / sizeof(void *); i++) {
        unsigned int slot;

        if (is_thunk(table[i]) || !is_code(table[i], ranges, n))
            continue;
        slot = slot_of(&table[i]);
        if (slot == SLOTS_MAX)
            break;
        (void) snprintf(slots[slot].table, sizeof(slots[slot].table), "%s", id);
        slots[slot].slot = i;
        slots[slot].entry = &table[i];
        slots[slot].real = table[i];
        table[i] = (void *) (uintptr_t) (record_thunks + (size_t) slot * THUNK_BYTES);
        patched++;
    }
    return patched;
}

static int record_table(int (*ask)(const void **, const void *), const void **table,
                        const void *id) {
    const unsigned char *b = id;
    int r = ask(table, id);
    size_t size = r == 0 && *table ? *(const size_t *) *table : 0;
    char text[37];
    unsigned int patched = 0;

    (void) snprintf(text, sizeof(text),
                    "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                    b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                    b[13], b[14], b[15]);
    if (size && getenv("RECORD_SLOTS"))
        patched = patch(text, (void **) (uintptr_t) *table, size);
    say("table " RECORDED " %s %d %zu %u\n", text, r, size, patched);
    return r;
}

#ifdef RECORD_CUDA

PUBLIC int cuGetExportTable(const void **table, const void *id);
PUBLIC int cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags);
PUBLIC int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *why);

PUBLIC int cuGetExportTable(const void **table, const void *id) {
    return record_table((int (*)(const void **, const void *)) real("cuGetExportTable"), table, id);
}

/* The functions above and below, whichever way they are asked for. */
static void replace(const char *name, void **pfn, int version) {
    if (!*pfn)
        return;
    if (strcmp(name, "cuGetExportTable") == 0)
        *pfn = (void *) cuGetExportTable;
    else if (strcmp(name, "cuGetProcAddress") == 0)
        *pfn = version >= 12000 ? (void *) cuGetProcAddress_v2 : (void *) cuGetProcAddress;
}

PUBLIC int cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags) {
    int (*ask)(const char *, void **, int, uint64_t) =
        (int (*)(const char *, void **, int, uint64_t)) real("cuGetProcAddress");
    int r = ask(name, pfn, version, flags);

    if (r == 0)
        replace(name, pfn, version);
    return r;
}

PUBLIC int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags,
                               int *why) {
    int (*ask)(const char *, void **, int, uint64_t, int *) =
        (int (*)(const char *, void **, int, uint64_t, int *)) real("cuGetProcAddress_v2");
    int r = ask(name, pfn, version, flags, why);

    if (r == 0)
        replace(name, pfn, version);
    return r;
}

#else

PUBLIC int nvmlInternalGetExportTable(const void **table, const void *id);

PUBLIC int nvmlInternalGetExportTable(const void **table, const void *id) {
    return record_table((int (*)(const void **, const void *)) real("nvmlInternalGetExportTable"),
                        table, id);
}

#endif
