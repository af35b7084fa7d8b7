/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#include "base/clock.h"
#include "cli/web/reading.h"

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
    bool is_stopped;
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

    bool is_whole = reading_run(&reading);
    w->news(w->userdata);
    if (!is_whole)
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

static bool must_wait(const struct worker *w, uint64_t next) {
    return !w->is_stopped && !w->asked && (w->viewers == 0 || clock_ms(CLOCK_MONOTONIC) < next);
}

static void *run(void *arg) {
    struct worker *w = arg;
    uint64_t next = 0;
    bool ends = false;

    while (!ends) {
        (void) pthread_mutex_lock(&w->lock);
        while (must_wait(w, next)) {
            struct timespec end = time_of(next);
            if (w->viewers == 0)
                (void) pthread_cond_wait(&w->changed, &w->lock);
            else
                (void) pthread_cond_timedwait(&w->changed, &w->lock, &end);
        }
        ends = w->is_stopped;
        bool reads = !ends && w->viewers > 0 && clock_ms(CLOCK_MONOTONIC) >= next;
        (void) pthread_mutex_unlock(&w->lock);
        answer_all(w);
        if (reads)
            next = read_once(w);
    }
    return NULL;
}

/* ---- calls ---- */

static int begin(struct worker *w) {
    pthread_condattr_t attr;
    sigset_t all, before;

    (void) pthread_mutex_init(&w->lock, NULL);
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&w->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    (void) sigfillset(&all); /* signals are the loop's */
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&w->thread, NULL, run, w);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
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

void worker_stop(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    w->is_stopped = true;
    change(w);
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
