/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PreStartContainer: calls that wait until the share of their container is provisioned. */

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct grpc_call;
struct kubelet;
struct prestart;
struct resource;
struct shares;

struct prestarts {
    struct shares *shares;
    struct kubelet *kubelet;
    void (*on_granted)(void *userdata); /* a container is about to start */
    void *userdata;
    const char *blocker;   /* why no container starts yet; NULL: containers start */
    struct prestart *list; /* calls that wait */
    uv_idle_t wake;        /* evaluates all of them once, at the end of this turn of the loop */
    uint64_t granted, refused;
};

/* Sets up the handle; the caller sets the members up to `userdata`. */
void prestart_init(struct prestarts *all);

/* Takes the call over. */
void prestart_begin(struct prestarts *all, struct grpc_call *call, const struct resource *resource,
                    const char *const *ids, size_t nids);
/* Something happened that a waiting call may have waited for. */
void prestart_wake(struct prestarts *all);
/* Ends all waiting calls. */
void prestart_stop(struct prestarts *all);
size_t prestart_waiting(const struct prestarts *all);
