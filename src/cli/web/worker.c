/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cluster/agent_token.h"
#include "cli/cluster/api.h"
#include "cli/web/reading.h"
#include "cli/web/thread.h"

/* All readings together may take this part of a processor of ours; what kubectl and the API server
 * take comes to about as much as the time in which a reading waits for them. */
#define CPU_PART 24
#define CPU_REST_MS 60000 /* no longer for that: what is shown is no older */

static atomic_uint nreading; /* workers that have viewers to read for */

struct worker {
    struct worker_source source;
    struct journal *journal;
    void (*news)(void *userdata);
    void *userdata;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int bell; /* can be read while the request under way is to end */
    unsigned viewers;
    bool is_stopped, has_ended;
    char *given; /* the token to be used next, where `has_given`; NULL: none */
    bool is_strict, has_given, has_token; /* the thread has one */
    enum worker_outcome outcome;
    /* Of the thread: */
    char *token;
    struct api_login login; /* with it */
    bool is_counted;        /* in `nreading` */
    uint64_t cpu;           /* milliseconds of the thread at the end of the last reading */
};

/* ---- the thread ---- */

static int on_pause(void *userdata) {
    struct worker *w = userdata;

    w->news(w->userdata);
    (void) pthread_mutex_lock(&w->lock);
    int r = w->is_stopped || w->has_given || w->viewers == 0;
    (void) pthread_mutex_unlock(&w->lock);
    return r;
}

static void note_outcome(struct worker *w, int r) {
    (void) pthread_mutex_lock(&w->lock);
    if (w->has_given)
        ; /* it is of another token */
    else if (r == -EKEYREJECTED)
        w->outcome = WORKER_REFUSED;
    else if (r == -EACCES)
        w->outcome = WORKER_DENIED;
    else if (r > 0 && w->source.rights)
        w->outcome = WORKER_SLOW;
    (void) pthread_mutex_unlock(&w->lock);
}

uint64_t worker_rest(uint64_t took, uint64_t cpu, unsigned readers, uint64_t least) {
    uint64_t cycle = CPU_PART * cpu * readers, rest = least > took ? least : took;
    uint64_t for_cpu = cycle > took ? cycle - took : 0;

    if (for_cpu > CPU_REST_MS)
        for_cpu = CPU_REST_MS;
    return rest > for_cpu ? rest : for_cpu;
}

/* When the next one may begin, in milliseconds. One that was broken off, as no page was open or
 * another token is to be used, is made again at once, and what it cost counts with the next. */
static uint64_t read_once(struct worker *w, bool is_strict) {
    struct reading reading = {.journal = w->journal,
                              .system = w->source.system,
                              .namespace = w->source.namespace,
                              .rights = w->source.rights,
                              .is_strict = is_strict,
                              .pause = on_pause,
                              .userdata = w};
    uint64_t start = clock_ms(CLOCK_MONOTONIC);

    int r = reading_run(&reading);
    note_outcome(w, r);
    w->news(w->userdata);
    if (r < 0)
        return 0;
    uint64_t end = clock_ms(CLOCK_MONOTONIC), before = w->cpu;
    w->cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    return end + worker_rest(end - start, w->cpu - before, nreading, w->source.rest_ms);
}

static struct timespec time_of(uint64_t ms) {
    return (struct timespec){.tv_sec = (time_t) (ms / 1000),
                             .tv_nsec = (long) (ms % 1000) * 1000000};
}

/* For whom to read, and as whom. */
static bool may_read(const struct worker *w) {
    return w->viewers > 0 && w->outcome == WORKER_READS && (!w->source.cluster || w->has_token);
}

static bool must_wait(const struct worker *w, uint64_t next) {
    return !w->is_stopped && !w->has_given && (!may_read(w) || clock_ms(CLOCK_MONOTONIC) < next);
}

static void count(struct worker *w, bool reads) {
    if (reads != w->is_counted)
        nreading += reads ? 1U : -1U;
    w->is_counted = reads;
}

static void await(struct worker *w, uint64_t next) {
    while (must_wait(w, next)) {
        struct timespec end = time_of(next);
        count(w, may_read(w));
        if (w->is_counted)
            (void) pthread_cond_timedwait(&w->changed, &w->lock, &end);
        else
            (void) pthread_cond_wait(&w->changed, &w->lock);
    }
}

/* What a thread has of a login is its own, and ends with it. */
static void forget(struct worker *w) {
    api_close();
    agent_token_forget();
    w->login.token = w->token = login_erase(w->token);
}

/* Uses the token that was given last. */
static void adopt(struct worker *w) {
    uint64_t rung;

    if (!w->has_given)
        return;
    forget(w);
    w->login = *w->source.cluster;
    w->login.token = w->token = take_ptr(w->given);
    w->has_token = w->token;
    w->has_given = false;
    (void) !read(w->bell, &rung, sizeof(rung));
}

static void leave(struct worker *w) {
    forget(w);
    count(w, false);
    (void) pthread_mutex_lock(&w->lock);
    w->has_ended = true;
    (void) pthread_mutex_unlock(&w->lock);
    w->news(w->userdata);
}

static void *run(void *arg) {
    struct worker *w = arg;
    uint64_t next = 0;
    bool ends = false;

    login_use(w->source.cluster ? &w->login : NULL);
    api_cancel_by(w->bell);
    while (!ends) {
        (void) pthread_mutex_lock(&w->lock);
        await(w, next);
        ends = w->is_stopped;
        if (!ends)
            adopt(w);
        count(w, !ends && may_read(w));
        bool reads = w->is_counted && clock_ms(CLOCK_MONOTONIC) >= next;
        bool is_strict = w->is_strict;
        (void) pthread_mutex_unlock(&w->lock);
        if (reads)
            next = read_once(w, is_strict);
    }
    leave(w);
    return NULL;
}

/* ---- calls ---- */

static void worker_free(struct worker *w) {
    if (w->bell >= 0)
        (void) close(w->bell);
    w->given = login_erase(w->given);
    (void) pthread_cond_destroy(&w->changed);
    (void) pthread_mutex_destroy(&w->lock);
    free(w);
}

static int begin(struct worker *w) {
    pthread_condattr_t attr;

    (void) pthread_mutex_init(&w->lock, NULL);
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&w->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->bell < 0 ? -errno : thread_start(&w->thread, run, w);
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
        worker_free(w);
        return err_errno(err, -r, "cannot read the cluster");
    }
    *ret = w;
    return 0;
}

static void ring(struct worker *w) {
    (void) eventfd_write(w->bell, 1);
    (void) pthread_cond_signal(&w->changed);
}

void worker_read_as(struct worker *w, const char *token, bool is_strict) {
    (void) pthread_mutex_lock(&w->lock);
    w->given = login_erase(w->given);
    w->given = token ? strdup(token) : NULL; /* without memory nothing is read */
    w->is_strict = is_strict;
    w->has_given = true;
    w->outcome = WORKER_READS;
    ring(w);
    (void) pthread_mutex_unlock(&w->lock);
}

void worker_go_on(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    w->outcome = WORKER_READS;
    (void) pthread_cond_signal(&w->changed);
    (void) pthread_mutex_unlock(&w->lock);
}

enum worker_outcome worker_outcome(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    enum worker_outcome outcome = w->outcome;
    (void) pthread_mutex_unlock(&w->lock);
    return outcome;
}

void worker_end(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    w->is_stopped = true;
    ring(w);
    (void) pthread_mutex_unlock(&w->lock);
}

bool worker_has_ended(struct worker *w) {
    (void) pthread_mutex_lock(&w->lock);
    bool has_ended = w->has_ended;
    (void) pthread_mutex_unlock(&w->lock);
    return has_ended;
}

void worker_stop(struct worker *w) {
    worker_end(w);
    (void) pthread_join(w->thread, NULL);
    worker_free(w);
}

void worker_viewers(struct worker *w, unsigned n) {
    (void) pthread_mutex_lock(&w->lock);
    w->viewers = n;
    (void) pthread_cond_signal(&w->changed);
    (void) pthread_mutex_unlock(&w->lock);
}
