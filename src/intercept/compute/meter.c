/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/meter.h"

/* A batch is measured each time this much of the card's time has been charged: 100 pairs of events
 * in a second of work. */
#define PERIOD_NS 10000000u

/* A batch ends when this much is charged for it, or when it has been open for this long. */
#define BATCH_NS 1000000u
#define BATCH_OPEN_MAX_NS 5000000u

/* The fewest launches of a full batch, so that a launch at its edge does not distort the result. */
#define BATCH_MIN 4u

/* Launches of at least this cost are measured one by one. */
#define ALONE_NS 300000u

/* How long a result may be overdue before launches no longer wait for it: the work may itself wait
 * for a later launch. */
#define RESULT_GRACE_NS 100000000u

/* Timeout for the first measurement of a kind of launch, whatever its estimate. */
#define UNKNOWN_GRACE_NS 2000000000u

static void publish(struct meter *meter) {
    uint64_t launches = meter->launches;

    __atomic_fetch_add(&meter->account.shared->launches, launches - meter->published,
                       __ATOMIC_RELAXED);
    meter->published = launches;
}

static int oldest_closed(const struct meter *meter, bool stalled_too) {
    int oldest = -1;

    for (int i = 0; i < MEASURES_MAX; i++) {
        const struct measure *m = &meter->measure[i];

        if (m->state == MEASURE_CLOSED && (stalled_too || !m->stalled) &&
            (oldest < 0 || (int64_t) (m->mark - meter->measure[oldest].mark) < 0))
            oldest = i;
    }
    return oldest;
}

int meter_oldest(const struct meter *meter) {
    return oldest_closed(meter, false);
}

int meter_first(const struct meter *meter) {
    return oldest_closed(meter, true);
}

/* Whether there is work on the card, or about to be, that ends with one of our events. */
static bool unsettled(const struct meter *meter) {
    return meter_first(meter) >= 0 || (meter->open && meter->measure[meter->open - 1].alone);
}

/* What of the charge for such work has not run yet. */
static uint64_t charged_not_run(const struct meter *meter) {
    int first = meter_first(meter);
    const struct measure *m;
    uint64_t charged;

    if (first < 0)
        return 0;
    m = &meter->measure[first];
    charged = meter->charged - m->mark + meter->paid;
    return charged > m->ran ? charged - m->ran : 0;
}

bool meter_show(struct meter *meter) {
    struct compute_work *work = __atomic_load_n(&meter->work, __ATOMIC_ACQUIRE);
    bool any = unsettled(meter);
    uint64_t us = charged_not_run(meter) / 1000, added;

    if (!work)
        return any;
    if (any && ++meter->moves == 0)
        meter->moves = 1;
    __atomic_store_n(&work->ahead, us < UINT32_MAX ? (uint32_t) us : UINT32_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&work->moves, any ? meter->moves : 0, __ATOMIC_RELEASE);
    if (__atomic_load_n(&work->added, __ATOMIC_RELAXED)) {
        added = __atomic_exchange_n(&work->added, 0, __ATOMIC_RELAXED);
        account_correct(&meter->account, -(int64_t) added);
    }
    return any;
}

/* The work of this process that is on the card before this launch, at most, ns. */
static uint64_t queued_before(const struct meter *meter, const struct launch *launch) {
    int oldest = meter_oldest(meter);
    uint64_t since;

    if (oldest < 0)
        return 0;
    since = meter->charged - meter->measure[oldest].mark;
    return since > launch->ns ? since - launch->ns : 0;
}

/* The estimate may have changed since the launch was charged. */
static void update_charge(struct meter *meter, struct launch *launch) {
    uint64_t ns = cost_ns(launch->cost);

    if (ns == launch->ns)
        return;
    __atomic_fetch_add(&meter->account.shared->charged, ns - launch->ns, __ATOMIC_RELAXED);
    meter->charged += ns - launch->ns;
    launch->ns = ns;
}

/* The charge of a launch that waits is held (`ns`); 0: the launch goes to the card now. */
static void set_held(struct meter *meter, struct launch *launch, uint64_t ns) {
    struct compute_work *work = __atomic_load_n(&meter->work, __ATOMIC_ACQUIRE);

    if (launch->held == ns)
        return;
    __atomic_fetch_add(&meter->account.shared->held, ns - launch->held, __ATOMIC_RELAXED);
    if (work)
        __atomic_fetch_add(&work->held, ns - launch->held, __ATOMIC_RELAXED);
    launch->held = ns;
}

void meter_refused(struct meter *meter, struct launch *launch) {
    int at = (int) meter->open - 1;

    set_held(meter, launch, 0);
    __atomic_fetch_sub(&meter->account.shared->charged, launch->ns, __ATOMIC_RELAXED);
    if (at >= 0 && meter->measure[at].batch.n == 0)
        meter_dropped(meter, at);
}

/* The part of the launch's place that was charged for kernels of this process that still run. */
static uint64_t charged_for_running(const struct meter *meter, const struct launch *launch) {
    return launch->ahead < meter->paid ? launch->ahead : meter->paid;
}

static enum meter_verdict decide(struct meter *meter, struct launch *launch, uint64_t now_ns,
                                 uint64_t *ret_wait_ns, bool *ret_ring) {
    struct account_terms terms = account_terms(&meter->account, meter->own_rate, now_ns);
    const struct grant_device *grant = meter->account.grant;
    uint64_t neighbours = grant ? grant->neighbours : 0, before;

    *ret_ring = false;
    *ret_wait_ns =
        account_wait(&meter->account, &terms, launch->place - charged_for_running(meter, launch),
                     now_ns, ret_ring);
    if (*ret_wait_ns)
        return METER_WAIT_TIME;
    before = queued_before(meter, launch);
    if (launch->cost->samples == 0 && launch->cost->measuring) {
        *ret_wait_ns = UNKNOWN_GRACE_NS;
        return METER_WAIT_RESULT;
    }
    if (terms.window && before > terms.window) {
        /* More is queued than the window admits, which is demand, too. */
        __atomic_fetch_add(&meter->account.shared->waits, 1, __ATOMIC_RELAXED);
        *ret_wait_ns = before * ((neighbours < 64 ? neighbours : 64) + 1) + RESULT_GRACE_NS;
        return METER_WAIT_RESULT;
    }
    return METER_GO;
}

enum meter_verdict meter_enter(struct meter *meter, struct launch *launch, uint64_t now_ns,
                               uint64_t *ret_wait_ns, bool *ret_ring) {
    enum meter_verdict verdict = decide(meter, launch, now_ns, ret_wait_ns, ret_ring);

    publish(meter);
    set_held(meter, launch, verdict == METER_GO ? 0 : launch->ns);
    if (verdict == METER_GO)
        update_charge(meter, launch);
    return verdict;
}

/* A batch that has run for this long without an end costs at least as much. */
static void raise_unmeasured(struct meter *meter, const struct measure *m, uint64_t now_ns) {
    const struct grant_device *grant = meter->account.grant;
    uint64_t turns = 1 + (grant ? (uint64_t) grant->neighbours : 0);
    uint64_t ns = (now_ns - m->opened_ns) / turns;

    for (uint32_t i = 0; i < m->batch.n; i++)
        if (m->batch.cost[i]->samples == 0 && cost_ns(m->batch.cost[i]) < ns)
            __atomic_store_n(&m->batch.cost[i]->ns, ns, __ATOMIC_RELAXED);
}

void meter_force(struct meter *meter, struct launch *launch, uint64_t now_ns) {
    int oldest = meter_oldest(meter);

    if (oldest >= 0) {
        raise_unmeasured(meter, &meter->measure[oldest], now_ns);
        meter->measure[oldest].stalled = true;
    }
    set_held(meter, launch, 0);
    update_charge(meter, launch);
}

int meter_opens(struct meter *meter, const struct launch *launch, bool one_by_one) {
    bool unknown = launch->cost->samples < COST_SAMPLES;

    if (meter->open || (!unknown && meter->charged < meter->due))
        return -1;
    /* The elapsed time of a single short launch is mostly that of the events. */
    if (one_by_one && !unknown && launch->ns < ALONE_NS)
        return -1;
    for (int i = 0; i < MEASURES_MAX; i++)
        if (meter->measure[i].state == MEASURE_FREE)
            return i;
    return -1;
}

/* What other containers have taken by now: the arbiter's figure, extrapolated at its last rate. */
static uint64_t taken_by_others(const struct meter *meter, uint64_t now_ns) {
    const struct grant_device *grant = meter->account.grant;
    uint64_t since;

    if (!grant)
        return 0;
    since = now_ns - __atomic_load_n(&grant->others_at, __ATOMIC_RELAXED);
    /* The figure of an arbiter at work is never older than this. */
    if (since > ARBITER_BEAT_NS)
        since = 0;
    return __atomic_load_n(&grant->others, __ATOMIC_RELAXED) +
           since * __atomic_load_n(&grant->others_rate, __ATOMIC_RELAXED) / RATE_WHOLE;
}

static uint32_t neighbours(const struct meter *meter) {
    const struct grant_device *grant = meter->account.grant;

    return grant ? __atomic_load_n(&grant->neighbours, __ATOMIC_RELAXED) : 0;
}

void meter_opened(struct meter *meter, int at, const struct launch *launch, uint64_t now_ns) {
    struct measure *m = &meter->measure[at];

    m->state = MEASURE_OPEN;
    m->stalled = false;
    /* Where streams alternate, the work between two events of one stream is that of all streams:
     * such launches are measured in batches. */
    m->alone = launch->cost->samples == 0 ||
               (meter->turns == meter->turns_seen &&
                (launch->cost->samples < COST_SAMPLES || launch->ns >= ALONE_NS));
    meter->turns_seen = meter->turns;
    /* Different steps in each process. */
    meter->random += now_ns;
    m->stream = launch->stream;
    m->mark = meter->charged - launch->ns;
    m->others = taken_by_others(meter, now_ns);
    m->neighbours = neighbours(meter);
    m->opened_ns = m->last_ns = now_ns;
    m->begun_ns = m->ran = m->paid = 0;
    m->batch.charged = 0;
    m->batch.n = 0;
    m->batch.mixed = false;
    meter->open = (uint32_t) at + 1;
    /* Until it is closed every launch takes the slow path. */
    meter->due = 0;
    (void) meter_show(meter);
}

static bool full(const struct measure *m) {
    return m->alone || m->batch.n == BATCH_MAX ||
           (m->batch.charged >= BATCH_NS && m->batch.n >= BATCH_MIN) ||
           m->last_ns - m->opened_ns >= BATCH_OPEN_MAX_NS;
}

int meter_launched(struct meter *meter, const struct launch *launch, uint64_t now_ns) {
    int at = (int) meter->open - 1;
    struct measure *m;

    if (at < 0)
        return -1;
    m = &meter->measure[at];
    /* A kind that is not known yet is measured by itself. */
    if (m->batch.n && !m->alone && launch->cost->samples < COST_SAMPLES)
        m->batch.mixed = true;
    batch_add(&m->batch, launch->cost, launch->ns);
    m->last_ns = now_ns;
    if (m->stream == launch->stream)
        return full(m) ? at : -1;
    m->batch.mixed = true;
    if (now_ns - m->opened_ns >= BATCH_OPEN_MAX_NS + m->batch.charged * 2)
        meter_dropped(meter, at);
    return -1;
}

int meter_ends(struct meter *meter, uint64_t stream) {
    int at = (int) meter->open - 1;

    return at >= 0 && meter->measure[at].stream == stream && meter->measure[at].batch.n ? at : -1;
}

/* In steps of random length: of a program that repeats itself not the same launch must be measured
 * each time. */
static void schedule_next(struct meter *meter) {
    meter->open = 0;
    meter->random = meter->random * 6364136223846793005u + 1442695040888963407u;
    meter->due = meter->charged + PERIOD_NS / 2 + (meter->random >> 33) % PERIOD_NS;
}

void meter_closed(struct meter *meter, int at) {
    struct measure *m = &meter->measure[at];

    m->state = MEASURE_CLOSED;
    for (uint32_t i = 0; i < m->batch.n; i++)
        __atomic_fetch_add(&m->batch.cost[i]->measuring, 1, __ATOMIC_RELAXED);
    schedule_next(meter);
    (void) meter_show(meter);
}

static void release_measure(struct meter *meter, struct measure *m) {
    __atomic_store_n(&meter->paid, meter->paid - m->paid, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < m->batch.n; i++)
        __atomic_fetch_sub(&m->batch.cost[i]->measuring, 1, __ATOMIC_RELAXED);
    m->state = MEASURE_FREE;
}

void meter_dropped(struct meter *meter, int at) {
    if ((int) meter->open - 1 == at)
        schedule_next(meter);
    if (meter->measure[at].state == MEASURE_CLOSED)
        release_measure(meter, &meter->measure[at]);
    meter->measure[at].state = MEASURE_FREE;
    (void) meter_show(meter);
}

/* The value at `x` on the line between two points, within them. */
static uint64_t interpolate(uint64_t x0, uint64_t y0, uint64_t x1, uint64_t y1, uint64_t x) {
    if (x <= x0 || x1 <= x0 || y1 <= y0)
        return y0;
    return x >= x1 ? y1
                   : y0 + (uint64_t) ((double) (y1 - y0) * (double) (x - x0) / (double) (x1 - x0));
}

/* The time that other containers took while the batch ran. The batch may have waited since its
 * launch, mostly for the batch before it, whose end is known. */
static uint64_t others_during(struct meter *meter, const struct measure *m, uint64_t elapsed,
                              uint64_t now) {
    uint64_t taken = taken_by_others(meter, now), begin = elapsed < now ? now - elapsed : 0, before;

    if (meter->done_ns <= m->opened_ns)
        before = interpolate(m->opened_ns, m->others, now, taken, begin);
    else if (begin >= meter->done_ns)
        before = interpolate(meter->done_ns, meter->done_others, now, taken, begin);
    else
        before = interpolate(m->opened_ns, m->others, meter->done_ns, meter->done_others, begin);
    meter->done_ns = now;
    meter->done_others = taken;
    return taken > before ? taken - before : 0;
}

void meter_running(struct meter *meter, int at, uint64_t now_ns) {
    struct measure *m = &meter->measure[at];
    uint64_t taken = taken_by_others(meter, now_ns), elapsed, least, own;
    uint32_t now = neighbours(meter);

    if (!m->begun_ns) {
        m->begun_ns = now_ns;
        m->begun_others = taken;
        return;
    }
    elapsed = now_ns > m->begun_ns ? now_ns - m->begun_ns : 0;
    least = elapsed / (1ull + (now > m->neighbours ? now : m->neighbours));
    own = taken - m->begun_others < elapsed ? elapsed - (taken - m->begun_others) : 0;
    own = own > least ? own : least;
    m->ran = own;
    if (own <= m->batch.charged + m->paid)
        return;
    own -= m->batch.charged + m->paid;
    m->paid += own;
    __atomic_store_n(&meter->paid, meter->paid + own, __ATOMIC_RELAXED);
    (void) account_charge(&meter->account, own);
}

static void note_longest(struct meter *meter, const struct measure *m, uint64_t ns) {
    uint64_t *longest = &meter->account.shared->longest;
    uint64_t old = __atomic_load_n(longest, __ATOMIC_RELAXED);

    if (m->batch.n)
        ns /= m->batch.n;
    if (ns > old)
        __atomic_store_n(longest, ns, __ATOMIC_RELAXED);
    else
        __atomic_store_n(longest, old - (old - ns) / 16, __ATOMIC_RELAXED);
}

void meter_done(struct meter *meter, int at, uint64_t elapsed_ns, uint64_t now_ns) {
    struct measure *m = &meter->measure[at];
    uint32_t now = neighbours(meter);
    struct sample sample = {
        .elapsed = elapsed_ns,
        .others = others_during(meter, m, elapsed_ns, now_ns),
        .neighbours = now > m->neighbours ? now : m->neighbours,
        .launching = m->last_ns - m->opened_ns,
    };
    int64_t wrong = cost_learn(&m->batch, &sample);

    account_correct(&meter->account, wrong - (int64_t) m->paid);
    note_longest(meter, m, (uint64_t) ((int64_t) m->batch.charged + wrong));
    release_measure(meter, m);
    (void) meter_show(meter);
}
