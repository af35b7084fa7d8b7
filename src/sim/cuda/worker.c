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
    void (*fn)(void *arg);
    bool host; /* waits for what is before it in its stream, holds what is behind */
    uint16_t queue;
    uint64_t seq; /* of its SIM_HOLD */
    char arg[] __attribute__((aligned(16)));
};

static pthread_cond_t submitted_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static struct job *first, *last;
static uint64_t submitted, done; /* under cuda_lock */
static bool running;

static void run(struct job *job) {
    if (job->host && ring_wait(job->queue, job->seq - 1) != CUDA_SUCCESS)
        return; /* the device is lost: the stream never gets here */
    job->fn(job->arg);
    if (job->host)
        ring_release(job->queue);
}

static void *work(void *unused) {
    (void) unused;
    for (;;) {
        (void) pthread_mutex_lock(&cuda_lock);
        while (!first)
            (void) pthread_cond_wait(&submitted_cond, &cuda_lock);
        struct job *job = first;
        (void) pthread_mutex_unlock(&cuda_lock);
        run(job);
        (void) pthread_mutex_lock(&cuda_lock);
        first = job->next;
        if (!first)
            last = NULL;
        done++;
        (void) pthread_cond_broadcast(&done_cond);
        (void) pthread_mutex_unlock(&cuda_lock);
        free(job);
    }
    return NULL;
}

/* Signals are the program's business, not this thread's. With cuda_lock. */
static bool start(void) {
    pthread_attr_t detached;
    if (running || !pthread_create || pthread_attr_init(&detached) != 0)
        return running;
    (void) pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) sigprocmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    running = pthread_create(&thread, &detached, work, NULL) == 0;
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

static void append(CUstream stream, struct job *job) {
    if (last)
        last->next = job;
    else
        first = job;
    last = job;
    stream->last_job = ++submitted;
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
    if (job)
        append(stream, job);
    (void) pthread_mutex_unlock(&cuda_lock);
    return job ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult worker_call(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size) {
    struct job *job = job_new(fn, arg, size);
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = start() ? stream_put(stream, SIM_HOLD, 0, 0) : CUDA_ERROR_OPERATING_SYSTEM;
    if (r == CUDA_SUCCESS) {
        job->host = true;
        job->queue = stream->queue;
        job->seq = stream->last;
        append(stream, job);
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    if (r != CUDA_SUCCESS)
        free(job);
    return r;
}

void worker_wait(uint64_t job) {
    if (job == 0)
        return;
    (void) pthread_mutex_lock(&cuda_lock);
    while (done < job)
        (void) pthread_cond_wait(&done_cond, &cuda_lock);
    (void) pthread_mutex_unlock(&cuda_lock);
}

bool worker_is_done(uint64_t job) {
    (void) pthread_mutex_lock(&cuda_lock);
    bool is = done >= job;
    (void) pthread_mutex_unlock(&cuda_lock);
    return is;
}

uint64_t worker_last(void) {
    (void) pthread_mutex_lock(&cuda_lock);
    uint64_t n = submitted;
    (void) pthread_mutex_unlock(&cuda_lock);
    return n;
}
