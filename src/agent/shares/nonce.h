/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The name of a slot: random, made for each request for devices, or of a ResourceClaim; part of the
 * CDI device name that the container runtime resolves and of the paths of the slot. */

#include <stdbool.h>

#define CDI_PREFIX "elasticgpu.io/share="
#define NONCE_LEN 32 /* hex digits: 128 bits */

/* Takes a nonce out of a CDI name: true and 32 hex digits, or false and "". */
bool nonce_of_cdi_name(const char *name, char ret_nonce[static NONCE_LEN + 1]);

/* The name of the slot of a ResourceClaim: the digits of its UID. False and "" where that is no
 * UUID. */
bool nonce_of_claim(const char *uid, char ret_nonce[static NONCE_LEN + 1]);

/* Whether `nonce` is exactly NONCE_LEN hex digits: it becomes part of paths. */
bool nonce_valid(const char *nonce);
