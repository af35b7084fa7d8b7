/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/ring.h"
#include "sim/cuda/stream.h"

/* The version that every glibc has, the default one would need 2.34; and weak, because before that
 * it is in libpthread, which a program without threads does not load. */
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#endif
#pragma weak pthread_create

struct job {
    struct job *next;
    uint64_t number;
    void (*fn)(void *arg);
    bool (*ready)(void *arg); /* NULL: at once, when its turn has come */
    bool host;                /* later work of its stream waits for it, by a SIM_HOLD */
    uint16_t queue;
    uint64_t seq; /* of the entry before it */
    char arg[] __attribute__((aligned(16)));
};

static pthread_cond_t submitted_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static struct job *first, *last;
static uint64_t submitted; /* under cuda_lock, as the list */
static bool running;

/* How long it goes without looking again at memory, and at jobs of other streams. */
#define SPIN_NS 100000u

/* With cuda_lock: the first job that may run. Jobs of one stream keep their order, because a job
 * that holds its stream precedes the later jobs of that stream. */
static struct job *next_job(void) {
    struct job *j = first;
    while (j && (!ring_is_done(j->queue, j->seq) || (j->ready && !j->ready(j->arg))))
        j = j->next;
    return j;
}

/* With cuda_lock. */
static void remove_job(struct job *job) {
    struct job *before = NULL;
    for (struct job *i = first; i != job; i = i->next)
        before = i;
    if (before)
        before->next = job->next;
    else
        first = job->next;
    if (last == job)
        last = before;
}

/* With cuda_lock: the streams never get there. */
static void drop_all(void) {
    while (first) {
        struct job *job = first;
        remove_job(job);
        free(job);
    }
    (void) pthread_cond_broadcast(&done_cond);
}

static void *worker_main(void *unused) {
    (void) unused;
    (void) pthread_mutex_lock(&cuda_lock);
    for (;;) {
        struct job *job = next_job();
        if (job) {
            (void) pthread_mutex_unlock(&cuda_lock);
            job->fn(job->arg);
            if (job->host)
                ring_release(job->queue);
            (void) pthread_mutex_lock(&cuda_lock);
            remove_job(job);
            (void) pthread_cond_broadcast(&done_cond);
            free(job);
        } else if (!first) {
            (void) pthread_cond_wait(&submitted_cond, &cuda_lock);
        } else {
            uint16_t queue = first->queue;
            uint64_t seq = first->seq;
            (void) pthread_mutex_unlock(&cuda_lock);
            ring_poll(queue, seq, SPIN_NS);
            bool lost = ring_is_lost();
            (void) pthread_mutex_lock(&cuda_lock);
            if (lost)
                drop_all();
        }
    }
    return NULL;
}

/* Signals are the program's business, not this thread's. With cuda_lock. */
static bool start_worker(void) {
    pthread_attr_t detached;
    if (running || !pthread_create || pthread_attr_init(&detached) != 0)
        return running;
    (void) pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) sigprocmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    running = pthread_create(&thread, &detached, worker_main, NULL) == 0;
    (void) sigprocmask(SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy(&detached);
    return running;
}

static struct job *job_new(void (*fn)(void *), const void *arg, size_t size) {
    struct job *job = calloc(1, sizeof(*job) + size);
    if (!job)
        return NULL;
    job->fn = fn;
    memcpy(job->arg, arg, size);
    return job;
}

/* With cuda_lock. */
static void append_job(CUstream stream, struct job *job) {
    job->number = ++submitted;
    job->queue = stream->queue;
    if (last)
        last->next = job;
    else
        first = job;
    last = job;
    stream->last_job = job->number;
    (void) pthread_cond_signal(&submitted_cond);
}

CUresult worker_do(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size) {
    (void) pthread_mutex_lock(&cuda_lock);
    if (!first) {
        (void) pthread_mutex_unlock(&cuda_lock);
        fn((void *) (uintptr_t) arg);
        return CUDA_SUCCESS;
    }
    struct job *job = job_new(fn, arg, size);
    if (job) {
        job->seq = stream->last;
        append_job(stream, job);
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    return job ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult worker_wait_until(CUstream stream, bool (*ready)(void *arg), void (*fn)(void *arg),
                           const void *arg, size_t size) {
    struct job *job = job_new(fn, arg, size);
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = start_worker() ? stream_put(stream, SIM_HOLD, 0, 0) : CUDA_ERROR_OPERATING_SYSTEM;
    if (r == CUDA_SUCCESS) {
        job->host = true;
        job->ready = ready;
        job->seq = stream->last - 1;
        append_job(stream, job);
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    if (r != CUDA_SUCCESS)
        free(job);
    return r;
}

CUresult worker_call(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size) {
    return worker_wait_until(stream, NULL, fn, arg, size);
}

/* With cuda_lock: the list is in the order of the numbers. */
static bool is_outstanding(uint64_t job) {
    const struct job *j = first;
    while (j && j->number < job)
        j = j->next;
    return j && j->number == job;
}

void worker_wait(uint64_t job) {
    if (job == 0)
        return;
    (void) pthread_mutex_lock(&cuda_lock);
    while (is_outstanding(job))
        (void) pthread_cond_wait(&done_cond, &cuda_lock);
    (void) pthread_mutex_unlock(&cuda_lock);
}

void worker_wait_all(void) {
    (void) pthread_mutex_lock(&cuda_lock);
    uint64_t until = submitted;
    while (first && first->number <= until)
        (void) pthread_cond_wait(&done_cond, &cuda_lock);
    (void) pthread_mutex_unlock(&cuda_lock);
}

/* With cuda_lock. */
static bool context_waits(CUcontext ctx, bool blocking_only) {
    for (CUstream s = first ? ctx->streams : NULL; s; s = s->next)
        if ((s->blocking || !blocking_only) && is_outstanding(s->last_job))
            return true;
    return false;
}

void worker_wait_context(CUcontext ctx, bool blocking_only) {
    (void) pthread_mutex_lock(&cuda_lock);
    while (context_waits(ctx, blocking_only))
        (void) pthread_cond_wait(&done_cond, &cuda_lock);
    (void) pthread_mutex_unlock(&cuda_lock);
}

bool worker_is_done(uint64_t job) {
    (void) pthread_mutex_lock(&cuda_lock);
    bool is = !is_outstanding(job);
    (void) pthread_mutex_unlock(&cuda_lock);
    return is;
}

bool worker_is_idle(void) {
    (void) pthread_mutex_lock(&cuda_lock);
    bool is = !first;
    (void) pthread_mutex_unlock(&cuda_lock);
    return is;
}
