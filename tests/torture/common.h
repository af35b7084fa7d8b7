/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the ledger's torture tests have in common: a ledger in a directory of its own, and its
 * audit. */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "share/ledger.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void) fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                 \
            (void) fprintf(stderr, __VA_ARGS__);                                                   \
            (void) fputc('\n', stderr);                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct arena {
    char dir[64];
    char path[96];
};

static inline void arena_make(struct arena *a) {
    struct err err;

    (void) snprintf(a->dir, sizeof(a->dir), "/tmp/aliquot-torture-XXXXXX");
    CHECK(mkdtemp(a->dir), "cannot make a directory");
    (void) snprintf(a->path, sizeof(a->path), "%s/ledger", a->dir);
    CHECK(ledger_create(a->path, &err) == 0, "%s", err.text);
}

static inline void arena_remove(const struct arena *a) {
    struct err err;

    CHECK(dir_remove(a->dir, &err) == 0, "%s", err.text);
}

/* With all processes idle and the dead ones reclaimed: the sum is exactly that of the slots. */
static inline void audit(const struct ledger_file *file, unsigned int device, uint64_t expected) {
    uint64_t booked = 0;

    for (uint32_t slot = 0; slot < LEDGER_SLOTS; slot++)
        booked += file->slot[slot].cell[device].booked.lo;
    CHECK(ledger_used(file, device) == expected && booked == expected,
          "device %u: sum %" PRIu64 ", slots %" PRIu64 ", truth %" PRIu64, device,
          ledger_used(file, device), booked, expected);
}
