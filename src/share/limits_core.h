/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of the limits file that libaliquot.so shares with the agent: its layout and the reader.
 * Depends on libc only. Layout rule: within a version nothing moves; `reserved` fields may gain a
 * meaning, zero being the behaviour before, and the file may grow at its end: its `size` is where
 * it ends, and what lies beyond the end of an older file counts as zero. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_DEVICES_MAX 64

/* How a container shares the time of a card with others; the meanings: share/arbitration.h. */
enum share_policy {
    SHARE_DEFAULT, /* the default of the node */
    SHARE_FIXED,
    SHARE_BURST,
    SHARE_WEIGHTED,
    SHARE_BEST_EFFORT,
    SHARE_ONLINE,
    SHARE_OFFLINE,
    SHARE_WEAK,
};
#define SHARE_POLICIES 8

/* One card of the share. The index of a device here is its index in the ledger. */
struct share_device {
    char uuid[48];           /* as NVML prints it: "GPU-…" */
    uint64_t memory_bytes;   /* 0: no limit */
    uint64_t context_bytes;  /* what a context costs on this card; 0: not known, not booked */
    uint32_t core_percent;   /* 0: no limit */
    uint8_t policy;          /* enum share_policy; one that is not known counts as SHARE_DEFAULT */
    uint8_t ceiling_percent; /* how far SHARE_BURST may borrow; 0: the whole card */
    uint16_t weight;         /* among containers that share by weight; 0: as core_percent, or 1 */
};

/* What is known of a card beyond that; grew at the end of the file. */
struct share_device_more {
    /* The overhead: what the driver holds for the container beyond its allocations (modules, heaps,
     * rounding), by the driver's own figures: part of the use, not booked in the ledger. */
    uint64_t overhead_bytes;
    /* How much of memory_bytes may be on the card at once; the rest is served by managed memory.
     * 0: all of it. */
    uint64_t physical_bytes;
    uint64_t options; /* LIMITS_… below */
    uint64_t reserved;
};

/* Ask the driver for hardware time-slices in the proportion of core_percent. */
#define LIMITS_HARDWARE_SLICES 1u

/* In the file the part from `more` on is stored separately. */
struct share_limits {
    char pod_uid[64];
    char namespace[64];
    char pod[254];
    char container[254];
    uint32_t ndevices;
    struct share_device device[LIMITS_DEVICES_MAX];
    struct share_device_more more[LIMITS_DEVICES_MAX];
};

#define LIMITS_MAGIC 0x31736c746c71615fULL
#define LIMITS_VERSION 1

struct limits_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size;  /* of the whole file */
    uint64_t index; /* counts updates; copy[index & 1] is in force */
    uint64_t reserved[5];
    struct {
        char names[640];
        struct share_device device[LIMITS_DEVICES_MAX];
    } copy[2];
    struct share_device_more more[2][LIMITS_DEVICES_MAX]; /* more[index & 1] is in force */
};

/* The smallest file of this version: one that ends before `more`. */
#define LIMITS_SIZE_MIN offsetof(struct limits_file, more)

_Static_assert(sizeof(struct share_device) == 72, "ABI of the limits file");
_Static_assert(sizeof(struct share_device_more) == 32, "ABI of the limits file");
_Static_assert(offsetof(struct share_limits, device) == 640, "ABI of the limits file");
_Static_assert(offsetof(struct share_limits, more) == 640 + 64 * 72, "ABI of the limits file");
_Static_assert(LIMITS_SIZE_MIN == 64 + 2 * (640 + 64 * 72), "ABI of the limits file");
_Static_assert(sizeof(struct limits_file) == LIMITS_SIZE_MIN + 2 * 64 * 32,
               "ABI of the limits file");

/* Maps the limits file at `path` read-only. The mapping lives until the process ends and follows
 * updates. Negative errno; -EBADMSG when it is not a limits file of a known version. */
int limits_map(const char *path, const struct limits_file **ret);

/* The same of an open file, with the protection of mmap. */
int limits_map_fd(int fd, int protection, struct limits_file **ret);

/* Unmaps what these returned. */
void limits_unmap(const struct limits_file *file);

/* Copies the limits in force, strings terminated and ndevices in bounds. -EAGAIN when a writer was
 * faster each time. */
int limits_copy(const struct limits_file *file, struct share_limits *ret);

/* A figure in force now, without a system call: `place` is an expression of _copy, the copy that
 * counts. A copy is rewritten only when the index has moved away from it. */
#define LIMITS_READ(file, place)                                                                   \
    ({                                                                                             \
        uint64_t _before, _value;                                                                  \
        do {                                                                                       \
            _before = __atomic_load_n(&(file)->index, __ATOMIC_ACQUIRE);                           \
            const unsigned int _copy = _before & 1;                                                \
            _value = __atomic_load_n(&(place), __ATOMIC_ACQUIRE);                                  \
        } while (                                                                                  \
            __builtin_expect(_before != __atomic_load_n(&(file)->index, __ATOMIC_RELAXED), 0));    \
        _value;                                                                                    \
    })

/* Bytes; 0: no limit. */
static inline uint64_t limits_memory(const struct limits_file *file, unsigned int device) {
    return LIMITS_READ(file, file->copy[_copy].device[device].memory_bytes);
}

/* What a context costs; 0: unknown. */
static inline uint64_t limits_context(const struct limits_file *file, unsigned int device) {
    return LIMITS_READ(file, file->copy[_copy].device[device].context_bytes);
}

/* Percent of the card's time; 0: no limit. */
static inline uint32_t limits_core(const struct limits_file *file, unsigned int device) {
    return (uint32_t) LIMITS_READ(file, file->copy[_copy].device[device].core_percent);
}

static inline bool limits_has_more(const struct limits_file *file) {
    return file->size >= sizeof(*file);
}

/* The driver's overhead, bytes. */
static inline uint64_t limits_overhead(const struct limits_file *file, unsigned int device) {
    return limits_has_more(file) ? LIMITS_READ(file, file->more[_copy][device].overhead_bytes) : 0;
}

static inline uint64_t limits_options(const struct limits_file *file, unsigned int device) {
    return limits_has_more(file) ? LIMITS_READ(file, file->more[_copy][device].options) : 0;
}

/* How much may be on the card at once; 0: as much as limits_memory. */
static inline uint64_t limits_physical(const struct limits_file *file, unsigned int device) {
    return limits_has_more(file) ? LIMITS_READ(file, file->more[_copy][device].physical_bytes) : 0;
}
