/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's device checkpoint: which container of which pod was given which plugin IDs, and what
 * the plugin answered then. Complete when PreStartContainer is called (kubelet: cm/devicemanager,
 * file kubelet_internal_checkpoint), not limited in rate, and it has what the podresources API
 * leaves out: pod UIDs, init containers, our answers. */

#include <stdbool.h>
#include <stddef.h>

#include "agent/shares/nonce.h"

struct err;

#define CHECKPOINT_FILE "kubelet_internal_checkpoint"
#define CHECKPOINT_MAX ((size_t) 64 << 20) /* bytes; a longer file is refused */

/* Everything is valid during the callback only. */
struct checkpoint_entry {
    const char *pod_uid;
    const char *container;
    const char *resource;
    size_t nids;
    const char *const *ids;    /* in the order of strcmp */
    char nonce[NONCE_LEN + 1]; /* from the CDI name that we answered; "" if there is none */
};

typedef void (*checkpoint_fn)(const struct checkpoint_entry *entry, void *userdata);

/* Calls `fn` for each entry of a resource that `wanted` (resource, userdata) accepts. Entries that
 * are malformed on their own are left out; -EBADMSG when the file as a whole is. */
int checkpoint_parse(const char *text, size_t len,
                     bool (*wanted)(const char *resource, void *userdata), checkpoint_fn fn,
                     void *userdata, struct err *err);

/* The same for the file; -ENOENT when kubelet has not written one. */
int checkpoint_read(const char *path, bool (*wanted)(const char *resource, void *userdata),
                    checkpoint_fn fn, void *userdata, struct err *err);

/* Whether both sets are the same; both sorted. */
bool id_sets_equal(const char *const *a, size_t na, const char *const *b, size_t nb);

/* Sorts pointers to strings by strcmp. */
void ids_sort(const char **ids, size_t n);
