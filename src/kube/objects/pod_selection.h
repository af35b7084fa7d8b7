/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The annotations of a pod's JSON object, for the readers of src/model. */

#include "model/selection.h"
#include "wire/json.h"

/* The annotation_value of `annotations`, which points to a struct json. */
const char *annotation_text(const void *annotations, const char *key);

/* As selection_parse(). */
int selection_read(struct json annotations, struct gpu_selection **ret);
