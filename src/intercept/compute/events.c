/* SPDX-License-Identifier: Apache-2.0 */

/* The events around a measured batch, and the thread that polls whether they have passed. The
 * thread begins with the first measurement, sleeps while there is none, takes no signals, and ends
 * when the driver does. */

#include <errno.h>
#include <signal.h>

#include "intercept/compute/throttle_state.h"
#include "intercept/resolve/driver.h"
#include "intercept/resolve/elf.h"

/* The polling period: short at first, then doubled up to the longest. */
#define POLL_MIN_NS 50000ull
#define POLL_MAX_NS 2000000ull

/* How long a launch waits for the first step of the thread. */
#define START_MAX_NS 1000000000ull

/* Interval at which the arbiter is notified of work on the card. */
#define RUNNING_NS (COMPUTE_WAIT_NS / 2)

/* A capture elsewhere in the process must not be broken by our events. Returns the mode to go back
 * to. */
static CUstreamCaptureMode relax(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    return driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS
               ? mode
               : CU_STREAM_CAPTURE_MODE_RELAXED;
}

static void restore(CUstreamCaptureMode mode) {
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        (void) driver.cuThreadExchangeStreamCaptureMode(&mode);
}

void events_lost(struct measure *measure) {
    measure->begin = measure->end = measure->context = NULL;
}

static bool make_events(struct measure *measure, CUcontext context) {
    CUevent begin = NULL, end = NULL;

    if (driver.cuEventCreate(&begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    if (driver.cuEventCreate(&end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        (void) driver.cuEventDestroy_v2(begin);
        return false;
    }
    measure->begin = begin;
    measure->end = end;
    measure->context = context;
    return true;
}

void events_destroy(struct measure *measure) {
    if (!measure->begin)
        return;
    (void) driver.cuEventDestroy_v2(measure->begin);
    (void) driver.cuEventDestroy_v2(measure->end);
    events_lost(measure);
}

/* A stream takes events of its own context only, which need not be the current one. */
static bool make_events_in(struct measure *measure, CUcontext context) {
    CUcontext current = NULL;
    bool made;

    if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return make_events(measure, context);
    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    made = make_events(measure, context);
    (void) driver.cuCtxPopCurrent_v2(&context);
    return made;
}

static bool begin_relaxed(struct measure *measure, CUstream stream) {
    CUcontext context = NULL;

    if (driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS || !context)
        (void) driver.cuCtxGetCurrent(&context);
    if (!context)
        return false;
    if (measure->context != context)
        events_destroy(measure);
    if (!measure->begin && !make_events_in(measure, context))
        return false;
    return driver.cuEventRecord(measure->begin, stream) == CUDA_SUCCESS;
}

bool events_begin(struct measure *measure, CUstream stream) {
    CUstreamCaptureMode mode = relax();
    bool begun = begin_relaxed(measure, stream);

    restore(mode);
    return begun;
}

bool events_end(struct measure *measure, CUstream stream) {
    CUstreamCaptureMode mode = relax();
    bool ended = driver.cuEventRecord(measure->end, stream) == CUDA_SUCCESS;

    restore(mode);
    return ended;
}

/* Whether events of the context can be queried. The current context of the helper may have been
 * destroyed since; that of a program's thread is not changed. */
static bool make_current(bool helper, CUcontext context) {
    CUcontext current = NULL;

    if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return true;
    if (helper)
        (void) driver.cuCtxSetCurrent(context);
    return helper;
}

/* Takes the result of a measure if there is one. Returns whether the driver has ended. */
static bool read_result(bool helper, struct card *card, int at, uint64_t now) {
    struct measure *measure = &card->meter.measure[at];
    float ms = 0;
    CUresult r;

    if (!make_current(helper, measure->context))
        return false;
    r = driver.cuEventQuery(measure->end);
    if (r == CUDA_ERROR_NOT_READY) {
        /* One measure at a time, or the same time of the card would be charged several times. */
        if (at == meter_first(&card->meter) && driver.cuEventQuery(measure->begin) == CUDA_SUCCESS)
            meter_running(&card->meter, at, now);
        return false;
    }
    if (r == CUDA_SUCCESS)
        r = driver.cuEventElapsedTime(&ms, measure->begin, measure->end);
    if (r == CUDA_SUCCESS && ms >= 0) {
        meter_done(&card->meter, at, (uint64_t) ((double) ms * 1e6), now);
        return false;
    }
    meter_dropped(&card->meter, at);
    return r == CUDA_ERROR_DEINITIALIZED;
}

bool events_done(struct card *card, int at) {
    CUstreamCaptureMode mode = relax();

    (void) read_result(false, card, at, throttle_clock());
    restore(mode);
    return card->meter.measure[at].state == MEASURE_FREE;
}

/* Whether anything is under way on the card. */
static bool collect_card(bool helper, struct card *card, bool *ret_ended) {
    bool under_way;
    uint64_t now;

    lock_take(&card->lock);
    /* Under the lock: another thread may have read later times before it was free. */
    now = throttle_clock();
    for (int at = 0; at < MEASURES_MAX && !*ret_ended; at++) {
        if (card->meter.measure[at].state != MEASURE_CLOSED)
            continue;
        if (!card->meter.measure[at].leaving)
            *ret_ended = read_result(helper, card, at, now);
        else if (at == meter_first(&card->meter))
            /* Its events cannot be queried: a thread that ends the context waits for it. */
            meter_running(&card->meter, at, now);
    }
    under_way = meter_show(&card->meter);
    lock_drop(&card->lock);
    return under_way;
}

static bool collect(struct throttle *throttle, bool helper, bool *ret_ended) {
    bool under_way = false;

    for (uint32_t i = 0; i < throttle->ndevices; i++)
        if (throttle->card[i].used && collect_card(helper, &throttle->card[i], ret_ended))
            under_way = true;
    __atomic_fetch_add(&throttle->progress, 1, __ATOMIC_RELEASE);
    throttle_wake(&throttle->progress, false);
    return under_way;
}

bool events_collect(struct throttle *throttle) {
    CUstreamCaptureMode mode = relax();
    bool ended = false, under_way = collect(throttle, false, &ended);

    restore(mode);
    return under_way;
}

static void publish_running(struct throttle *throttle) {
    for (uint32_t i = 0; i < throttle->ndevices; i++)
        if (throttle->card[i].used && meter_oldest(&throttle->card[i].meter) >= 0)
            __atomic_fetch_add(&throttle->card[i].meter.account.shared->running, 1,
                               __ATOMIC_RELAXED);
}

/* Before any call of the driver, which may block a new thread. */
static void begin_watch(struct throttle *throttle) {
    int at = throttle->accounts ? owner_claim(&throttle->owner, throttle->accounts) : -1;

    for (uint32_t i = 0; at >= 0 && i < throttle->ndevices; i++)
        __atomic_store_n(&throttle->card[i].meter.work, &throttle->accounts->work[at][i],
                         __ATOMIC_RELEASE);
    __atomic_store_n(&throttle->helper, HELPER_RUNS, __ATOMIC_RELEASE);
    throttle_wake(&throttle->helper, false);
}

static void *watch(void *arg) {
    struct throttle *throttle = arg;
    uint64_t pause = POLL_MIN_NS, published = 0;
    bool ended = false;

    begin_watch(throttle);
    (void) relax();
    while (!ended) {
        uint32_t work = __atomic_load_n(&throttle->work, __ATOMIC_ACQUIRE);
        uint64_t now = throttle_clock();

        if (!collect(throttle, true, &ended)) {
            throttle_sleep(&throttle->work, work, UINT64_MAX, false);
            pause = POLL_MIN_NS;
            continue;
        }
        if (now - published > RUNNING_NS) {
            publish_running(throttle);
            published = now;
        }
        throttle_sleep(&throttle->work, work, pause, false);
        pause =
            __atomic_load_n(&throttle->work, __ATOMIC_RELAXED) != work ? POLL_MIN_NS : pause * 2;
        pause = pause < POLL_MAX_NS ? pause : POLL_MAX_NS;
    }
    /* The place is another process's from here on. */
    for (uint32_t i = 0; i < throttle->ndevices; i++)
        __atomic_store_n(&throttle->card[i].meter.work, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&throttle->helper, HELPER_IMPOSSIBLE, __ATOMIC_RELEASE);
    return NULL;
}

typedef int pthread_create_fn(unsigned long *thread, const void *attributes, void *(*start)(void *),
                              void *arg);
typedef int pthread_detach_fn(unsigned long thread);

/* The thread must not run the program's signal handlers. */
static bool start_thread(struct throttle *throttle) {
    pthread_create_fn *create = (pthread_create_fn *) elf_definition_after(NULL, "pthread_create");
    pthread_detach_fn *detach = (pthread_detach_fn *) elf_definition_after(NULL, "pthread_detach");
    uint64_t all = UINT64_MAX, old = 0;
    unsigned long thread;
    bool started;

    if (!create || !detach)
        return false;
    (void) syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, sizeof(all));
    started = create(&thread, NULL, watch, throttle) == 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
    if (started)
        (void) detach(thread);
    return started;
}

void events_start(struct throttle *throttle) {
    uint32_t helper = HELPER_NONE;
    uint64_t until;

    if (__atomic_load_n(&throttle->helper, __ATOMIC_ACQUIRE) == HELPER_RUNS)
        return;
    if (__atomic_compare_exchange_n(&throttle->helper, &helper, HELPER_STARTS, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        !start_thread(throttle))
        __atomic_store_n(&throttle->helper, HELPER_IMPOSSIBLE, __ATOMIC_RELEASE);
    if (__atomic_load_n(&throttle->helper, __ATOMIC_ACQUIRE) != HELPER_STARTS)
        return;
    until = throttle_clock() + START_MAX_NS;
    while (__atomic_load_n(&throttle->helper, __ATOMIC_ACQUIRE) == HELPER_STARTS &&
           throttle_clock() < until)
        throttle_sleep(&throttle->helper, HELPER_STARTS, START_MAX_NS, false);
}

void events_watch(struct throttle *throttle) {
    __atomic_fetch_add(&throttle->work, 1, __ATOMIC_RELEASE);
    throttle_wake(&throttle->work, false);
}
