/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a card takes work: a process of its own makes a context on it and ends. Drivers before
 * 570 do not tell whether a card has been reset, and for them nothing else shows it. */

#include <uv.h>

struct gpu_probe;

struct gpu_probe_options {
    const char *program; /* see struct gpu_monitor_options */
    const char *library; /* path of the NVML library; libcuda.so.1 lies beside it */
    const char *uuid;    /* of a card, or of an instance: none can be made on a card in MIG mode */
    unsigned deadline_ms;
    /* Once, unless it is cancelled; the probe is cancelled then. `error`: NULL: a context was made.
     */
    void (*on_done)(struct gpu_probe *probe, const char *uuid, const char *error, void *userdata);
    void (*on_freed)(void *userdata); /* last */
    void *userdata;
};

int gpu_probe_start(uv_loop_t *loop, const struct gpu_probe_options *options,
                    struct gpu_probe **ret);

/* Kills the process. Only on_freed() follows, when it has ended. */
void gpu_probe_cancel(struct gpu_probe *probe);
