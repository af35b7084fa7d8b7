/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The containers that can hold unattributed memory of one card: all with a share of it. A container
 * is charged only if it is the only one. */

#include <stdbool.h>
#include <stdint.h>

#define CANDIDATES_MAX 8 /* that are kept by name */

struct candidate_container {
    char slot[40]; /* nonce of the container's share */
    uint32_t pid;  /* a process of it that holds the driver's nodes; 0: none was found */
    bool unlisted; /* the process can hold memory that neither the driver's list nor a ledger has */
};

struct candidates {
    uint32_t n;        /* containers; those beyond CANDIDATES_MAX are counted once a process */
    uint32_t unlisted; /* of these, the ones with such a process */
    struct candidate_container list[CANDIDATES_MAX];
};

/* The container has a share of the card; `unlisted`: and that process. */
void candidates_add(struct candidates *c, const char *slot, uint32_t pid, bool unlisted);

/* The container that alone can hold the memory and has a process to hold it by; NULL: several can,
 * or none. */
const struct candidate_container *candidates_only(const struct candidates *c);
