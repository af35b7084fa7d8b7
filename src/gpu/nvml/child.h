/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One child that calls NVML, as a process and a channel: its start, messages, one timer, and its
 * end. What is asked and when is the monitor's. One thread, on a libuv loop. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "gpu/nvml/worker_protocol.h"

struct gpu_child;

/* What a child is, and what it sends. */
struct gpu_child_protocol {
    const char *command; /* first argument of the agent's binary */
    size_t message_max;  /* bytes */
    /* The type of a message, or -EBADMSG. It is aligned for every type. */
    int (*check)(const void *message, size_t size);
};

struct gpu_child_handlers {
    /* A message that the protocol's check has passed, of the type that it returned. */
    void (*on_message)(const void *message, int type, void *userdata);
    /* No message comes any more: the process has ended, or has sent what is no message. */
    void (*on_end)(bool malformed, void *userdata);
    void (*on_timer)(void *userdata);
    /* The process has ended and the child is freed; follows gpu_child_kill(). */
    void (*on_freed)(void *userdata);
};

struct gpu_child_options {
    const struct gpu_child_protocol *protocol; /* NULL: that of worker_protocol.h */
    const char *program;                       /* see struct gpu_monitor_options */
    const char *library;                       /* path of the NVML library */
    const char *mode;                          /* of worker.h, NULL: none */
    const char *visible; /* UUID of the only device that CUDA shows to it, NULL: all */
    const struct gpu_child_handlers *handlers;
    void *userdata;
};

/* Negative errno when there is no process; no callback comes then. */
int gpu_child_start(uv_loop_t *loop, const struct gpu_child_options *options,
                    struct gpu_child **ret);

/* -EAGAIN and others: the child does not take it now. */
int gpu_child_send(struct gpu_child *c, const void *message, size_t size);

/* One on_timer() in `ms`, in place of the one that is due. */
void gpu_child_arm(struct gpu_child *c, uint64_t ms);

int gpu_child_pid(const struct gpu_child *c);

/* Kills the process, whatever it does. No callback comes any more but on_freed(), when it has
 * ended: late, or never, if it is stuck in the kernel. */
void gpu_child_kill(struct gpu_child *c);
