/* SPDX-License-Identifier: Apache-2.0 */

/* Several processes take memory at the same time until not a byte is left, in ever smaller pieces;
 * prints what each got and what was free before. Usage: racer PROCESSES */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define PROCESSES_MAX 64

struct shared {
    volatile int ready, go, done;
    uint64_t got[PROCESSES_MAX];
    uint64_t refused[PROCESSES_MAX];
};

static void add(volatile int *counter) {
    (void) __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
}

static void wait_for(volatile int *counter, int value) {
    while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < value)
        (void) usleep(100);
}

static void race(struct shared *s, int self, int n) {
    uint64_t seed = (uint64_t) self * 2654435761u + 12345;
    size_t piece = (size_t) 16 << 20;
    CUcontext context;
    CUdeviceptr p;

    /* None outlives the first, and without one there is no race. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        (void) kill(getppid(), SIGTERM);
    add(&s->ready);
    wait_for(&s->go, 1);
    while (piece > 0) {
        size_t size = piece;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (piece > 4096)
            size = piece / 2 + (seed >> 33) % (piece / 2);
        if (cuMemAlloc_v2(&p, size) == CUDA_SUCCESS) {
            s->got[self] += size;
        } else {
            s->refused[self]++;
            piece = piece > 4096 ? piece / 2 : piece == 1 ? 0 : piece / 16 ? piece / 16 : 1;
        }
    }
    add(&s->done);
    wait_for(&s->done, n); /* no thread ends before all have their share: it would be free again */
    _exit(0);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? (int) strtol(argv[1], NULL, 10) : 4, failed = 0, status;
    struct shared *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t got = 0, refused = 0;
    size_t free_bytes, total;
    CUcontext context;

    if (s == MAP_FAILED || n < 1 || n > PROCESSES_MAX)
        return 2;
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0)
            race(s, i, n);
        failed += pid < 0;
    }
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 3;
    wait_for(&s->ready, n);
    if (cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return 4;
    add(&s->go);
    while (wait(&status) > 0)
        failed += status != 0;
    for (int i = 0; i < n; i++) {
        got += s->got[i];
        refused += s->refused[i];
    }
    (void) printf("total %zu free %zu got %llu refused %llu failed %d\n", total, free_bytes,
                  (unsigned long long) got, (unsigned long long) refused, failed);
    return failed != 0;
}
