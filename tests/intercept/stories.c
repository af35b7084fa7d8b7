/* SPDX-License-Identifier: Apache-2.0 */

/* Takes memory of all kinds and gives it back at random, in several threads of several processes at
 * once, and compares after each round what the container has booked with what the card has in use.
 *
 *   stories MODE SEED ROUNDS [PROCESSES THREADS]
 *
 * MODE: own (each thread uses what it has made, and both figures are the same to the byte), shared
 * (threads use each other's handles and mappings of memory, also such as another thread is just
 * making or ending; what the card has is never more than is booked).
 * The environment's HOLDER names the program that says what the card has in use, without the
 * library. Prints the first round that is wrong, or "ok". */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "books.h"
#include "on_card.h"

#define THREADS_MAX 8
#define PROCESSES_MAX 4
#define OBJECTS 6
#define STEPS 30
#define GRAIN (2 * MIB)
#define PLACES 4 /* of GRAIN, in a reserved range of addresses */

enum kind { LINEAR, ARRAY, MIPMAP, CONTEXT, HANDLE, RANGE, POOL, POOLED, GRAPH, KINDS };

struct object {
    unsigned long long name; /* 0: none */
};

struct world {
    struct object object[KINDS][OBJECTS];
    CUcontext context;
    CUstream stream;
    uint64_t seed;
};

struct meeting {
    pthread_barrier_t barrier;
    int failed;
};

static struct world worlds[THREADS_MAX];
static struct meeting *meeting;
static CUcontext primary;
static int rounds, processes = 2, threads = 3;
static bool shared_mode;

/* -- chance ---------------------------------------------------------------------------------- */

static uint64_t random_of(struct world *w, uint64_t n) {
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (w->seed >> 33) % n;
}

static bool is_shared(enum kind kind) {
    return shared_mode && (kind == HANDLE || kind == RANGE);
}

/* A place for an object: the thread's own, or any thread's. */
static struct object *pick(struct world *w, enum kind kind) {
    struct world *of = is_shared(kind) ? &worlds[random_of(w, (uint64_t) threads)] : w;

    return &of->object[kind][random_of(w, OBJECTS)];
}

/* The object's name, or 0; another thread does not end it, too, unless it is shared. */
static uint64_t end(struct object *o) {
    return __atomic_exchange_n(&o->name, 0, __ATOMIC_SEQ_CST);
}

static void ended(CUresult r) {
    CHECK(r == CUDA_SUCCESS || shared_mode);
}

/* Makes an object by `call`; `made` is its name afterwards. */
#define KEEP(o, call, made)                                                                        \
    do {                                                                                           \
        CUresult result = call;                                                                    \
                                                                                                   \
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY || shared_mode);        \
        if (result == CUDA_SUCCESS)                                                                \
            (o)->name = (unsigned long long) (made);                                               \
    } while (0)

/* -- what can be done ------------------------------------------------------------------------ */

static size_t some_bytes(struct world *w) {
    return 1 + random_of(w, 3) * random_of(w, 3 * MIB);
}

static void use_linear(struct world *w) {
    struct object *o = pick(w, LINEAR);
    uint64_t name = end(o);
    CUdeviceptr p = 0;
    size_t pitch;

    if (name)
        ended(cuMemFree_v2(name));
    else if (random_of(w, 2))
        KEEP(o, cuMemAlloc_v2(&p, some_bytes(w)), p);
    else
        KEEP(o, cuMemAllocPitch_v2(&p, &pitch, 1 + random_of(w, 5000), 1 + random_of(w, 200), 4),
             p);
}

static void use_array(struct world *w) {
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 1 + random_of(w, 300),
                                    .Height = random_of(w, 300),
                                    .Depth = random_of(w, 5),
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1u << random_of(w, 3)};
    bool mipmap = random_of(w, 2);
    struct object *o = pick(w, mipmap ? MIPMAP : ARRAY);
    uint64_t name = end(o);
    CUmipmappedArray m = NULL;
    CUarray a = NULL;

    if (name && mipmap)
        ended(cuMipmappedArrayDestroy((CUmipmappedArray) name));
    else if (name)
        ended(cuArrayDestroy((CUarray) name));
    else if (mipmap)
        KEEP(o, cuMipmappedArrayCreate(&m, &desc, 1), m);
    else
        KEEP(o, cuArray3DCreate_v2(&a, &desc), a);
}

static void use_context(struct world *w) {
    struct object *o = &w->object[CONTEXT][0];
    CUcontext c = NULL;
    CUdeviceptr p;
    CUresult r;

    if (random_of(w, 4) > 0)
        return;
    if (o->name) {
        OK(cuCtxDestroy_v2((CUcontext) o->name));
        o->name = 0;
        return;
    }
    r = cuCtxCreate_v2(&c, 0, 0);
    KEEP(o, r, c);
    if (r != CUDA_SUCCESS)
        return;
    for (uint64_t i = random_of(w, 3); i > 0; i--)
        (void) cuMemAlloc_v2(&p, some_bytes(w));
    (void) cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, random_of(w, 4 * MIB));
    OK(cuCtxPopCurrent_v2(&c));
}

static void use_limit(struct world *w) {
    static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE,
                                     CU_LIMIT_MALLOC_HEAP_SIZE};
    CUlimit limit = limits[random_of(w, 3)];
    CUresult r = cuCtxSetLimit(limit, limit == CU_LIMIT_STACK_SIZE ? 512 + 16 * random_of(w, 96)
                                                                   : random_of(w, 24 * MIB));

    CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
}

static void use_handle(struct world *w) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct object *o = pick(w, HANDLE);
    uint64_t name = end(o);
    CUmemGenericAllocationHandle made;

    if (name)
        ended(cuMemRelease(name));
    else if (shared_mode)
        (void) cuMemCreate(&o->name, GRAIN, &prop, 0);
    else
        KEEP(o, cuMemCreate(&made, GRAIN, &prop, 0), made);
}

/* Ranges stay; what is mapped there changes. */
static void use_range(struct world *w) {
    struct object *o = pick(w, RANGE), *h = pick(w, HANDLE);
    uint64_t at = random_of(w, PLACES), n = 1 + random_of(w, PLACES - at), place;
    CUmemGenericAllocationHandle again = 0;
    CUdeviceptr base = 0;

    if (!o->name) {
        o = &w->object[RANGE][random_of(w, OBJECTS)];
        if (!o->name && cuMemAddressReserve(&base, PLACES * GRAIN, 0, 0, 0) == CUDA_SUCCESS)
            o->name = base;
        return;
    }
    place = o->name + at * GRAIN;
    switch (random_of(w, 4)) {
    case 0:
        (void) cuMemUnmap(place, n * GRAIN);
        break;
    case 1:
        h = pick(w, HANDLE);
        if (!h->name && cuMemRetainAllocationHandle(&again, (void *) place) == CUDA_SUCCESS)
            h->name = again;
        break;
    default:
        if (h->name)
            (void) cuMemMap(place, GRAIN, 0, h->name, 0);
    }
}

static void use_pool(struct world *w) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t threshold = random_of(w, 2) ? random_of(w, 4 * MIB) : 0;
    struct object *o = &w->object[POOL][random_of(w, 2)];
    CUmemoryPool pool = NULL;

    if (!o->name) {
        KEEP(o, cuMemPoolCreate(&pool, &props), pool);
        return;
    }
    pool = (CUmemoryPool) o->name;
    switch (random_of(w, 6)) {
    case 0:
        OK(cuMemPoolDestroy(pool));
        o->name = 0;
        break;
    case 1:
        OK(cuMemPoolTrimTo(pool, random_of(w, MIB)));
        break;
    default:
        OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    }
}

static void use_pooled(struct world *w) {
    struct object *o = pick(w, POOLED);
    uint64_t name = end(o), pool = w->object[POOL][random_of(w, 2)].name;
    CUdeviceptr p = 0;

    if (name)
        ended(random_of(w, 2) ? cuMemFreeAsync(name, w->stream) : cuMemFree_v2(name));
    else if (pool)
        KEEP(o, cuMemAllocFromPoolAsync(&p, some_bytes(w), (CUmemoryPool) pool, w->stream), p);
    else
        KEEP(o, cuMemAllocAsync(&p, some_bytes(w), w->stream), p);
}

static CUresult make_graph(struct world *w, CUgraphExec *exec) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = some_bytes(w)};
    CUgraphNode alloc, node;
    CUgraph graph;
    CUresult r;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&node, graph, &alloc, 1, params.dptr));
    r = cuGraphInstantiateWithFlags(exec, graph, 0);
    OK(cuGraphDestroy(graph));
    return r;
}

static void use_graph(struct world *w) {
    struct object *o = &w->object[GRAPH][0];
    CUgraphExec exec = (CUgraphExec) o->name;
    CUresult r;

    if (!exec) {
        r = make_graph(w, &exec);
        KEEP(o, r, exec);
    } else if (random_of(w, 3) == 0) {
        OK(cuGraphExecDestroy(exec));
        o->name = 0;
    } else {
        r = cuGraphLaunch(exec, w->stream);
        CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
    }
}

static void (*const uses[])(struct world *) = {use_linear, use_array,  use_context, use_limit,
                                               use_handle, use_range,  use_handle,  use_range,
                                               use_pool,   use_pooled, use_pooled,  use_graph};

/* -- rounds ---------------------------------------------------------------------------------- */

static void meet(void) {
    (void) pthread_barrier_wait(&meeting->barrier);
}

static void *live(void *arg) {
    struct world *w = arg;

    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < STEPS; i++)
            uses[random_of(w, sizeof(uses) / sizeof(uses[0]))](w);
        OK(cuStreamSynchronize(w->stream));
        meet();
        if (w == worlds)
            (void) free_now(); /* brings what pools hold up to date */
        meet();
        meet();
    }
    return NULL;
}

static void compare(int round, uint64_t before) {
    uint64_t booked = total - free_now(), card = on_card() - before;

    if (shared_mode ? card <= booked : card == booked)
        return;
    (void) printf("round %d: card %" PRIu64 ", booked %" PRIu64 "\n", round, card, booked);
    (void) fflush(stdout);
    meeting->failed = 1;
}

static void run(int process, uint64_t seed, uint64_t before) {
    pthread_t thread[THREADS_MAX];

    primary = begin();
    for (int i = 0; i < threads; i++) {
        worlds[i].seed = seed + (uint64_t) (process * THREADS_MAX + i) * 7919;
        CHECK(pthread_create(&thread[i], NULL, live, &worlds[i]) == 0);
    }
    for (int round = 0; process == 0 && round < rounds; round++) {
        meet();
        meet();
        compare(round, before);
        meet();
    }
    for (int i = 0; i < threads; i++)
        (void) pthread_join(thread[i], NULL);
}

/* The others would wait for a process that has failed. */
static void child_ended(int number) {
    int status;

    (void) number;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status != 0)
            _exit(1);
}

int main(int argc, char **argv) {
    pthread_barrierattr_t attributes;
    uint64_t seed, before;

    if (argc < 4)
        return 2;
    shared_mode = strcmp(argv[1], "shared") == 0;
    seed = strtoull(argv[2], NULL, 10);
    rounds = (int) strtol(argv[3], NULL, 10);
    processes = argc > 4 ? (int) strtol(argv[4], NULL, 10) : processes;
    threads = argc > 5 ? (int) strtol(argv[5], NULL, 10) : threads;
    CHECK(processes <= PROCESSES_MAX && threads <= THREADS_MAX);
    (void) signal(SIGCHLD, child_ended);
    on_card_begin();
    before = on_card();
    meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    (void) pthread_barrierattr_init(&attributes);
    (void) pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void) pthread_barrier_init(&meeting->barrier, &attributes,
                                (unsigned int) (processes * threads + 1));
    for (int i = 1; i < processes; i++)
        if (fork() == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            run(i, seed, before);
            exit(0);
        }
    run(0, seed, before);
    (void) fclose(on_card_ask);
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    if (!meeting->failed)
        (void) printf("ok\n");
    return meeting->failed;
}
