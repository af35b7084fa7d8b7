/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of the device plugin API to and from plain values. No I/O. Encoders append to a buffer and
 * leave failures to buf_error(); decoders return -EBADMSG for what is no such message. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/backends/resource.h"
#include "agent/kubelet/checkpoint.h"

struct backend;
struct buf;

void message_options(struct buf *out);
void message_register(const struct resource *r, const char *endpoint, struct buf *out);
/* sick: as in plugin_set_ids. */
void message_list(const struct resource *r, uint32_t count, const bool *sick, struct buf *out);

/* Answers an AllocateRequest: for each container one CDI name of its own. */
int message_allocate(const struct backend *b, const uint8_t *request, size_t size, struct buf *out);

/* Answers a PreferredAllocationRequest. */
int message_preferred(const struct backend *b, const uint8_t *request, size_t size,
                      struct buf *out);

struct message_ids {
    const char **ids; /* sorted */
    size_t n;
    void *message;
};

/* The IDs of a PreStartContainerRequest. Free with message_ids_done. */
int message_prestart(const uint8_t *request, size_t size, struct message_ids *ret);
void message_ids_done(struct message_ids *ids);
