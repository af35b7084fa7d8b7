/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One reading of a cluster into a journal, and questions beside it. What the user may not read is
 * named in the line "state", and the rest is there. Lines and their members: docs/web.md. */

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/web/journal.h"

struct reading {
    struct journal *journal;
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
    /* RIGHT_... that all viewers of the journal have: what needs others is not read, and no text
     * names the user who reads. NULL: only this user sees it. */
    const unsigned *rights;
    bool is_strict; /* with rights: a refusal of what they allow ends the reading */
    /* Called between requests: the journal has changed. Nonzero: the reading is to end. */
    int (*pause)(void *userdata);
    void *userdata;
};

/* 0; 1: the API server has put some of it off, or did not answer in time. -ECANCELED: `pause` has
 * ended it. -EKEYREJECTED: the API server does not take the token of the thread's login, and
 * nothing has changed by that. -EACCES: it has refused what the rights allow, and nothing has
 * changed by that, either. */
int reading_run(const struct reading *reading);

/* Appends the page /history of the node's agent about the pod. -ENOENT: the node has no agent. */
int reading_history(const char *system, const char *node, const char *namespace, const char *pod,
                    struct buf *ret, struct err *err);
