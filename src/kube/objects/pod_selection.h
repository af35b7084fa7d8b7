/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A pod's choice of cards, read from the annotations of its JSON object. */

#include "model/selection.h"
#include "wire/json.h"

/* As selection_parse(). */
int selection_read(struct json annotations, struct gpu_selection **ret);
