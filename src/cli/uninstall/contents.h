/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is in a namespace, of all kinds that the cluster has. */

#include "base/err.h"
#include "wire/json.h"

struct contents_options {
    const char *namespace;
    const char *without_group; /* kinds that are on their way out; NULL: none */
    /* An object, of which there is only the metadata. */
    void (*see)(const char *kind, struct json object, void *userdata);
    void *userdata;
};

/* Calls `see` for each but Events and PodMetrics, which are of others. A negative errno: a part of
 * it is not known. */
int contents_read(const struct contents_options *options, struct err *err);
