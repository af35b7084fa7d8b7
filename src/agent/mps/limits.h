/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an MPS control daemon gives every client that sets nothing lower: as commands of its control
 * interface, and its answers read back. The daemon answers success to commands that it ignores, so
 * only its getters say what is in force. */

#include <stddef.h>
#include <stdint.h>

struct err;

struct mps_limits {
    uint32_t percent; /* of the card's threads, 1 to 100 */
    uint32_t clients; /* that the card is divided among; 0: any number */
    uint64_t memory;  /* bytes of the card, at least 1 MiB; the daemon counts whole MiB */
};

/* The clients that a card takes at most, by the major number of its compute capability: NVIDIA's
 * documentation has 48 from Volta (7.0) on, and 16 before. */
uint32_t mps_clients_max(unsigned major);

#define MPS_COMMANDS_MAX 256

/* The commands that set the limits and those that read them; the daemon sees the card as 0. */
void mps_limits_commands(const struct mps_limits *l, char ret[static MPS_COMMANDS_MAX]);

/* The commands that only read them. */
const char *mps_limits_queries(void);

/* Whether the last two lines of the answer to either are these limits. -EBADMSG with both in the
 * text. */
int mps_limits_check(const struct mps_limits *l, const char *answer, struct err *err);
