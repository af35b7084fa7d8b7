/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/kept_verdicts.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

int kept_verdict_key(const void *data, size_t size,
                     unsigned char ret_key[static VERDICT_KEY_SIZE]) {
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, data, size, ret_key) < 0 ? -EIO : 0;
}

static struct kept_verdict *find(const struct kept_verdicts *kept, const unsigned char *key) {
    struct kept_verdict *found = NULL;

    HASH_FIND(hh, kept->table, key, VERDICT_KEY_SIZE, found);
    return found;
}

static void forget(struct kept_verdicts *kept, struct kept_verdict *v) {
    if (!v)
        return;
    HASH_DEL(kept->table, v);
    free(v);
}

const struct kept_verdict *kept_verdicts_find(const struct kept_verdicts *kept,
                                              const unsigned char key[static VERDICT_KEY_SIZE]) {
    return find(kept, key);
}

void kept_verdicts_put(struct kept_verdicts *kept, const unsigned char key[static VERDICT_KEY_SIZE],
                       int verdict, uint64_t until) {
    struct kept_verdict *v = malloc(sizeof(*v));

    forget(kept, find(kept, key));
    if (HASH_COUNT(kept->table) >= kept->max)
        forget(kept, kept->table);
    if (!v)
        return;
    *v = (struct kept_verdict){.verdict = verdict, .until = until};
    memcpy(v->key, key, VERDICT_KEY_SIZE);
    HASH_ADD(hh, kept->table, key, VERDICT_KEY_SIZE, v);
    (void) hash_added_or_freed(v);
}

void kept_verdicts_forget(struct kept_verdicts *kept,
                          const unsigned char key[static VERDICT_KEY_SIZE]) {
    forget(kept, find(kept, key));
}

void kept_verdicts_forget_ended(struct kept_verdicts *kept, uint64_t then) {
    struct kept_verdict *v, *next;

    HASH_ITER(hh, kept->table, v, next) {
        if (v->until <= then)
            forget(kept, v);
    }
}
