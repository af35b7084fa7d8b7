/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The test is the reflector, by --wrap of the linker: each that is started is in `reflectors`, and
 * the test calls its handlers. All are synced. */

#include <stdio.h>
#include <string.h>

#include "kube-wraps.h"

#define REFLECTORS_MAX 8

struct fake_reflector {
    char watched[512]; /* path?query */
    struct kube_reflector_handlers handlers;
    void *userdata;
};

static struct fake_reflector reflectors[REFLECTORS_MAX];
static unsigned nreflectors, reflectors_stopped, relists;

int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret_reflector, struct err *err) {
    struct fake_reflector *r = &reflectors[nreflectors++ % REFLECTORS_MAX];

    (void) client, (void) err;
    *r = (struct fake_reflector){.handlers = *handlers, .userdata = userdata};
    (void) snprintf(r->watched, sizeof(r->watched), "%s?%s", options->path,
                    options->query ? options->query : "");
    *ret_reflector = NULL;
    return 0;
}

void __wrap_kube_reflector_stop(struct kube_reflector *r) {
    (void) r;
    reflectors_stopped++;
}

void __wrap_kube_reflector_relist(struct kube_reflector *r) {
    (void) r;
    relists++;
}

bool __wrap_kube_reflector_is_synced(const struct kube_reflector *r) {
    (void) r;
    return true;
}

/* The one that was started last, of those that watch `part`, a part of path?query. */
static inline const struct fake_reflector *reflector_of(const char *part) {
    unsigned i = nreflectors;

    while (i-- > 0)
        if (strstr(reflectors[i % REFLECTORS_MAX].watched, part))
            return &reflectors[i % REFLECTORS_MAX];
    fail_msg("%s is not watched", part);
    return NULL;
}

static inline void reflector_show(const struct fake_reflector *r, enum kube_event event,
                                  struct json object) {
    r->handlers.on_object(event, object, r->userdata);
}

static inline void reflector_list_begins(const struct fake_reflector *r) {
    r->handlers.on_sync_begin(r->userdata);
}

static inline void reflector_list_ends(const struct fake_reflector *r) {
    r->handlers.on_sync_end(r->userdata);
}
