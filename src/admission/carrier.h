/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The carrier, elasticgpu.io/slot: which containers of a pod need it so that kubelet calls our
 * plugin for them, and the JSON patch that adds it. */

#include <stdbool.h>

#include "wire/json.h"

struct buf;

/* Whether a limit of that name requests a share of a GPU: the carrier, and the names of all
 * dialects except those that only qualify a request. */
bool carrier_is_share(const char *name);

/* Appends a JSON patch (RFC 6902) for the pod: carriers for the containers that need one, without
 * the assignment of the pod that it is a copy of, and with the name of `scheduler` (NULL: none) if
 * it asks for a share and names no other; nothing when nothing is due. */
void carrier_patch(struct json pod, const char *scheduler, struct buf *out);

/* Appends the base64 of a text, as AdmissionReviews carry patches. */
void carrier_base64(const struct buf *text, struct buf *out);
