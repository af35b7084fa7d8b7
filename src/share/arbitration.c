/* SPDX-License-Identifier: Apache-2.0 */
#include "share/arbitration.h"

#include <assert.h>

#define MS 1000000ull

/* The period of steps while a container wants the card, and while none does. */
#define STEP_NS (10 * MS)
#define IDLE_STEP_NS (50 * MS)

/* A container without a sign of demand for this long has none. Longer than COMPUTE_WAIT_NS, the
 * period in which processes that wait or compute show it. */
#define ACTIVE_NS (60 * MS)

/* A container that begins to want the card has its whole share reserved for this long; then its use
 * decides. */
#define RISE_NS (200 * MS)

/* How much unused time an account keeps: enough for a thread that is woken late, too little to
 * disturb the neighbours. A long kernel of a neighbour occupies the card for its length and more,
 * hence the longest is added. */
#define DEPTH_NS (20 * MS)
#define DEPTH_MAX_NS (1000 * MS)

/* Work that is queued when lent time is claimed back still runs, in turns with that of the owner:
 * twice this and a measuring period must be less than 100 ms. */
#define WINDOW_NS (25 * MS)

/* Work beyond this is covered by the account of the borrower. */
#define OWES_MAX_NS (50 * MS)

/* `taken` follows with this time constant. */
#define TAKEN_NS (100 * MS)

/* The driver time over which one sample compares the driver's figures with the account. */
#define TRIM_NS (2000 * MS)
#define TRIM_LAUNCHES 20u
/* Bounds the length of launches that a tenant claims. */
#define TRIM_LONGEST_NS (1000 * MS)
#define TRIM_ONE 1024u
#define TRIM_MIN (TRIM_ONE / 2)
/* A larger factor would take its holder too long to come back from: the next sample comes at the
 * rate that this one has cut. */
#define TRIM_MAX (TRIM_ONE * 4)
/* Of one sample. */
#define UNPAID_MAX_NS (60000 * MS)
#define DRIVER_MAX_NS (600000 * MS)

/* The order in which those without a share of their own are served. */
enum turn { TURN_ONLINE, TURN_LEFT, TURN_OFFLINE, TURNS };

/* The properties of a policy. */
static const struct policy {
    bool capped;    /* never more than the guarantee */
    bool share;     /* the share is guaranteed */
    bool weighted;  /* a part by weight of what the shares leave is guaranteed */
    bool presence;  /* that part is divided among all such containers, not those with demand */
    enum turn turn; /* when it is served from what others leave */
} policies[SHARE_POLICIES] = {
    [SHARE_FIXED] = {.capped = true, .share = true},
    [SHARE_BURST] = {.share = true, .turn = TURN_LEFT},
    [SHARE_WEIGHTED] = {.capped = true, .weighted = true, .presence = true},
    [SHARE_WEAK] = {.weighted = true, .turn = TURN_LEFT},
    [SHARE_ONLINE] = {.share = true, .turn = TURN_ONLINE},
    [SHARE_BEST_EFFORT] = {.turn = TURN_LEFT},
    [SHARE_OFFLINE] = {.turn = TURN_OFFLINE},
};

static const struct policy *policy_of(const struct arbitration_tenant *t) {
    if (t->policy > SHARE_DEFAULT && (unsigned int) t->policy < SHARE_POLICIES)
        return &policies[t->policy];
    return &policies[t->share_percent ? SHARE_FIXED : SHARE_BEST_EFFORT];
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint32_t percent(uint32_t value) {
    return (uint32_t) min_u64(value, 100) * (RATE_WHOLE / 100);
}

static uint32_t weight_of(const struct arbitration_tenant *t) {
    uint32_t weight = t->weight ? t->weight : t->share_percent;

    return weight ? (uint32_t) min_u64(weight, UINT16_MAX) : 1;
}

/* Reads the account, and since when the container wants the card. */
static void observe(struct arbitration_tenant *t, uint64_t now, uint64_t dt) {
    const struct compute_usage *u = &t->usage;
    /* Work sent to the card: launches that wait have been charged already. */
    uint64_t sent = u->charged - u->held;
    /* A counter that jumps by more than the longest kernels explain is wrong. */
    uint64_t delta = min_u64(sent - t->state.sent, dt + 10000 * MS);
    bool waits = u->waits != t->state.waits;
    bool was_active = t->active;

    /* Corrections take a little back now and then; that is no jump. */
    if ((int64_t) (sent - t->state.sent) < 0)
        delta = 0;
    if (!t->state.known) {
        delta = 0;
        t->state.known = true;
        t->state.trim = TRIM_ONE;
        t->state.driver_ns = t->driver_ns;
        t->state.trim_charged = u->charged;
    } else if (waits || delta || u->running != t->state.running) {
        t->state.active_ns = now;
        t->active = true;
    }
    if (waits)
        t->state.waits_ns = now;
    if (t->active && now - t->state.active_ns > ACTIVE_NS)
        t->active = false;
    if (t->active && !was_active)
        t->state.rise_ns = now;
    t->state.seen_ns = now;
    t->state.sent = sent;
    t->state.waits = u->waits;
    t->state.running = u->running;
    t->state.pending = min_u64(t->state.pending + delta, DEPTH_MAX_NS * 10);
}

/* A fluid model of the card: the containers with work on it get equal parts of the time that
 * passes. This is the time that each has taken, where the charge is due at the launch. */
static void run_card(struct arbitration_tenant *tenants, size_t n, uint64_t dt) {
    uint64_t left = dt;

    for (size_t i = 0; i < n; i++)
        tenants[i].state.ran = 0;
    for (size_t round = 0; round <= n && left; round++) {
        uint64_t busy = 0, part;

        for (size_t i = 0; i < n; i++)
            busy += tenants[i].state.pending > 0;
        if (!busy)
            break;
        part = left / busy ? left / busy : 1;
        for (size_t i = 0; i < n && left; i++) {
            uint64_t ran = min_u64(min_u64(part, left), tenants[i].state.pending);

            tenants[i].state.pending -= ran;
            tenants[i].state.ran += ran;
            left -= ran;
        }
    }
}

/* Moves `taken` towards what ran in the last dt. */
static void average(struct arbitration_tenant *t, uint64_t dt) {
    uint64_t rate = t->state.ran * RATE_WHOLE / (dt ? dt : 1);
    uint64_t part = min_u64(dt, TAKEN_NS);

    t->taken = (uint32_t) ((t->taken * (TAKEN_NS - part) + rate * part) / TAKEN_NS);
}

static void begin_sample(struct arbitration_tenant *t) {
    t->state.driver_ns = t->driver_ns;
    t->state.trim_charged = t->usage.charged + t->unpaid_ns - t->pending_ns;
}

/* The driver's figure beyond the account, as far as it exceeds the factor that the rate corrects.
 * Charges that a stopped process may yet take back excuse as much, until it does. */
static uint64_t unpaid(struct arbitration_tenant *t, uint64_t driver, uint64_t charged) {
    uint64_t most = min_u64(charged, driver) * (TRIM_MAX / TRIM_ONE);
    uint64_t excess = driver > most ? driver - most : 0;

    t->state.excused_ns = min_u64(excess, t->pending_ns);
    return min_u64(excess - t->state.excused_ns, UNPAID_MAX_NS);
}

/* The driver's figures against the account's, in 1024ths. They come late and coarse, so over some
 * time, and half of the difference at once. The rate makes up for estimates that are somewhat
 * wrong; what is beyond that is charged, which does not depend on what comes after it. */
static void trim(struct arbitration_tenant *t) {
    uint64_t driver = t->driver_ns - t->state.driver_ns;
    uint64_t charged = t->usage.charged - t->pending_ns - t->state.trim_charged;

    t->unpaid_ns = 0;
    if (t->driver_ns == 0 || t->driver_ns < t->state.driver_ns) {
        begin_sample(t);
        return;
    }
    /* Long enough that work which only one of the two has counted so far does not matter. */
    if (driver < TRIM_NS || driver / TRIM_LAUNCHES < min_u64(t->usage.longest, TRIM_LONGEST_NS))
        return;
    /* Corrections do not take back that much. */
    if (charged > UINT64_MAX / 2)
        charged = 0;
    driver = min_u64(driver, DRIVER_MAX_NS) + t->state.excused_ns;
    t->unpaid_ns = unpaid(t, driver, charged);
    driver -= t->state.excused_ns;
    charged += t->unpaid_ns;
    if (charged)
        t->state.trim += (uint32_t) min_u64(driver * TRIM_ONE / charged, TRIM_MAX);
    else
        t->state.trim += TRIM_ONE;
    t->state.trim /= 2;
    assert(t->state.trim <= TRIM_MAX);
    if (t->state.trim < TRIM_MIN)
        t->state.trim = TRIM_MIN;
    begin_sample(t);
}

/* The demand of a container, ppm. */
static uint32_t demand_of(const struct arbitration_tenant *t, uint64_t now) {
    if (!t->active)
        return 0;
    if (now - t->state.rise_ns < RISE_NS ||
        (t->state.waits_ns && now - t->state.waits_ns <= ACTIVE_NS))
        return RATE_WHOLE;
    return (uint32_t) min_u64((uint64_t) t->taken * 5 / 4 + RATE_WHOLE / 50, RATE_WHOLE);
}

static uint32_t ceiling(const struct arbitration_tenant *t) {
    if (policy_of(t)->capped)
        return t->state.sure;
    return t->ceiling_percent ? percent(t->ceiling_percent) : RATE_WHOLE;
}

/* The guarantees: shares, then by weight what they leave. */
static void assign_guarantees(struct arbitration_tenant *tenants, size_t n) {
    uint64_t shares = 0, weights = 0, left;

    for (size_t i = 0; i < n; i++) {
        struct arbitration_tenant *t = &tenants[i];
        const struct policy *p = policy_of(t);

        t->state.sure = p->share ? percent(t->share_percent) : 0;
        shares += t->state.sure;
        if (p->weighted && (p->presence || t->active))
            weights += weight_of(t);
    }
    left = shares < RATE_WHOLE ? RATE_WHOLE - shares : 0;
    for (size_t i = 0; i < n; i++) {
        struct arbitration_tenant *t = &tenants[i];
        const struct policy *p = policy_of(t);

        if (shares > RATE_WHOLE)
            t->state.sure = (uint32_t) ((uint64_t) t->state.sure * RATE_WHOLE / shares);
        if (p->weighted && (p->presence || t->active) && weights)
            t->state.sure = (uint32_t) (left * weight_of(t) / weights);
    }
}

/* Divides `left` among the containers of a turn by weight, up to the demand (`wants`) and the
 * ceiling of each; returns the rest. */
static uint64_t divide_turn(struct arbitration_tenant *tenants, size_t n, enum turn turn,
                            bool wants, uint64_t left) {
    for (size_t round = 0; round <= n && left; round++) {
        uint64_t weights = 0, given = 0;

        for (size_t i = 0; i < n; i++) {
            struct arbitration_tenant *t = &tenants[i];
            uint32_t cap = ceiling(t);

            if (wants)
                cap = (uint32_t) min_u64(cap, t->state.wanted);
            t->state.room = t->active && !policy_of(t)->capped && policy_of(t)->turn == turn &&
                                    cap > t->entitled
                                ? cap - t->entitled
                                : 0;
            weights += t->state.room ? weight_of(t) : 0;
        }
        for (size_t i = 0; i < n && weights; i++) {
            struct arbitration_tenant *t = &tenants[i];
            uint64_t part = min_u64(left * weight_of(t) / weights, t->state.room);

            if (t->state.room) {
                t->entitled += (uint32_t) part;
                given += part;
            }
        }
        if (!given)
            break;
        assert(given <= left);
        left -= given;
    }
    return left;
}

/* Sum of the rates of all, ppm. */
__attribute__((unused)) static uint64_t sum_of_rates(const struct arbitration_tenant *tenants,
                                                     size_t n) {
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += tenants[i].entitled;
    return sum;
}

static void divide(struct arbitration_tenant *tenants, size_t n, uint64_t now) {
    uint64_t left = RATE_WHOLE;

    assign_guarantees(tenants, n);
    for (size_t i = 0; i < n; i++) {
        tenants[i].state.wanted = demand_of(&tenants[i], now);
        tenants[i].entitled = (uint32_t) min_u64(tenants[i].state.sure, tenants[i].state.wanted);
        left -= min_u64(tenants[i].entitled, left);
    }
    assert(sum_of_rates(tenants, n) + left == RATE_WHOLE);
    for (enum turn turn = 0; turn < TURNS; turn++)
        left = divide_turn(tenants, n, turn, true, left);
    /* What remains beyond all demand is headroom for all, so that no launch waits for an idle card.
     */
    for (enum turn turn = 0; turn < TURNS; turn++)
        left = divide_turn(tenants, n, turn, false, left);
    assert(sum_of_rates(tenants, n) + left == RATE_WHOLE);
    for (size_t i = 0; i < n; i++) {
        struct arbitration_tenant *t = &tenants[i];

        if (t->entitled < t->state.sure)
            t->entitled = t->state.sure;
        if (t->entitled < ARBITRATION_FLOOR)
            t->entitled = ARBITRATION_FLOOR;
    }
}

/* How much of its work on the card was taken beyond its guarantee, ns. */
static uint64_t borrowed(const struct arbitration_tenant *t) {
    uint64_t over = t->taken > t->state.sure ? t->taken - t->state.sure : 0;

    return over ? min_u64(t->state.pending, DEPTH_MAX_NS) * over / t->taken : 0;
}

/* A container that has to return lent time still has work on the card, which runs in turns with
 * that of the owner. Its rate is the floor until this is made up for. */
static void return_lent(struct arbitration_tenant *t, uint64_t dt) {
    uint64_t paid = dt * t->entitled / RATE_WHOLE;

    t->state.owes = t->state.owes > paid ? t->state.owes - paid : 0;
    if (t->entitled + RATE_WHOLE / 20 < t->state.entitled)
        t->state.owes = min_u64(borrowed(t), OWES_MAX_NS);
    t->state.entitled = t->entitled;
}

static uint32_t rate_of(const struct arbitration_tenant *t, size_t active) {
    /* Alone on the card without a ceiling: an estimate that is too high must not slow it. */
    if (ceiling(t) >= RATE_WHOLE && (active == 0 || (active == 1 && t->active)))
        return RATE_UNLIMITED;
    if (t->state.owes)
        return ARBITRATION_FLOOR;
    return (uint32_t) ((uint64_t) t->entitled * TRIM_ONE / t->state.trim);
}

static void grant(struct arbitration_tenant *tenants, size_t n, size_t at, size_t active,
                  uint64_t dt) {
    struct arbitration_tenant *t = &tenants[at];
    struct compute_grant next = {.rate = rate_of(t, active), .window = WINDOW_NS};
    uint64_t longest = 0, ran = 0;

    next.others = t->grant.others;
    for (size_t i = 0; i < n; i++) {
        if (i == at)
            continue;
        ran += tenants[i].state.ran;
        next.neighbours += tenants[i].active;
        if (tenants[i].active && tenants[i].usage.longest > longest)
            longest = tenants[i].usage.longest;
    }
    next.others += ran;
    next.others_at = t->state.seen_ns;
    next.others_rate = dt ? (uint32_t) min_u64(ran * RATE_WHOLE / dt, RATE_WHOLE) : 0;
    next.depth = min_u64(DEPTH_NS + min_u64(longest, DEPTH_MAX_NS), DEPTH_MAX_NS);
    t->changed = next.rate != t->grant.rate || next.depth != t->grant.depth ||
                 next.window != t->grant.window || next.others != t->grant.others ||
                 next.others_rate != t->grant.others_rate || next.neighbours != t->grant.neighbours;
    t->grant = next;
}

/* The time since the last step of the card, by the tenants that were there. */
static uint64_t time_passed(const struct arbitration_tenant *tenants, size_t n, uint64_t now) {
    uint64_t passed = 0;

    for (size_t i = 0; i < n; i++)
        if (tenants[i].state.known && now - tenants[i].state.seen_ns > passed)
            passed = now - tenants[i].state.seen_ns;
    return min_u64(passed, DEPTH_MAX_NS);
}

uint64_t arbitration_step(struct arbitration_tenant *tenants, size_t n, uint64_t now_ns) {
    uint64_t dt = time_passed(tenants, n, now_ns);
    size_t active = 0;

    for (size_t i = 0; i < n; i++) {
        observe(&tenants[i], now_ns, dt);
        trim(&tenants[i]);
        active += tenants[i].active;
    }
    run_card(tenants, n, dt);
    for (size_t i = 0; i < n; i++)
        average(&tenants[i], dt);
    divide(tenants, n, now_ns);
    for (size_t i = 0; i < n; i++)
        return_lent(&tenants[i], dt);
    for (size_t i = 0; i < n; i++)
        grant(tenants, n, i, active, dt);
    return active ? STEP_NS : IDLE_STEP_NS;
}
