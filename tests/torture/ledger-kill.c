/* SPDX-License-Identifier: Apache-2.0 */

/* Workers book and give back at random, in processes that are killed at random, while others and
 * the parent clean up after them. The sum never passes the limit; and at intervals all stop between
 * two operations, and then the sum, the slots and what the living say that they hold must be the
 * same to the byte. The first process is never killed, so that what it holds would be missed if it
 * were credited by mistake; its first worker also borrows from the others at times, so that some of
 * what they have exported outlives them for a while. A worker is a thread; there are eight.
 * Usage: ledger-kill [SECONDS [THREADS OF A PROCESS]] */

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

#define WORKERS 8
#define DEVICES 2
#define LIMIT UINT64_C(1000000)

/* What the workers tell the parent. A worker's figures are whole only while it waits. */
struct shared {
    uint32_t pause;   /* the parent wants all to wait */
    uint32_t waiting; /* so many do */
    struct {
        uint64_t operations;
        uint64_t held[DEVICES];
    } worker[WORKERS];
};

struct task {
    const char *path;
    int index; /* of the worker */
    uint64_t seed;
};

static struct shared *shared;
static int threads = 1; /* of a process */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double now(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

/* Borrows, or gives back what was borrowed. */
static void change_loan(const struct ledger_owner *owner, struct ledger_loan *loan) {
    if (loan->page)
        ledger_return(loan);
    else
        CHECK(ledger_borrow(owner, NULL, loan) >= 0, "cannot borrow");
}

static void wait_between_operations(struct ledger_loan *loan) {
    if (!__atomic_load_n(&shared->pause, __ATOMIC_ACQUIRE))
        return;
    ledger_return(loan);
    (void) __atomic_add_fetch(&shared->waiting, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&shared->pause, __ATOMIC_ACQUIRE))
        (void) usleep(50);
    (void) __atomic_sub_fetch(&shared->waiting, 1, __ATOMIC_ACQ_REL);
}

static void *worker(void *argument) {
    const struct task *task = argument;
    const char *path = task->path;
    int index = task->index;
    uint64_t seed = task->seed;
    uint64_t held[DEVICES][2][32] = {{{0}}};
    struct ledger_loan loan = {0};
    struct ledger_owner o[2]; /* for itself, and for what others can open */

    shared->worker[index].held[0] = shared->worker[index].held[1] = 0;
    CHECK(ledger_claim(path, &o[0]) == 0 && ledger_claim_exports(path, &o[1]) == 0,
          "worker %d got no slot", index);
    for (;;) {
        uint64_t r = next_random(&seed);
        unsigned int device = (unsigned int) (r & 1), which = (unsigned int) (r >> 1 & 1);
        uint64_t *cell = &held[device][which][(r >> 8) & 31];

        wait_between_operations(&loan);
        if (index == 0 && (r >> 40) % 500 == 0)
            change_loan(&o[0], &loan);
        if (*cell) {
            CHECK(ledger_refund(&o[which], device, *cell) == 0, "refund failed");
            shared->worker[index].held[device] -= *cell;
            *cell = 0;
        } else {
            uint64_t bytes = (r >> 16) % 20000 + 1;
            int got = ledger_reserve(&o[which], device, bytes, LIMIT);

            CHECK(got == 0 || got == -ENOMEM, "reserve: %d", got);
            if (got == 0)
                shared->worker[index].held[device] += *cell = bytes;
        }
        CHECK(ledger_used(o[0].file, device) <= LIMIT, "over the limit");
        shared->worker[index].operations++;
    }
}

static pid_t start_process(const char *path, int number, uint64_t seed) {
    struct task task[WORKERS];
    pid_t pid = fork();

    CHECK(pid >= 0, "fork");
    if (pid > 0)
        return pid;
    for (int i = threads - 1; i >= 0; i--) {
        pthread_t thread;

        task[i] =
            (struct task){.path = path, .index = number * threads + i, .seed = next_random(&seed)};
        if (i > 0)
            CHECK(pthread_create(&thread, NULL, worker, &task[i]) == 0, "pthread_create");
    }
    (void) worker(&task[0]);
    abort();
}

static void kill_one(pid_t *pid, uint64_t random) {
    int status;

    if (random % 8 == 0)
        (void) kill(*pid, SIGSTOP); /* some die after a stop in the middle of things */
    (void) kill(*pid, SIGKILL);
    CHECK(waitpid(*pid, &status, 0) == *pid, "waitpid");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a process failed: status %x",
          status);
}

/* All wait between operations, the dead are swept: now every figure is exact. */
static void audit_the_living(struct ledger *ledger, const struct ledger_file *file) {
    __atomic_store_n(&shared->pause, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&shared->waiting, __ATOMIC_ACQUIRE) < WORKERS)
        (void) usleep(50);
    CHECK(ledger_sweep(ledger) >= 0, "sweep");
    for (unsigned int d = 0; d < DEVICES; d++) {
        uint64_t held = 0;

        for (int i = 0; i < WORKERS; i++)
            held += shared->worker[i].held[d];
        audit(file, d, held);
    }
    __atomic_store_n(&shared->pause, 0, __ATOMIC_RELEASE);
    while (__atomic_load_n(&shared->waiting, __ATOMIC_ACQUIRE) > 0)
        (void) usleep(50);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 15, end;
    int processes;
    uint64_t seed = (uint64_t) getpid() * UINT64_C(0x9e3779b97f4a7c15) | 1, kills = 0, audits = 0,
             total = 0;
    struct ledger_owner watcher;
    struct ledger *ledger;
    pid_t pid[WORKERS];
    struct arena arena;
    struct err err;

    threads = argc > 2 ? (int) strtod(argv[2], NULL) : threads;
    CHECK(threads > 0 && threads < WORKERS && WORKERS % threads == 0, "%d threads", threads);
    processes = WORKERS / threads;
    arena_make(&arena);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "mmap");
    CHECK(ledger_open(arena.path, &ledger, &err) == 0, "%s", err.text);
    CHECK(ledger_claim(arena.path, &watcher) == 0, "claim");
    for (int i = 0; i < processes; i++)
        pid[i] = start_process(arena.path, i, next_random(&seed));
    for (end = now() + seconds; now() < end; kills++) {
        uint64_t r = next_random(&seed);
        int victim = 1 + (int) (r % (uint64_t) (processes - 1));
        struct timespec pause = {.tv_nsec = (long) ((r >> 8) % 1500000)};

        (void) nanosleep(&pause, NULL);
        kill_one(&pid[victim], r >> 32);
        if (r & 64)
            CHECK(ledger_sweep(ledger) >= 0, "sweep");
        pid[victim] = start_process(arena.path, victim, next_random(&seed));
        if (kills % 16 == 15) {
            audit_the_living(ledger, watcher.file);
            audits++;
        }
    }
    for (int i = 0; i < processes; i++)
        kill_one(&pid[i], 1);
    for (int i = 0; i < WORKERS; i++)
        total += shared->worker[i].operations;
    CHECK(ledger_sweep(ledger) >= 0, "sweep");
    for (unsigned int d = 0; d < DEVICES; d++)
        audit(watcher.file, d, 0);
    CHECK(kills > 0 && audits > 0 && total > 0, "nothing happened");
    (void) printf("%" PRIu64 " operations, %" PRIu64 " kills, %" PRIu64
                  " audits of the living: drift 0\n",
                  total, kills, audits);
    ledger_release(&watcher);
    ledger_free(ledger);
    arena_remove(&arena);
    return 0;
}
