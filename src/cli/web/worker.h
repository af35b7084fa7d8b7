/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The thread that makes the readings that viewers are shown, one after the other. While there are
 * no viewers nothing is read. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/login.h"
#include "cli/web/journal.h"

struct worker;

struct worker_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
    unsigned rest_ms;      /* between two readings, at least */
    /* The API server: nothing is read before worker_read_as(). NULL: that of kubectl's context, as
     * its user. Borrowed, as the texts. */
    const struct api_login *cluster;
    const unsigned *rights; /* as in struct reading; borrowed */
};

/* How long it rests after a reading that took so long and so much of a processor, one of `readers`
 * that are made beside each other; `least` at least, and as long as it took. Milliseconds. What the
 * process does beside readings is for any client to cause, and delays none. */
uint64_t worker_rest(uint64_t took, uint64_t cpu, unsigned readers, uint64_t least);

/* `news` is called by the thread whenever the journal has changed or there is an outcome. */
int worker_start(const struct worker_source *source, struct journal *journal,
                 void (*news)(void *userdata), void *userdata, struct worker **ret,
                 struct err *err);

/* With which token is read from now on, copied; NULL: nothing is. A request that is under way with
 * another one is broken off. `is_strict` as in struct reading. */
void worker_read_as(struct worker *worker, const char *token, bool is_strict);

/* What came of the token that is read with; but with WORKER_READS nothing is read before
 * worker_read_as() or worker_go_on(). Only with rights there are the last two. */
enum worker_outcome {
    WORKER_READS,
    WORKER_REFUSED, /* the API server does not take it any more */
    WORKER_DENIED,  /* it has not the rights any more that it is to have */
    WORKER_SLOW,    /* the API server puts it off, perhaps as its user asks too much elsewhere */
};
enum worker_outcome worker_outcome(struct worker *worker);

/* With the same token, whatever came of it. */
void worker_go_on(struct worker *worker);

/* The thread ends soon, as its request is broken off, and calls `news`. */
void worker_end(struct worker *worker);
bool worker_has_ended(struct worker *worker);

/* Ends it, waits for the thread and frees it. */
void worker_stop(struct worker *worker);

/* How many watch now. The first one causes a reading, as soon as the rest after the
 * last one is over. */
void worker_viewers(struct worker *worker, unsigned n);
