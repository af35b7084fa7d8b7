/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of the limits file that libaliquot.so shares with the agent: its layout and the reader.
 * Depends on libc only. Layout rule: within a version nothing moves; `reserved` fields may gain a
 * meaning, zero being the behaviour before. */

#include <stdbool.h>
#include <stdint.h>

#define LIMITS_DEVICES_MAX 64

/* One card of the share. The index of a device here is its index in the ledger. */
struct share_device {
    char uuid[48];          /* as NVML prints it: "GPU-…" */
    uint64_t memory_bytes;  /* 0: no limit */
    uint64_t context_bytes; /* what a context costs on this card; 0: not known, not booked */
    uint32_t core_percent;  /* 0: no limit */
    uint32_t reserved;
};

struct share_limits {
    char pod_uid[64];
    char namespace[64];
    char pod[254];
    char container[254];
    uint32_t ndevices;
    struct share_device device[LIMITS_DEVICES_MAX];
};

#define LIMITS_MAGIC 0x31736c746c71615fULL
#define LIMITS_VERSION 1

struct limits_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size;  /* of the whole file */
    uint64_t index; /* counts updates; copy[index & 1] is in force */
    uint64_t reserved[5];
    struct share_limits copy[2];
};

_Static_assert(sizeof(struct share_device) == 72, "ABI of the limits file");
_Static_assert(sizeof(struct share_limits) == 640 + 64 * 72, "ABI of the limits file");
_Static_assert(sizeof(struct limits_file) == 64 + 2 * (640 + 64 * 72), "ABI of the limits file");

/* Maps the limits file at `path` read-only. The mapping lives until the process ends and follows
 * updates. Negative errno; -EBADMSG when it is not a limits file of a known version. */
int limits_map(const char *path, const struct limits_file **ret);

/* Copies the limits in force, strings terminated and ndevices in bounds. -EAGAIN when a writer was
 * faster each time. */
int limits_copy(const struct limits_file *file, struct share_limits *ret);

/* The figures of a device in force now, without a system call. A copy is rewritten only when the
 * index has moved away from it. */
#define LIMITS_READ(file, device, field)                                                           \
    ({                                                                                             \
        uint64_t _before, _value;                                                                  \
        do {                                                                                       \
            _before = __atomic_load_n(&(file)->index, __ATOMIC_ACQUIRE);                           \
            _value = __atomic_load_n(&(file)->copy[_before & 1].device[device].field,              \
                                     __ATOMIC_ACQUIRE);                                            \
        } while (                                                                                  \
            __builtin_expect(_before != __atomic_load_n(&(file)->index, __ATOMIC_RELAXED), 0));    \
        _value;                                                                                    \
    })

/* Bytes; 0: no limit. */
static inline uint64_t limits_memory(const struct limits_file *file, unsigned int device) {
    return LIMITS_READ(file, device, memory_bytes);
}

/* What a context costs; 0: unknown. */
static inline uint64_t limits_context(const struct limits_file *file, unsigned int device) {
    return LIMITS_READ(file, device, context_bytes);
}
