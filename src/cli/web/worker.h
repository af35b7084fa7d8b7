/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The thread that asks the cluster: the readings that all viewers are shown, and single questions.
 * While there are no viewers nothing is read. */

#include "base/err.h"
#include "cli/web/journal.h"
#include "cli/web/question.h"

struct worker;

struct worker_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
    unsigned rest_ms;      /* between two readings, at least */
};

/* `news` is called by the thread whenever the journal has changed or a question has its answer. */
int worker_start(const struct worker_source *source, struct journal *journal,
                 void (*news)(void *userdata), void *userdata, struct worker **ret,
                 struct err *err);

/* Waits for the thread; requests of the cluster must fail by then (proxy_end()). */
void worker_stop(struct worker *worker);

/* How many watch now. The first one causes a reading, as soon as the rest after the
 * last one is over. */
void worker_viewers(struct worker *worker, unsigned n);

void worker_ask(struct worker *worker, struct question *question);

/* The next question that has an answer; NULL: none. */
struct question *worker_answered(struct worker *worker);
