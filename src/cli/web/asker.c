/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/asker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "base/clock.h"
#include "cli/cluster/agent_token.h"
#include "cli/cluster/api.h"
#include "cli/web/reading.h"
#include "cli/web/rights.h"
#include "cli/web/thread.h"

struct asker {
    struct asker_source source;
    void (*news)(void *userdata);
    void *userdata;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int bell; /* can be read when the thread is to end */
    struct question *asked, *answered;
    struct proof proof;
    bool is_proof_wanted, has_proof;
    bool is_stopped, has_ended, is_refused;
};

/* ---- the thread ---- */

static void tell(struct asker *a, int result) {
    a->is_refused |= result == -EKEYREJECTED;
    (void) pthread_mutex_unlock(&a->lock);
    a->news(a->userdata);
}

static void prove(struct asker *a) {
    struct proof proof = {.since = clock_ms(CLOCK_MONOTONIC)};
    struct err err;

    proof.result = rights_review(a->source.system, a->source.namespace, &proof.rights, &err);
    (void) pthread_mutex_lock(&a->lock);
    a->proof = proof;
    a->has_proof = true;
    tell(a, proof.result);
}

static void answer(struct asker *a, struct question *q) {
    q->result = reading_history(a->source.system, q->node, q->namespace, q->pod, &q->text, &q->err);
    (void) pthread_mutex_lock(&a->lock);
    DL_APPEND(a->answered, q);
    tell(a, q->result);
}

/* All questions have an answer, as requests wait for it. */
static void leave(struct asker *a) {
    struct question *q;

    api_close();
    agent_token_forget();
    (void) pthread_mutex_lock(&a->lock);
    DL_FOREACH(a->asked, q) {
        q->result = err_set(&q->err, ECANCELED, "the session has ended");
    }
    DL_CONCAT(a->answered, a->asked);
    a->asked = NULL;
    a->has_ended = true;
    tell(a, 0);
}

/* A connection that nothing is asked on is closed: there can be one for each viewer. */
static bool wait_for_work(struct asker *a, bool *ret_proves, struct question **ret_question) {
    bool is_idle = false;

    (void) pthread_mutex_lock(&a->lock);
    while (!a->is_stopped && !a->is_proof_wanted && !a->asked) {
        if (!is_idle)
            api_close();
        is_idle = true;
        (void) pthread_cond_wait(&a->changed, &a->lock);
    }
    *ret_proves = a->is_proof_wanted;
    a->is_proof_wanted = false;
    *ret_question = a->is_stopped ? NULL : a->asked;
    if (*ret_question)
        DL_DELETE(a->asked, *ret_question);
    bool ends = a->is_stopped;
    (void) pthread_mutex_unlock(&a->lock);
    return !ends;
}

static void *run(void *arg) {
    struct asker *a = arg;
    struct question *question;
    bool proves;

    login_use(a->source.login);
    api_cancel_by(a->bell);
    while (wait_for_work(a, &proves, &question)) {
        if (proves)
            prove(a);
        if (question)
            answer(a, question);
    }
    leave(a);
    return NULL;
}

/* ---- calls ---- */

static void asker_free(struct asker *a) {
    if (a->bell >= 0)
        (void) close(a->bell);
    (void) pthread_cond_destroy(&a->changed);
    (void) pthread_mutex_destroy(&a->lock);
    free(a);
}

static int begin(struct asker *a) {
    (void) pthread_mutex_init(&a->lock, NULL);
    (void) pthread_cond_init(&a->changed, NULL);
    a->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return a->bell < 0 ? -errno : thread_start(&a->thread, run, a);
}

int asker_start(const struct asker_source *source, void (*news)(void *userdata), void *userdata,
                struct asker **ret, struct err *err) {
    struct asker *a = calloc(1, sizeof(*a));

    if (!a)
        return err_errno(err, ENOMEM, "cannot ask the cluster");
    *a = (struct asker){.source = *source, .news = news, .userdata = userdata};
    int r = begin(a);
    if (r < 0) {
        asker_free(a);
        return err_errno(err, -r, "cannot ask the cluster");
    }
    *ret = a;
    return 0;
}

static void change(struct asker *a) {
    (void) pthread_cond_signal(&a->changed);
    (void) pthread_mutex_unlock(&a->lock);
}

void asker_prove(struct asker *a) {
    (void) pthread_mutex_lock(&a->lock);
    a->is_proof_wanted = true;
    change(a);
}

bool asker_proof(struct asker *a, struct proof *ret) {
    (void) pthread_mutex_lock(&a->lock);
    bool has_proof = a->has_proof;
    *ret = a->proof;
    a->has_proof = false;
    (void) pthread_mutex_unlock(&a->lock);
    return has_proof;
}

void asker_ask(struct asker *a, struct question *question) {
    (void) pthread_mutex_lock(&a->lock);
    DL_APPEND(a->asked, question);
    change(a);
}

struct question *asker_answered(struct asker *a) {
    (void) pthread_mutex_lock(&a->lock);
    struct question *q = a->answered;
    if (q)
        DL_DELETE(a->answered, q);
    (void) pthread_mutex_unlock(&a->lock);
    return q;
}

static bool read_flag(struct asker *a, const bool *flag) {
    (void) pthread_mutex_lock(&a->lock);
    bool value = *flag;
    (void) pthread_mutex_unlock(&a->lock);
    return value;
}

bool asker_is_refused(struct asker *a) {
    return read_flag(a, &a->is_refused);
}

bool asker_has_ended(struct asker *a) {
    return read_flag(a, &a->has_ended);
}

void asker_end(struct asker *a) {
    (void) pthread_mutex_lock(&a->lock);
    a->is_stopped = true;
    (void) eventfd_write(a->bell, 1);
    change(a);
}

void asker_stop(struct asker *a) {
    asker_end(a);
    (void) pthread_join(a->thread, NULL);
    DL_CONCAT(a->asked, a->answered);
    while (a->asked) {
        struct question *q = a->asked;
        DL_DELETE(a->asked, q);
        question_free(q);
    }
    asker_free(a);
}
