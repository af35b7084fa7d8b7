/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kubelet/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool any(const char *resource, void *userdata) {
    (void) userdata;
    return resource[0] != 0;
}

static void look(const struct checkpoint_entry *e, void *userdata) {
    (void) userdata;
    /* The nonce becomes part of paths. */
    if (e->nonce[0] && !nonce_valid(e->nonce))
        abort();
    for (size_t i = 1; i < e->nids; i++)
        if (strcmp(e->ids[i - 1], e->ids[i]) > 0)
            abort();
    if (!id_sets_equal(e->ids, e->nids, e->ids, e->nids))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void) checkpoint_parse((const char *) data, size, any, look, NULL, NULL);
    return 0;
}
