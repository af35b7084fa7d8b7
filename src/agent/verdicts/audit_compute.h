/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Detects containers that take more of a card's time than their entitlement, by NVML's figures. The
 * account in the container is written by its own programs. Pure: no clock.
 *
 * The driver's percentages are coarse and late, so they are summed up over AUDIT_COMPUTE_WINDOW_NS
 * and must be AUDIT_COMPUTE_SLACK_PPM above what the arbiter would have given. */

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_COMPUTE_WINDOW_NS 5000000000u
#define AUDIT_COMPUTE_SLACK_PPM 200000u

/* All zero at first. */
struct audit_compute {
    uint64_t window_ns, had_ns, due_ns; /* of the window under way */
    uint32_t entitled;                  /* at the last poll */
    bool over;                          /* the result of the last whole one */
};

/* `ns` have passed in which the driver saw it take `percent` of the card and it could have had
 * `entitled` ppm by now. Returns whether a window has ended that found it over. */
bool audit_compute_poll(struct audit_compute *o, uint64_t ns, uint32_t percent, uint32_t entitled);
