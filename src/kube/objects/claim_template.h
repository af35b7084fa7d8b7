/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "model/dra.h"
#include "model/request_code.h"
#include "wire/json.h"

/* Whether a ResourceClaimTemplate, as the API server has it, is one that aliquot-scheduler has made
 * for pods that request shares by resource names. One that a user has made, copied or changed is
 * none, whatever its label. */
static inline bool claim_template_is_made(struct json template) {
    const char *name = json_string(JSON_PATH(template, "metadata", "name"));
    struct json labels = JSON_PATH(template, "metadata", "labels");
    struct json given = JSON_PATH(template, "spec", "metadata", "annotations");

    return name && request_code_is(name) &&
           json_is_string(json_get(labels, DRA_TEMPLATE_LABEL), DRA_TEMPLATE_MAKER) &&
           json_is_string(json_get(given, DRA_REQUEST_ANNOTATION), name);
}
