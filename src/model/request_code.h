/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The request of one container in the name of a ResourceClaimTemplate, as admission makes it of the
 * resource names, the label, the variable or the annotations that the pod has
 * (deploy/dra-pods/policy-dra-pods.yaml): "aliquot-", the row of dialects.def, and for each amount
 * its kind and its number, as in "aliquot-hami-cards-1-memory-3000". Words are in small letters and
 * without '_'; 'd' is the point of a number. The same request has the same name in any namespace.
 */

#include <stdbool.h>

#include "model/dialect.h"

#define REQUEST_CODE_PREFIX "aliquot-"
#define REQUEST_CODE_MAX 192 /* terminator included */

/* Whether a name begins as one and is not too long. */
bool request_code_is(const char *name);

/* Understands the request, as dialect_read() does, which says what `ret` gets. A name that is none,
 * or of a dialect that is left to others, is REQUEST_NOT_A_NUMBER. */
enum request_problem request_code_read(const char *code, struct container_request *ret);
