/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of the device plugin API to and from plain values. No I/O. Encoders append to a buffer and
 * leave failures to buf_error(); decoders return -EBADMSG for what is no such message. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/backends/resource.h"
#include "agent/kubelet/checkpoint.h"

struct buf;
struct gpu_snapshot;

void message_options(struct buf *out);
void message_register(const struct resource *r, const char *endpoint, struct buf *out);
/* The list of the first `count` IDs on the devices. sick[i]: the i-th is unhealthy; NULL: none is.
 */
void message_list(const struct resource *r, const struct gpu_snapshot *devices, uint32_t count,
                  const bool *sick, struct buf *out);

struct message_allocation {
    const char *guard; /* each container gets its mount (cdi_guard.h); NULL or "": none */
    /* These are one container's. May be NULL. */
    void (*on_allocated)(const char *const *ids, size_t n, void *userdata);
    void *userdata;
};

/* Answers an AllocateRequest: for each container one CDI name of its own. Beside -EBADMSG what the
 * back end returns; -ENODEV also for a device that takes no container. */
int message_allocate(const struct resource *r, const struct gpu_snapshot *devices,
                     const struct message_allocation *how, const uint8_t *request, size_t size,
                     struct buf *out);

/* Answers a PreferredAllocationRequest. */
int message_preferred(const struct resource *r, const struct gpu_snapshot *devices,
                      const uint8_t *request, size_t size, struct buf *out);

struct message_ids {
    const char **ids; /* sorted */
    size_t n;
    void *message;
};

/* The IDs of a PreStartContainerRequest. Free with message_ids_done. */
int message_prestart(const uint8_t *request, size_t size, struct message_ids *ret);
void message_ids_done(struct message_ids *ids);
