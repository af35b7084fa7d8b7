/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/throttle.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/compute/throttle_state.h"
#include "intercept/resolve/driver.h"
#include "intercept/session/fork.h"
#include "intercept/session/session.h"

struct throttle_view throttle_view;
static struct throttle *throttle_memory;

/* -- begin ---------------------------------------------------------------------------------------
 */

static struct throttle *memory(void) {
    struct throttle *throttle = __atomic_load_n(&throttle_memory, __ATOMIC_ACQUIRE), *other = NULL;

    if (throttle)
        return throttle;
    throttle = map_zeroed_on_fork(sizeof(*throttle));
    if (!throttle)
        return NULL;
    if (__atomic_compare_exchange_n(&throttle_memory, &other, throttle, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return throttle;
    (void) munmap(throttle, sizeof(*throttle));
    return other;
}

static uint32_t own_rate(const struct share *share, uint32_t device) {
    uint32_t percent = limits_core(share->limits, device);

    return percent && percent < 100 ? percent * (RATE_WHOLE / 100) : 0;
}

/* The accounts of the share; without the files each process has accounts of its own. */
static bool find_accounts(struct throttle *throttle) {
    const struct grants_file *grants = NULL;
    struct compute_file *compute = NULL;
    char path[4096];

    if (share_path("grants", path, sizeof(path)))
        (void) grants_map(path, &grants);
    if (share_path("compute", path, sizeof(path)))
        (void) compute_map(path, &compute);
    for (uint32_t i = 0; i < throttle->ndevices; i++) {
        struct account *account = &throttle->card[i].meter.account;

        account->shared = compute ? &compute->device[i] : &throttle->own[i];
        account->bell = compute ? &compute->bell : NULL;
        /* A grant needs an account from which the arbiter reads what was taken. */
        account->grants = compute ? grants : NULL;
        account->grant = compute && grants ? &grants->device[i] : NULL;
        throttle->card[i].meter.costs = &throttle->costs;
    }
    throttle->accounts = compute && grants && compute_has_processes(compute) ? compute : NULL;
    return compute && grants;
}

static int only_card(struct share *share) {
    int n = 0;

    if (driver.cuDeviceGetCount(&n) != CUDA_SUCCESS || n != 1)
        return -1;
    return share_device(share, 0);
}

static bool any_limit(const struct share *share) {
    for (uint32_t i = 0; i < share->ndevices; i++)
        if (own_rate(share, i))
            return true;
    return false;
}

/* Decides whether launches are metered at all. */
static void begin_locked(struct throttle *throttle) {
    struct share *share = share_view();
    bool usable = share && share->limits && !share->broken;
    uint64_t seen = usable ? __atomic_load_n(&share->limits->index, __ATOMIC_ACQUIRE) : 0;

    throttle_view.open = false;
    if (!usable) {
        throttle->none = true;
    } else if (!throttle->ndevices) {
        throttle->ndevices = share->ndevices;
        throttle->only = only_card(share);
        throttle->none = !find_accounts(throttle);
    }
    /* Without an arbiter a limit may come later. */
    if (!throttle->none || (usable && any_limit(share)))
        __atomic_store_n(&throttle->ready, 1, __ATOMIC_RELEASE);
    else {
        throttle_view.index = usable ? &share->limits->index : NULL;
        throttle_view.seen = seen;
        __atomic_store_n(&throttle_view.open, true, __ATOMIC_RELEASE);
    }
}

/* NULL: launches are not metered. */
static struct throttle *begin(void) {
    struct throttle *throttle = memory();

    if (!throttle) {
        throttle_view = (struct throttle_view){.open = true};
        return NULL;
    }
    if (__atomic_load_n(&throttle->ready, __ATOMIC_ACQUIRE))
        return throttle;
    lock_take(&throttle->begin_lock);
    if (!throttle->ready)
        begin_locked(throttle);
    lock_drop(&throttle->begin_lock);
    return throttle->ready ? throttle : NULL;
}

static struct throttle *running_throttle(void) {
    struct throttle *throttle = __atomic_load_n(&throttle_memory, __ATOMIC_ACQUIRE);

    return throttle && __atomic_load_n(&throttle->ready, __ATOMIC_ACQUIRE) ? throttle : NULL;
}

/* -- captures ------------------------------------------------------------------------------------
 */

static bool captures(const struct throttle *throttle) {
    return __atomic_load_n(&throttle->captures, __ATOMIC_ACQUIRE) != 0;
}

static void count_capture(struct throttle *throttle, bool begins) {
    uint32_t n = __atomic_load_n(&throttle->captures, __ATOMIC_RELAXED);

    while ((begins || n) &&
           !__atomic_compare_exchange_n(&throttle->captures, &n, begins ? n + 1 : n - 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

/* While another stream is captured, the driver refuses queries of the default stream, which cannot
 * be used then. */
static bool captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = driver.cuStreamIsCapturing(stream, &status);

    return r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* -- a launch ------------------------------------------------------------------------------------
 */

static CUstream named(CUstream stream, bool per_thread) {
    if (stream)
        return stream;
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* The same for the same queue of work: the thread's own stream is another in each thread. */
static uint64_t queue_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? (uint64_t) (uintptr_t) __builtin_thread_pointer()
                                          : (uint64_t) (uintptr_t) stream;
}

static struct card *card_of(struct throttle *throttle) {
    int at = throttle->only;

    if (at < 0) {
        CUdevice device;

        if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
            return NULL;
        at = share_device(share_memory, device);
    }
    return at >= 0 && (uint32_t) at < throttle->ndevices ? &throttle->card[at] : NULL;
}

/* Ends an open measure before its thread waits, so that its result does not wait for the thread. */
static void end_open(struct throttle *throttle, struct card *card, uint64_t queue,
                     CUstream stream) {
    int at = meter_ends(&card->meter, queue);

    if (at < 0)
        return;
    if ((captures(throttle) && captured(stream)) || !events_end(&card->meter.measure[at], stream)) {
        meter_dropped(&card->meter, at);
        return;
    }
    meter_closed(&card->meter, at);
    events_watch(throttle);
}

static void wait_for_result(struct throttle *throttle, uint32_t seen, uint64_t ns) {
    if (__atomic_load_n(&throttle->helper, __ATOMIC_ACQUIRE) == HELPER_RUNS) {
        throttle_sleep(&throttle->progress, seen, ns, false);
        return;
    }
    /* There is no thread, so this one reads the events. */
    throttle_sleep(&throttle->progress, seen, ns < 1000000 ? ns : 1000000, false);
    (void) events_collect(throttle);
}

/* Waits until the launch may go. The card's lock is held, but not while it sleeps. */
static void wait_turn(struct throttle *throttle, struct card *card, struct passage *p) {
    struct meter *meter = &card->meter;
    uint64_t began = throttle_clock(), now = began, result_by = 0;

    for (;;) {
        const struct grant_device *grant = meter->account.grant;
        uint32_t generation = grant ? __atomic_load_n(&grant->generation, __ATOMIC_ACQUIRE) : 0;
        uint32_t progress = __atomic_load_n(&throttle->progress, __ATOMIC_ACQUIRE);
        enum meter_verdict verdict;
        uint64_t ns = 0;
        bool ring = false;

        verdict = meter_enter(meter, &p->launch, now, &ns, &ring);
        if (verdict == METER_WAIT_RESULT && !result_by)
            result_by = now + ns;
        if (verdict == METER_WAIT_RESULT && now >= result_by) {
            meter_force(meter, &p->launch, now);
            break;
        }
        if (verdict == METER_GO)
            break;
        end_open(throttle, card, p->launch.stream, p->stream);
        lock_drop(&card->lock);
        if (ring)
            throttle_wake(meter->account.bell, true);
        if (verdict == METER_WAIT_RESULT)
            wait_for_result(throttle, progress, result_by - now);
        else if (grant)
            throttle_sleep(&grant->generation, generation, ns, true);
        else
            throttle_sleep(&throttle->progress, progress, ns, false);
        lock_take(&card->lock);
        now = throttle_clock();
    }
    if (now != began)
        __atomic_fetch_add(&meter->account.shared->waited, now - began, __ATOMIC_RELAXED);
}

static void open_measure(struct card *card, int at, const struct passage *p, bool capturing) {
    struct measure *measure = &card->meter.measure[at];

    meter_opened(&card->meter, at, &p->launch, throttle_clock());
    measure->alone |= capturing;
    measure->handle = p->stream;
}

static void enter_slowly(struct throttle *throttle, struct card *card, struct passage *p) {
    struct share *share = share_view();
    int saved = errno, at;
    bool capturing;

    if (share && share->limits)
        card->meter.own_rate = own_rate(share, (uint32_t) (card - throttle->card));
    events_start(throttle);
    lock_take(&card->lock);
    card->used = true;
    wait_turn(throttle, card, p);
    capturing = captures(throttle);
    at = meter_opens(&card->meter, &p->launch, capturing);
    if (at >= 0 && events_begin(&card->meter.measure[at], p->stream))
        open_measure(card, at, p, capturing);
    p->slow = card->meter.open != 0;
    lock_drop(&card->lock);
    errno = saved;
}

void throttle_enter_metered(struct passage *passage, uint64_t key, CUstream stream,
                            bool per_thread) {
    struct throttle *throttle = running_throttle();
    struct card *card;

    if (__builtin_expect(!throttle, 0)) {
        throttle = begin();
        if (!throttle)
            return;
    }
    passage->stream = named(stream, per_thread);
    if (__builtin_expect(captures(throttle), 0) && captured(passage->stream))
        return;
    card = card_of(throttle);
    if (!card)
        return;
    passage->card = card;
    passage->slow = false;
    passage->launch.stream = queue_of(passage->stream);
    if (__builtin_expect(
            !meter_charge(&card->meter, cost_find(&throttle->costs, key), &passage->launch), 0))
        enter_slowly(throttle, card, passage);
}

CUresult throttle_leave_slowly(struct passage *passage, CUresult result) {
    struct throttle *throttle = running_throttle();
    struct card *card = passage->card;
    int saved = errno, at;

    if (!throttle)
        return result;
    lock_take(&card->lock);
    if (result != CUDA_SUCCESS) {
        meter_refused(&card->meter, &passage->launch);
    } else {
        at = meter_launched(&card->meter, &passage->launch, throttle_clock());
        if (at >= 0)
            end_open(throttle, card, passage->launch.stream, passage->stream);
    }
    lock_drop(&card->lock);
    errno = saved;
    return result;
}

/* -- contexts, captures and waits
 * ---------------------------------------------------------------------------
 */

void throttle_graph_changed(CUgraphExec exec) {
    struct throttle *throttle = running_throttle();

    if (throttle)
        cost_doubt(cost_find(&throttle->costs, cost_key((uint64_t) (uintptr_t) exec, 0, 0)));
}

/* Settles one measure of a context that may end: its result is taken if it is done, otherwise it
 * leaves with the context. */
static void leave_with_context(struct throttle *throttle, struct card *card, int at) {
    struct measure *measure = &card->meter.measure[at];

    if (measure->state == MEASURE_OPEN && queue_of(measure->handle) == measure->stream)
        end_open(throttle, card, measure->stream, measure->handle);
    if (measure->state == MEASURE_OPEN)
        meter_dropped(&card->meter, at);
    if (measure->state == MEASURE_CLOSED && !events_done(card, at))
        measure->leaving = true;
    else
        events_destroy(measure);
}

static void measures_leave(struct throttle *throttle, struct card *card, CUcontext context) {
    CUcontext popped;
    bool pushed = false;

    for (int at = 0; at < MEASURES_MAX; at++) {
        if (card->meter.measure[at].context != context)
            continue;
        pushed = pushed || driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
        leave_with_context(throttle, card, at);
    }
    if (pushed)
        (void) driver.cuCtxPopCurrent_v2(&popped);
}

/* Of the measures that leave with the context, the one that was opened first; or -1. */
static int first_leaving(const struct meter *meter, CUcontext context) {
    int first = -1;

    for (int at = 0; at < MEASURES_MAX; at++) {
        const struct measure *m = &meter->measure[at];

        if (m->leaving && m->context == context &&
            (first < 0 || (int64_t) (m->mark - meter->measure[first].mark) < 0))
            first = at;
    }
    return first;
}

/* The work of the context is over, and so are its measures: they are charged the time since the
 * first of them began. */
static void measures_left(struct card *card, CUcontext context, bool ended) {
    struct meter *meter = &card->meter;
    uint64_t now = throttle_clock(), since;
    int first = first_leaving(meter, context);

    for (int at = 0; at < MEASURES_MAX; at++) {
        struct measure *m = &meter->measure[at];

        if (!m->leaving || m->context != context)
            continue;
        m->leaving = false;
        if (!ended)
            continue;
        since = m->opened_ns > meter->done_ns ? m->opened_ns : meter->done_ns;
        if (at == first)
            meter_done(meter, at, now - (m->begun_ns ? m->begun_ns : since), now);
        else
            meter_dropped(meter, at);
        events_lost(m);
    }
}

enum context_end { CONTEXT_ENDS, CONTEXT_ENDED, CONTEXT_STAYS };

static void on_context_end(uint64_t handle, enum context_end end) {
    struct throttle *throttle = running_throttle();
    CUcontext context = (CUcontext) (uintptr_t) handle;
    int saved = errno;

    for (uint32_t i = 0; throttle && context && i < throttle->ndevices; i++) {
        struct card *card = &throttle->card[i];

        if (!card->used)
            continue;
        lock_take(&card->lock);
        if (end == CONTEXT_ENDS)
            measures_leave(throttle, card, context);
        else
            measures_left(card, context, end == CONTEXT_ENDED);
        lock_drop(&card->lock);
    }
    errno = saved;
}

void throttle_context_ends(uint64_t context) {
    on_context_end(context, CONTEXT_ENDS);
}

void throttle_context_ended(uint64_t context, bool ended) {
    on_context_end(context, ended ? CONTEXT_ENDED : CONTEXT_STAYS);
}

/* Ends the open measure of the stream, or (NULL) of any. Measures of a stream end before it is
 * destroyed, so the stream of an open measure exists. */
static void end_measures(CUstream stream) {
    struct throttle *throttle = running_throttle();

    for (uint32_t i = 0; throttle && i < throttle->ndevices; i++) {
        struct card *card = &throttle->card[i];
        uint32_t open;
        CUstream name;

        if (!card->used || !__atomic_load_n(&card->meter.open, __ATOMIC_RELAXED))
            continue;
        lock_take(&card->lock);
        open = card->meter.open;
        name = stream || !open ? stream : card->meter.measure[open - 1].handle;
        if (name)
            end_open(throttle, card, queue_of(name), name);
        lock_drop(&card->lock);
    }
}

/* Before a capture begins no measure stays open: a stream may join the capture at any moment. One
 * that cannot be ended here, on the own stream of another thread, is dropped. */
static void leave_nothing_open(struct throttle *throttle) {
    end_measures(NULL);
    for (uint32_t i = 0; i < throttle->ndevices; i++) {
        struct card *card = &throttle->card[i];

        if (!card->used)
            continue;
        lock_take(&card->lock);
        if (card->meter.open)
            meter_dropped(&card->meter, (int) card->meter.open - 1);
        lock_drop(&card->lock);
    }
}

void throttle_capture(bool begins) {
    struct throttle *throttle = running_throttle() ? running_throttle() : begin();
    int saved = errno;

    if (!throttle)
        return;
    count_capture(throttle, begins);
    if (begins)
        leave_nothing_open(throttle);
    errno = saved;
}

void throttle_about_to_wait(CUstream stream, bool per_thread) {
    int saved = errno;

    end_measures(named(stream, per_thread));
    errno = saved;
}

void throttle_stream_ends(CUstream stream) {
    struct throttle *throttle = running_throttle();
    int saved = errno;

    if (throttle && captures(throttle) && captured(stream))
        throttle_capture(false);
    end_measures(stream);
    errno = saved;
}

void throttle_about_to_wait_all(void) {
    int saved = errno;

    end_measures(NULL);
    errno = saved;
}

void throttle_waited(void) {
    struct throttle *throttle = running_throttle();
    int saved = errno;
    bool any = false;

    for (uint32_t i = 0; throttle && i < throttle->ndevices; i++)
        any |= throttle->card[i].used && meter_oldest(&throttle->card[i].meter) >= 0;
    if (any)
        (void) events_collect(throttle);
    errno = saved;
}
