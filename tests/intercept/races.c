/* SPDX-License-Identifier: Apache-2.0 */

/* Two threads do at the same time, over and over, what could keep memory out of the books. Then
 * what the card has in use is compared with what is booked.
 *
 *   races WHAT SECONDS
 *
 * WHAT: map (memory is mapped while its handle is released), unmap (memory is mapped where two
 * mappings are just being undone), capture (a stream is captured while memory is allocated in its
 * order), restore (a process is restored twice), context and primary (memory is allocated while a
 * context with memory ends), pooled (the same with memory of a pool), cancel (a thread is cancelled
 * in an allocation that is refused). The environment's HOLDER names the program that says what the
 * card has in use, without the library. Prints "ok", or what is wrong. */

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "books.h"
#include "on_card.h"

#define GRAIN (2 * MIB)
#define POOLS 200
#define SPREAD 300 /* loops by which the two begin apart */

static CUcontext primary, ending;
static CUmemGenericAllocationHandle handle, other_handle;
static CUdeviceptr range, allocated;
static CUstream stream;
static CUmemoryPool pool;
static CUresult results[2];
static void (*sides[2])(void);
static int turn, answered, started;

/* -- two threads ----------------------------------------------------------------------------- */

static void delay(int n) {
    for (volatile int i = 0; i < n; i++)
        ;
}

static void *second(void *arg) {
    int seen = 0, now;

    (void) arg;
    OK(cuCtxSetCurrent(primary));
    __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    for (;;) {
        now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
        if (now == seen)
            continue;
        seen = now;
        delay(rand() % SPREAD);
        sides[1]();
        __atomic_store_n(&answered, seen, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void start_second(void) {
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
        ;
}

static void at_once(void (*a)(void), void (*b)(void)) {
    sides[0] = a;
    sides[1] = b;
    __atomic_store_n(&turn, turn + 1, __ATOMIC_RELEASE);
    delay(rand() % SPREAD);
    a();
    while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) != turn)
        ;
}

/* -- what they do ---------------------------------------------------------------------------- */

static void make(CUmemGenericAllocationHandle *ret) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

    OK(cuMemCreate(ret, GRAIN, &prop, 0));
}

static void release(void) {
    results[0] = cuMemRelease(handle);
}

static void map(void) {
    results[1] = cuMemMap(range, GRAIN, 0, handle, 0);
}

static void race_map(void) {
    OK(cuMemAddressReserve(&range, GRAIN, 0, 0, 0));
    make(&handle);
    at_once(release, map);
    if (results[1] != CUDA_SUCCESS)
        OK(cuMemAddressFree(range, GRAIN));
}

static void unmap_both(void) {
    results[0] = cuMemUnmap(range, 2 * GRAIN);
}

static void map_again(void) {
    for (int i = 0; i < 1000; i++) {
        results[1] = cuMemMap(range + GRAIN, GRAIN, 0, other_handle, 0);
        if (results[1] == CUDA_SUCCESS)
            return;
    }
}

static void race_unmap(void) {
    OK(cuMemAddressReserve(&range, 2 * GRAIN, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        make(&handle);
        OK(cuMemMap(range + (size_t) i * GRAIN, GRAIN, 0, handle, 0));
        OK(cuMemRelease(handle));
    }
    make(&other_handle);
    at_once(unmap_both, map_again);
    if (results[1] != CUDA_SUCCESS)
        OK(cuMemAddressFree(range, 2 * GRAIN));
    OK(cuMemRelease(other_handle));
}

static void restore_first(void) {
    results[0] = cuCheckpointProcessRestore(getpid(), NULL);
}

static void restore_second(void) {
    results[1] = cuCheckpointProcessRestore(getpid(), NULL);
}

static void race_restore(void) {
    OK(cuCheckpointProcessLock(getpid(), NULL));
    OK(cuCheckpointProcessCheckpoint(getpid(), NULL));
    at_once(restore_first, restore_second);
    CHECK((results[0] == CUDA_SUCCESS) != (results[1] == CUDA_SUCCESS));
    OK(cuCheckpointProcessUnlock(getpid(), NULL));
    CHECK(total - free_now() >= PIECE);
}

/* -- a context ends, and the driver hands out its addresses again --------------------------------
 */

static void end_context(void) {
    OK(cuCtxDestroy_v2(ending));
}

static void allocate_and_free(void) {
    CUdeviceptr p;

    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc_v2(&p, MIB));
        OK(cuMemFree_v2(p));
    }
}

static void make_ending(void) {
    CUdeviceptr p;

    OK(cuCtxCreate_v2(&ending, 0, 0));
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2(&p, MIB));
    OK(cuCtxPopCurrent_v2(&ending));
}

static void race_context(void) {
    make_ending();
    at_once(end_context, allocate_and_free);
}

/* All at once: the next allocation at an address would hide what was left of the last. */
static void allocate_and_free_pooled(void) {
    CUdeviceptr p[40];

    for (int i = 0; i < 40; i++)
        OK(cuMemAllocFromPoolAsync(&p[i], MIB, pool, stream));
    for (int i = 0; i < 40; i++)
        OK(cuMemFreeAsync(p[i], stream));
}

static void race_pooled(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    size_t before = free_now();

    if (!stream)
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolCreate(&pool, &props));
    make_ending();
    at_once(end_context, allocate_and_free_pooled);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    CHECK(free_now() == before);
}

static void release_primary(void) {
    OK(cuDevicePrimaryCtxRelease(0));
}

/* The second reference keeps the context in every other turn. */
static void race_primary(void) {
    static bool twice;
    CUdeviceptr p;

    twice = !twice;
    OK(cuDevicePrimaryCtxRetain(&ending, 0));
    if (twice)
        OK(cuDevicePrimaryCtxRetain(&ending, 0));
    OK(cuCtxSetCurrent(ending));
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2(&p, MIB));
    OK(cuCtxSetCurrent(primary));
    at_once(release_primary, allocate_and_free);
    if (twice)
        OK(cuDevicePrimaryCtxRelease(0));
}

/* The threads use another context than the primary one. */
static void leave_primary(void) {
    OK(cuCtxCreate_v2(&primary, 0, 0));
    OK(cuDevicePrimaryCtxRelease(0));
}

/* -- a capture that begins in the middle of an allocation ------------------------------------ */

static void allocate(void) {
    results[0] = cuMemAllocAsync(&allocated, total / 2, stream);
}

static void capture(void) {
    results[1] = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* Makes the way from the library's look at the stream to the driver longer. */
static void *keep_asking(void *arg) {
    (void) arg;
    OK(cuCtxSetCurrent(primary));
    for (;;)
        (void) free_now();
    return NULL;
}

/* In a process of its own: once it is known that such graphs exist, they are looked into. */
static void capture_once(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    pthread_t asking;
    CUdeviceptr more;
    CUgraphExec exec;
    CUgraph graph;
    size_t nodes = 0;

    primary = begin();
    start_second();
    for (int i = 0; i < POOLS; i++)
        OK(cuMemPoolCreate(&pool, &props));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(pthread_create(&asking, NULL, keep_asking, NULL) == 0);
    at_once(allocate, capture);
    if (cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS ||
        cuGraphGetNodes(graph, NULL, &nodes) != CUDA_SUCCESS || nodes == 0 ||
        cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS ||
        cuGraphLaunch(exec, stream) != CUDA_SUCCESS)
        return;
    CHECK(cuMemAlloc_v2(&more, total / 2) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void race_capture(void) {
    pid_t child = fork();
    int status;

    if (child == 0) {
        (void) alarm(20);
        srand((unsigned int) getpid());
        capture_once();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* -- a thread that is cancelled -------------------------------------------------------------- */

static void *allocate_cancelled(void *arg) {
    CUdeviceptr p;

    (void) arg;
    OK(cuCtxSetCurrent(primary));
    (void) pthread_cancel(pthread_self()); /* which takes effect at a cancellation point */
    (void) cuMemAlloc_v2(&p, total);
    return NULL;
}

static void cancel(void) {
    pthread_t thread;
    CUdeviceptr p;

    CHECK(pthread_create(&thread, NULL, allocate_cancelled, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    (void) alarm(20);
    OK(cuMemAlloc_v2(&p, PIECE));
    OK(cuMemFree_v2(p));
    (void) alarm(0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*race)(void);
        bool in_children;
        void (*prepare)(void);
    } races[] = {{"map", race_map, false, NULL},
                 {"unmap", race_unmap, false, NULL},
                 {"restore", race_restore, false, NULL},
                 {"context", race_context, false, NULL},
                 {"primary", race_primary, false, leave_primary},
                 {"pooled", race_pooled, false, NULL},
                 {"capture", race_capture, true, NULL},
                 {"cancel", cancel, false, NULL}};
    size_t which = 0;
    uint64_t before;
    CUdeviceptr p;
    time_t until;

    CHECK(argc == 3);
    while (which < sizeof(races) / sizeof(races[0]) && strcmp(races[which].name, argv[1]) != 0)
        which++;
    CHECK(which < sizeof(races) / sizeof(races[0]));
    on_card_begin();
    before = on_card();
    if (!races[which].in_children) {
        primary = begin();
        if (races[which].prepare)
            races[which].prepare();
        start_second();
        OK(cuMemAlloc_v2(&p, PIECE));
    }
    until = time(NULL) + strtol(argv[2], NULL, 10);
    do
        races[which].race();
    while (time(NULL) < until &&
           (races[which].in_children || total - free_now() < total - 16 * GRAIN));
    if (!races[which].in_children && on_card() - before != total - free_now()) {
        (void) printf("the card has %" PRIu64 ", booked are %zu\n", on_card() - before,
                      total - free_now());
        return 1;
    }
    (void) printf("ok\n");
    return 0;
}
