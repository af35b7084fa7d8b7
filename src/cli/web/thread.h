/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <signal.h>

/* A thread that takes no signals: they are the loop's. 0 or a negative errno. */
static inline int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg) {
    sigset_t all, before;

    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(ret, NULL, run, arg);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}
