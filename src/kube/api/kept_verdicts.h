/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Verdicts of the API server, on tokens, accounts and requests, that are kept for a time by a hash
 * of what they are on: tokens themselves are not kept. Times are milliseconds of any one clock. */

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define VERDICT_KEY_SIZE 32 /* of SHA-256 */

struct kept_verdict {
    UT_hash_handle hh; /* in the order in which they were kept */
    unsigned char key[VERDICT_KEY_SIZE];
    int verdict; /* the caller's */
    uint64_t until;
};

/* All zero but `max`: empty. */
struct kept_verdicts {
    unsigned max; /* then the oldest makes room */
    struct kept_verdict *table;
};

/* 0 or a negative errno. */
int kept_verdict_key(const void *data, size_t size, unsigned char ret_key[static VERDICT_KEY_SIZE]);

/* NULL: there is none. It may have ended. Valid until the next change. */
const struct kept_verdict *kept_verdicts_find(const struct kept_verdicts *kept,
                                              const unsigned char key[static VERDICT_KEY_SIZE]);

/* In place of a former one. Without memory it is not kept. */
void kept_verdicts_put(struct kept_verdicts *kept, const unsigned char key[static VERDICT_KEY_SIZE],
                       int verdict, uint64_t until);

void kept_verdicts_forget(struct kept_verdicts *kept,
                          const unsigned char key[static VERDICT_KEY_SIZE]);

/* Forgets all that ended then or before: UINT64_MAX for all. */
void kept_verdicts_forget_ended(struct kept_verdicts *kept, uint64_t then);
