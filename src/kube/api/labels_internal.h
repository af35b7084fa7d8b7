/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For labels.c and labels_parse.c. */

#include "kube/api/labels.h"

struct buf;

/* Adds a term; `values` as in struct label_term. 0, -ENOMEM, or -EINVAL: there are too many. */
int label_terms_add(struct label_terms *terms, enum label_operator operator, const char * key,
                    struct buf *values);
