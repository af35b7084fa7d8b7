/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#include "base/clock.h"
#include "cli/cluster/agent_token.h"
#include "cli/cluster/api.h"
#include "cli/web/reading.h"
#include "cli/web/thread.h"

/* A reading may take this part of a processor of ours; what kubectl and the API server take comes
 * to about as much as the time in which it waits for them. */
#define CPU_PART 24

struct worker {
    struct worker_source source;
    struct journal *journal;
    void (*news)(void *userdata);
    void *userdata;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct question *asked, *answered;
    unsigned viewers;
    bool is_stopped, has_ended, is_refused;
    uint64_t cpu; /* milliseconds of the process at the end of the last reading */
};

/* ---- the thread ---- */

static struct question *next_question(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    struct question *q = w->is_stopped ? NULL : w->asked;
    if (q)
        DL_DELETE(w->asked, q);
    (void) pthread_mutex_unlock(&w->lock);
    return q;
}

static void answer_all(struct worker *w) {
    struct question *q;

    while ((q = next_question(w))) {
        q->result =
            reading_history(w->source.system, q->node, q->namespace, q->pod, &q->text, &q->err);
        (void) pthread_mutex_lock(&w->lock);
        w->is_refused |= q->result == -EKEYREJECTED;
        DL_APPEND(w->answered, q);
        (void) pthread_mutex_unlock(&w->lock);
        w->news(w->userdata);
    }
}

/* A reading of a large cluster takes seconds: questions do not wait for its end. */
static int on_pause(void *userdata) {
    struct worker *w = userdata;

    w->news(w->userdata);
    answer_all(w);
    (void) pthread_mutex_lock(&w->lock);
    int r = w->is_stopped || w->viewers == 0;
    (void) pthread_mutex_unlock(&w->lock);
    return r;
}

/* When the next one may begin, in milliseconds. One that was broken off, as no page was open, is
 * made again at once when one is, and what it cost counts with the next. */
static uint64_t read_once(struct worker *w) {
    struct reading reading = {.journal = w->journal,
                              .system = w->source.system,
                              .namespace = w->source.namespace,
                              .pause = on_pause,
                              .userdata = w};
    uint64_t start = clock_ms(CLOCK_MONOTONIC), rest = w->source.rest_ms;

    int r = reading_run(&reading);
    (void) pthread_mutex_lock(&w->lock);
    w->is_refused |= r == -EKEYREJECTED;
    (void) pthread_mutex_unlock(&w->lock);
    w->news(w->userdata);
    if (r == -ECANCELED)
        return 0;
    uint64_t end = clock_ms(CLOCK_MONOTONIC), took = end - start;
    uint64_t cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID), cycle = CPU_PART * (cpu - w->cpu);
    w->cpu = cpu;
    rest = rest > took ? rest : took;
    return end + (cycle > took + rest ? cycle - took : rest);
}

static struct timespec time_of(uint64_t ms) {
    return (struct timespec){.tv_sec = (time_t) (ms / 1000),
                             .tv_nsec = (long) (ms % 1000) * 1000000};
}

/* For whom to read. */
static bool has_viewers(const struct worker *w) {
    return w->viewers > 0 && !w->is_refused;
}

static bool must_wait(const struct worker *w, uint64_t next) {
    return !w->is_stopped && !w->asked && (!has_viewers(w) || clock_ms(CLOCK_MONOTONIC) < next);
}

/* What a thread has of a login is its own. All questions have an answer, as requests wait for it.
 */
static void leave(struct worker *w) {
    struct question *q;

    api_close();
    agent_token_forget();
    (void) pthread_mutex_lock(&w->lock);
    DL_FOREACH(w->asked, q) {
        q->result = err_set(&q->err, ECANCELED, "the session has ended");
    }
    DL_CONCAT(w->answered, w->asked);
    w->asked = NULL;
    w->has_ended = true;
    (void) pthread_mutex_unlock(&w->lock);
    w->news(w->userdata);
}

static void *run(void *arg) {
    struct worker *w = arg;
    uint64_t next = 0;
    bool ends = false;

    login_use(w->source.login);
    while (!ends) {
        (void) pthread_mutex_lock(&w->lock);
        while (must_wait(w, next)) {
            struct timespec end = time_of(next);
            if (!has_viewers(w))
                (void) pthread_cond_wait(&w->changed, &w->lock);
            else
                (void) pthread_cond_timedwait(&w->changed, &w->lock, &end);
        }
        ends = w->is_stopped;
        bool reads = !ends && has_viewers(w) && clock_ms(CLOCK_MONOTONIC) >= next;
        (void) pthread_mutex_unlock(&w->lock);
        answer_all(w);
        if (reads)
            next = read_once(w);
    }
    leave(w);
    return NULL;
}

/* ---- calls ---- */

static int begin(struct worker *w) {
    pthread_condattr_t attr;

    (void) pthread_mutex_init(&w->lock, NULL);
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&w->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    return thread_start(&w->thread, run, w);
}

int worker_start(const struct worker_source *source, struct journal *journal,
                 void (*news)(void *userdata), void *userdata, struct worker **ret,
                 struct err *err) {
    struct worker *w = calloc(1, sizeof(*w));

    if (!w)
        return err_errno(err, ENOMEM, "cannot read the cluster");
    *w = (struct worker){.source = *source, .journal = journal, .news = news, .userdata = userdata};
    int r = begin(w);
    if (r < 0) {
        free(w);
        return err_errno(err, -r, "cannot read the cluster");
    }
    *ret = w;
    return 0;
}

static void change(struct worker *w) {
    (void) pthread_cond_signal(&w->changed);
    (void) pthread_mutex_unlock(&w->lock);
}

void worker_end(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    w->is_stopped = true;
    change(w);
}

static bool read_flag(struct worker *w, const bool *flag) {
    (void) pthread_mutex_lock(&w->lock);
    bool value = *flag;
    (void) pthread_mutex_unlock(&w->lock);
    return value;
}

bool worker_has_ended(struct worker *w) {
    return read_flag(w, &w->has_ended);
}

bool worker_is_refused(struct worker *w) {
    return read_flag(w, &w->is_refused);
}

void worker_stop(struct worker *w) {
    worker_end(w);
    (void) pthread_join(w->thread, NULL);
    DL_CONCAT(w->asked, w->answered);
    while (w->asked) {
        struct question *q = w->asked;
        DL_DELETE(w->asked, q);
        question_free(q);
    }
    (void) pthread_cond_destroy(&w->changed);
    (void) pthread_mutex_destroy(&w->lock);
    free(w);
}

void worker_viewers(struct worker *w, unsigned n) {
    (void) pthread_mutex_lock(&w->lock);
    w->viewers = n;
    change(w);
}

void worker_ask(struct worker *w, struct question *question) {
    (void) pthread_mutex_lock(&w->lock);
    DL_APPEND(w->asked, question);
    change(w);
}

struct question *worker_answered(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    struct question *q = w->answered;
    if (q)
        DL_DELETE(w->answered, q);
    (void) pthread_mutex_unlock(&w->lock);
    return q;
}
