/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* YAML out: a JSON value as a block of YAML that reads as the same value. */

#include "base/buf.h"
#include "wire/json.h"

/* Appends v with a line end. Strings that YAML could take for something else are quoted. */
void yaml_print(struct buf *out, struct json v);
