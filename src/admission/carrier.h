/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The carrier, elasticgpu.io/slot: which containers of a pod need it so that kubelet calls our
 * plugin for them, and the JSON patch that adds it. */

#include <stdbool.h>

#include "wire/json.h"

struct buf;

/* Whether a limit of that name makes a pod one that asks for a share of a GPU: every name of every
 * dialect but those that only say how, and the carrier. */
bool carrier_is_share(const char *name);

/* Appends a JSON patch (RFC 6902) for the pod: carriers for the containers that need one, and
 * without the assignment of the pod that it is a copy of; nothing when neither is due. */
void carrier_patch(struct json pod, struct buf *out);

/* Appends the base64 of a text, as AdmissionReviews carry patches. */
void carrier_base64(const struct buf *text, struct buf *out);
