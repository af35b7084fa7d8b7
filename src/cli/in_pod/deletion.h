/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `delete` of aliquot-kubectl. */

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct deletion {
    const char *kinds;        /* with commas between, as kubectl takes them */
    const char *const *names; /* n of them; of none, selector or all must say which */
    int n;
    const char *namespace;
    const char *selector; /* NULL: none */
    bool all;
};

/* Prints a line KIND/NAME for each object. What is gone is no error. Objects that a selector finds
 * are deleted one by one, by rights to their names; all of a kind by one request, by the right
 * `deletecollection`. */
int deletion_run(const struct deletion *d, struct buf *out, struct err *err);
