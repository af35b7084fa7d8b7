/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ResourceClaims of a pod, as `aliquot explain` prints them. */

#include <stdbool.h>

#include "base/err.h"
#include "wire/json.h"

/* Whether the pod uses any. */
bool explain_has_claims(struct json pod);

/* Prints what each of them has, and which share their cards, or what it requests. What cannot be
 * read is said. 0 or a negative errno. */
int explain_claims(struct json pod, struct err *err);
