/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_stat {
    uint32_t parent; /* PID; 0: none, or not known */
    bool ending;     /* also if the process is gone or cannot be read */
};

/* State of a process, from /proc. */
struct proc_stat proc_stat_of(uint32_t pid);

/* Whether a process descends from the caller. */
bool proc_descends(uint32_t pid);
