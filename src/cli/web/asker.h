/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The thread that asks the cluster for one viewer: questions beside the readings, and the proof of
 * what the viewer's token may read. It uses no other token than that. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/login.h"
#include "cli/web/question.h"

struct asker;

struct asker_source {
    const char *system, *namespace; /* as in struct worker_source */
    const struct api_login *login;  /* NULL: the user of kubectl's context */
};

/* What the source borrows must outlive the thread. `news` is called by it whenever a question has
 * its answer or a proof is made. */
int asker_start(const struct asker_source *source, void (*news)(void *userdata), void *userdata,
                struct asker **ret, struct err *err);

/* Has a proof made that begins from now on. */
void asker_prove(struct asker *asker);

struct proof {
    uint64_t since;  /* when it was begun, in milliseconds: what it says was true at that time */
    int result;      /* of rights_review() */
    unsigned rights; /* RIGHT_... */
};

/* Whether there is a proof that was not told yet. */
bool asker_proof(struct asker *asker, struct proof *ret);

void asker_ask(struct asker *asker, struct question *question);

/* The next question that has an answer; NULL: none. */
struct question *asker_answered(struct asker *asker);

/* Whether the API server does not take the token any more. */
bool asker_is_refused(struct asker *asker);

/* As of worker.h. */
void asker_end(struct asker *asker);
bool asker_has_ended(struct asker *asker);
void asker_stop(struct asker *asker);
