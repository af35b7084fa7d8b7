/* SPDX-License-Identifier: Apache-2.0 */
#include "share/sigbus_guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>

/* The mapping that this thread works on now, and the way out when its file has shrunk under it. */
static _Thread_local struct {
    uintptr_t start, end;
    sigjmp_buf out;
} guard;

static struct sigaction previous_sigbus;

static void on_sigbus(int signal, siginfo_t *info, void *context) {
    uintptr_t fault = (uintptr_t) info->si_addr;

    if (fault >= guard.start && fault < guard.end)
        siglongjmp(guard.out, 1);
    if (previous_sigbus.sa_flags & SA_SIGINFO)
        previous_sigbus.sa_sigaction(signal, info, context);
    else
        (void) sigaction(SIGBUS, &previous_sigbus,
                         NULL); /* the instruction faults again, to the old end */
}

void guard_install(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction now;

    (void) sigemptyset(&action.sa_mask);
    (void) pthread_mutex_lock(&mutex);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_sigbus) {
        previous_sigbus = now;
        (void) sigaction(SIGBUS, &action, NULL);
    }
    (void) pthread_mutex_unlock(&mutex);
}

/* A wrapper between the kernel and the handler (of a sanitizer) may have masked the signal all the
 * same, and the next fault would end the process. */
static void unblock_sigbus(void) {
    sigset_t set;

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGBUS);
    (void) pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int guard_run(const void *start, size_t size, int (*fn)(void *arg), void *arg) {
    int r;

    /* The handler masks nothing, so no mask is saved, which would be a system call each time. */
    if (sigsetjmp(guard.out, 0) != 0) {
        guard.start = guard.end = 0;
        unblock_sigbus();
        return -EBADMSG;
    }
    guard.end = (uintptr_t) start + size;
    guard.start = (uintptr_t) start;
    r = fn(arg);
    guard.start = guard.end = 0;
    return r;
}
