/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The thread that asks the cluster: the readings that all viewers are shown, and single questions.
 * While there are no viewers nothing is read. */

#include "base/err.h"
#include "cli/login.h"
#include "cli/web/journal.h"
#include "cli/web/question.h"

struct worker;

struct worker_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
    unsigned rest_ms;      /* between two readings, at least */
    /* As whom its requests are made; NULL: the user of kubectl's context. Borrowed, as the texts.
     */
    const struct api_login *login;
};

/* `news` is called by the thread whenever the journal has changed or a question has its answer. */
int worker_start(const struct worker_source *source, struct journal *journal,
                 void (*news)(void *userdata), void *userdata, struct worker **ret,
                 struct err *err);

/* The thread ends when the request that it waits for has its answer, and calls `news`. */
void worker_end(struct worker *worker);
bool worker_has_ended(struct worker *worker);

/* Ends it, waits for the thread and frees it. */
void worker_stop(struct worker *worker);

/* Whether the API server does not take the token of its login any more; nothing is read then. */
bool worker_is_refused(struct worker *worker);

/* How many watch now. The first one causes a reading, as soon as the rest after the
 * last one is over. */
void worker_viewers(struct worker *worker, unsigned n);

void worker_ask(struct worker *worker, struct question *question);

/* The next question that has an answer; NULL: none. */
struct question *worker_answered(struct worker *worker);
