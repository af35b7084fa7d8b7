/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verdicts/health.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/gpu_model.h"

/* Of one card; the driver has no room for more. */
#define RETIRED_PAGES_MAX 64

/* NVML's recovery actions, nvmlDeviceGpuRecoveryAction_t. */
enum { RECOVERY_NONE, RECOVERY_RESET, RECOVERY_REBOOT, RECOVERY_DRAIN_P2P, RECOVERY_DRAIN_RESET };

const struct health_options health_defaults = {
    .interval_ms = 1000,
    .deadline_ms = 4000,
    .settle_ms = 1000,
    .recover = true,
    .flapping_times = 3,
    .flapping_within_ms = 600000,
    .reset = HEALTH_RESET_NEVER,
    .reset_timeout_ms = 60000,
};

static const char *const state_names[HEALTH_STATES] = {
    [HEALTH_UNKNOWN] = "Unknown",   [HEALTH_HEALTHY] = "Healthy",
    [HEALTH_SUSPECT] = "Suspect",   [HEALTH_UNHEALTHY] = "Unhealthy",
    [HEALTH_DRAINING] = "Draining", [HEALTH_RESETTING] = "Resetting",
    [HEALTH_PROBING] = "Probing",
};

const char *health_state_name(enum health_state state) {
    return state_names[state];
}

enum health_state health_state_parse(const char *name) {
    enum health_state state = 0;

    while (state < HEALTH_STATES && strcmp(state_names[state], name) != 0)
        state++;
    return state;
}

/* ---- problems ---- */

static bool settles(enum health_cause cause) {
    return cause == HEALTH_LINKS || cause == HEALTH_TEMPERATURE;
}

/* Whether the cause takes the card out, and not only under suspicion. */
static bool is_certain(const struct health *h, const struct health_options *o,
                       enum health_cause cause, uint64_t now) {
    const struct health_problem *p = &h->problems[cause];

    return p->there && (p->certain || !settles(cause) || now - p->since >= o->settle_ms);
}

/* HEALTH_CAUSES: none. */
static enum health_cause first_certain(struct health *h, const struct health_options *o,
                                       uint64_t now) {
    enum health_cause first = HEALTH_CAUSES;

    for (enum health_cause cause = HEALTH_CAUSES; cause-- > 0;) {
        h->problems[cause].certain = is_certain(h, o, cause, now);
        if (h->problems[cause].certain)
            first = cause;
    }
    return first;
}

static enum health_cause first_suspected(const struct health *h) {
    enum health_cause cause = 0;

    while (cause < HEALTH_CAUSES && !h->problems[cause].there)
        cause++;
    return cause;
}

/* Figures (a PID, a duration) change from poll to poll, and each new reason is published. */
static bool differs_in_figures_only(const char *a, const char *b) {
    while (*a || *b) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b)
            return false;
        a += *a != 0;
        b += *b != 0;
    }
    return true;
}

static void raise_problem(struct health *h, enum health_cause cause, const char *text,
                          uint64_t now) {
    struct health_problem *p = &h->problems[cause];

    if (!p->there)
        p->since = now;
    if (!p->there || !differs_in_figures_only(p->text, text))
        text_copy(p->text, sizeof(p->text), text);
    p->there = true;
    p->over = false;
}

/* One that only was suspected leaves nothing behind. */
static void end_problem(struct health *h, const struct health_options *o, enum health_cause cause) {
    struct health_problem *p = &h->problems[cause];

    if (o->recover || !p->certain)
        *p = (struct health_problem){0};
    else
        p->over = true;
}

static void put_problem(struct health *h, const struct health_options *o, enum health_cause cause,
                        const char *text, uint64_t now) {
    if (text)
        raise_problem(h, cause, text, now);
    else
        end_problem(h, o, cause);
}

/* ---- what a reset can heal ---- */

static bool reset_heals(const struct health *h) {
    if (h->problems[HEALTH_NO_ANSWER].there)
        return h->needs_reset;
    if (h->problems[HEALTH_RECOVERY].there)
        return h->recovery == RECOVERY_RESET || h->recovery == RECOVERY_DRAIN_RESET;
    if (h->problems[HEALTH_MEMORY].there)
        return h->memory_reset;
    return h->problems[HEALTH_XID].there && !h->problems[HEALTH_XID].over &&
           xid_reset_helps(h->xid);
}

static bool may_try(const struct health *h, uint64_t now) {
    return h->resets < HEALTH_RESETS_MAX && now >= h->retry_at;
}

/* A flapping card is left as it is: resets have not healed it. */
static bool wants_reset(const struct health *h, const struct health_options *o, uint64_t now) {
    if (h->reset_ordered)
        return true;
    return o->reset != HEALTH_RESET_NEVER && o->recover && !h->no_reset && !h->held &&
           !h->released && reset_heals(h) && may_try(h, now);
}

/* Where the driver reports no recovery action, only a context shows that the card has recovered. */
static bool wants_probe(const struct health *h, const struct health_options *o, uint64_t now) {
    const struct health_problem *xid = &h->problems[HEALTH_XID];

    return o->recover && !h->held && xid->there && !xid->over && h->recovery < 0 &&
           h->processes == 0 && !h->problems[HEALTH_NO_ANSWER].there &&
           !h->problems[HEALTH_MEMORY].there && now - xid->since >= o->settle_ms &&
           now >= h->retry_at;
}

/* ---- the state ---- */

static void note_leaving(struct health *h, const struct health_options *o, uint64_t now) {
    uint32_t times =
        o->flapping_times < HEALTH_FLAPPING_MAX ? o->flapping_times : HEALTH_FLAPPING_MAX;

    memmove(&h->left[1], &h->left[0], (HEALTH_FLAPPING_MAX - 1) * sizeof(h->left[0]));
    h->left[0] = now;
    h->nleft += h->nleft < HEALTH_FLAPPING_MAX;
    if (times > 0 && h->nleft >= times && now - h->left[times - 1] <= o->flapping_within_ms)
        h->held = true;
}

static void enter(struct health *h, enum health_state state, uint64_t now) {
    if (h->state != state)
        h->since = now;
    h->state = state;
}

static void add_reason(struct health *h, const char *text) {
    size_t len = strlen(h->reason);

    (void) snprintf(h->reason + len, sizeof(h->reason) - len, "%s%s", len > 0 ? "; " : "", text);
}

/* The reason of a card with a problem, or which flaps. */
static void tell_problem(struct health *h, enum health_cause cause) {
    h->reason[0] = 0;
    if (cause < HEALTH_CAUSES) {
        add_reason(h, h->problems[cause].text);
        if (h->problems[cause].over)
            add_reason(h, "it is over; the card waits for annotation " GPU_SET_HEALTHY);
    }
    if (h->failure[0])
        add_reason(h, h->failure);
    if (h->resets >= HEALTH_RESETS_MAX)
        add_reason(h, "no further reset without an order");
    if (h->held)
        add_reason(h, "the card failed too often and waits for annotation " GPU_SET_HEALTHY);
}

/* The reason of a card without a problem that an order keeps out. */
static void tell_order(struct health *h, const char *what) {
    (void) snprintf(h->reason, sizeof(h->reason), "%s %s", what, h->origin);
    if (h->failure[0])
        add_reason(h, h->failure);
}

/* What the agent itself brings about says nothing of the card. */
static bool is_of_agent(enum health_cause cause) {
    return cause == HEALTH_MPS || cause == HEALTH_OFFER;
}

static bool is_idle(const struct health *h) {
    return h->holders == 0 && h->processes == 0;
}

static void begin_reset(struct health *h, uint64_t now) {
    h->resets++;
    enter(h, HEALTH_RESETTING, now);
}

static void decide_unwell(struct health *h, const struct health_options *o, enum health_cause cause,
                          uint64_t now) {
    bool reset;

    if ((h->state == HEALTH_HEALTHY || h->state == HEALTH_SUSPECT) && !is_of_agent(cause) &&
        !(cause == HEALTH_NO_ANSWER && h->of_driver))
        note_leaving(h, o, now);
    reset = wants_reset(h, o, now);
    tell_problem(h, cause);
    h->for_reset = reset && h->holders > 0 && o->reset == HEALTH_RESET_DRAIN;
    if (reset && is_idle(h))
        begin_reset(h, now);
    else if (wants_probe(h, o, now))
        enter(h, HEALTH_PROBING, now);
    else if (h->for_reset || h->reset_ordered || h->draining)
        enter(h, HEALTH_DRAINING, now);
    else
        enter(h, HEALTH_UNHEALTHY, now);
}

static void decide_well(struct health *h, uint64_t now) {
    enum health_cause suspected = first_suspected(h);

    h->tries = 0;
    h->resets = 0;
    h->retry_at = 0;
    h->failure[0] = 0;
    h->reason[0] = 0;
    if (suspected < HEALTH_CAUSES)
        add_reason(h, h->problems[suspected].text);
    else if (h->evaluated)
        xid_describe(h->evaluated, h->reason, sizeof(h->reason));
    enter(h, h->reason[0] ? HEALTH_SUSPECT : HEALTH_HEALTHY, now);
}

/* ---- orders to reset ---- */

static void end_order(struct health *h, enum health_ordered end, const char *failure) {
    if (h->ordered != HEALTH_ORDERED_AWAITED)
        return;
    h->ordered = end;
    text_copy(h->ordered_failure, sizeof(h->ordered_failure), failure);
}

/* An order that cannot be followed is over. */
static void check_order(struct health *h) {
    if (!h->reset_ordered || !h->no_reset)
        return;
    h->reset_ordered = false;
    end_order(h, HEALTH_ORDERED_FAILED, "a vGPU is reset by its host");
}

/* A running reset or probe is not interrupted: its end is evaluated. */
static void decide(struct health *h, const struct health_options *o, uint64_t now) {
    enum health_cause cause = first_certain(h, o, now);

    if (h->state == HEALTH_RESETTING || h->state == HEALTH_PROBING)
        return;
    h->for_reset = false;
    if (h->released) {
        tell_order(h, "released");
        enter(h, HEALTH_UNKNOWN, now);
    } else if (!h->seen) {
        h->reason[0] = 0;
        enter(h, HEALTH_UNKNOWN, now);
    } else if (cause < HEALTH_CAUSES || h->held) {
        decide_unwell(h, o, cause, now);
    } else if (h->reset_ordered) {
        text_copy(h->reason, sizeof(h->reason), "reset by order");
        if (is_idle(h))
            begin_reset(h, now);
        else
            enter(h, HEALTH_DRAINING, now);
    } else if (h->cordoned) {
        tell_order(h, h->draining ? "drained" : "cordoned");
        enter(h, HEALTH_DRAINING, now);
    } else {
        decide_well(h, now);
    }
}

/* ---- resets and probes ---- */

/* An order that came during a probe is followed when that has ended. */
static bool was_ordered(const struct health *h, enum health_work work) {
    return work == HEALTH_RESET || (h->after_reset && !h->reset_ordered);
}

static void note_failure(struct health *h, enum health_work work, const char *error, uint64_t now) {
    uint64_t wait = HEALTH_RETRY_MIN_MS;

    for (uint32_t i = 0; i < h->tries && wait < HEALTH_RETRY_MAX_MS; i++)
        wait *= 2;
    h->tries++;
    h->retry_at = now + (wait < HEALTH_RETRY_MAX_MS ? wait : HEALTH_RETRY_MAX_MS);
    (void) snprintf(h->failure, sizeof(h->failure), "%s: %.180s",
                    work == HEALTH_RESET ? "reset failed"
                    : h->after_reset     ? "the reset had no effect"
                                         : "probe failed",
                    error);
    if (was_ordered(h, work)) {
        h->reset_ordered = false;
        end_order(h, HEALTH_ORDERED_FAILED, h->failure);
    }
    h->after_reset = false;
    enter(h, HEALTH_UNHEALTHY, now);
}

/* What goes on is in the next reading. */
static void forget_past(struct health *h) {
    h->problems[HEALTH_XID] = (struct health_problem){0};
    h->evaluated = 0;
    for (enum health_cause cause = 0; cause < HEALTH_CAUSES; cause++)
        if (h->problems[cause].over)
            h->problems[cause] = (struct health_problem){0};
}

/* A reset command can succeed without a reset, and a context can work on a card that the driver
 * wants reset. The MPS daemon is started after the probe. */
static void judge_proof(struct health *h, const struct health_options *o, uint64_t now) {
    enum health_cause cause = first_certain(h, o, now);

    h->proved = false;
    enter(h, HEALTH_UNHEALTHY, now);
    if (cause < HEALTH_CAUSES && !is_of_agent(cause)) {
        note_failure(h, HEALTH_PROBE, "the problem goes on", now);
    } else {
        h->failure[0] = 0;
        if (was_ordered(h, HEALTH_PROBE))
            end_order(h, HEALTH_ORDERED_DONE, "");
    }
    h->after_reset = false;
}

/* ---- input ---- */

static void read_recovery(struct health *h, const struct health_options *o,
                          const struct health_reading *reading, uint64_t now) {
    static const char *const texts[] = {
        [RECOVERY_RESET] = "the driver reports that the card needs a reset",
        [RECOVERY_REBOOT] = "the driver reports that the node needs a restart",
        [RECOVERY_DRAIN_P2P] = "the driver reports that peer-to-peer traffic has to be drained",
        [RECOVERY_DRAIN_RESET] = "the driver reports that the card has to be drained and reset",
    };
    int32_t action = reading->recovery;
    bool known = action > 0 && (size_t) action < sizeof(texts) / sizeof(texts[0]);

    h->recovery = action;
    put_problem(h, o, HEALTH_RECOVERY,
                action <= 0 ? NULL
                : known     ? texts[action]
                            : "the driver reports an unknown recovery action",
                now);
    if (action == RECOVERY_NONE && !reading->late && h->problems[HEALTH_XID].there &&
        now - h->problems[HEALTH_XID].since >= o->settle_ms)
        end_problem(h, o, HEALTH_XID);
}

static void read_temperature(struct health *h, const struct health_options *o, int32_t degrees,
                             uint64_t now) {
    char text[HEALTH_TEXT_MAX];

    (void) snprintf(text, sizeof(text),
                    "the temperature is above maxTemperature, %u degrees Celsius",
                    o->max_temperature);
    put_problem(h, o, HEALTH_TEMPERATURE,
                o->max_temperature > 0 && degrees > 0 && (uint32_t) degrees > o->max_temperature
                    ? text
                    : NULL,
                now);
}

static bool is_told(uint32_t figure) {
    return figure != GPU_NOT_TOLD;
}

static bool is_set(uint32_t figure) {
    return is_told(figure) && figure != 0;
}

bool health_repair_pending(const struct gpu_errors *errors) {
    return is_set(errors->remap_pending) || is_set(errors->retirement_pending);
}

/* From Ampere on an uncorrectable error ends the programs that it hits, and the driver goes on
 * without that part of the memory: XIDs and recovery action report what does not end so. Models
 * before need a reset after each. */
static const char *memory_problem(const struct gpu_errors *e, bool *ret_reset_heals) {
    *ret_reset_heals = false;
    if (is_set(e->remap_failed))
        return "a row of the memory could not be remapped: the card has to be replaced";
    if (!is_told(e->retired_single) || !is_told(e->retired_double))
        return NULL;
    if ((uint64_t) e->retired_single + e->retired_double >= RETIRED_PAGES_MAX)
        return "no more pages of the memory can be retired: the card has to be replaced";
    *ret_reset_heals = e->uncorrected > 0 && e->uncorrected != UINT64_MAX;
    return *ret_reset_heals
               ? "the memory has had an uncorrectable ECC error: the card needs a reset"
               : NULL;
}

/* Remapped rows of a card with MIG instances are not reported; what was known of them holds. */
static void read_memory(struct health *h, const struct health_options *o,
                        const struct gpu_errors *errors, uint64_t now) {
    if (errors && (is_told(errors->remap_failed) || is_told(errors->retired_single)))
        put_problem(h, o, HEALTH_MEMORY, memory_problem(errors, &h->memory_reset), now);
}

/* Which links a card should have depends on bridges and switches, of which NVML knows nothing:
 * those that were active should be. */
static void read_links(struct health *h, const struct health_options *o,
                       const struct health_reading *reading, uint64_t now) {
    uint32_t active = reading->errors ? reading->errors->nvlinks : GPU_NOT_TOLD;
    char text[HEALTH_TEXT_MAX];

    if (reading->divided) {
        h->nvlinks = 0;
        put_problem(h, o, HEALTH_LINKS, NULL, now);
    }
    if (reading->divided || reading->peer_away || !is_told(active))
        return;
    if (active > h->nvlinks)
        h->nvlinks = active;
    (void) snprintf(text, sizeof(text), "some of the card's %u NVLinks are down", h->nvlinks);
    put_problem(h, o, HEALTH_LINKS, active < h->nvlinks ? text : NULL, now);
}

void health_read(struct health *h, const struct health_options *o,
                 const struct health_reading *reading, uint64_t now) {
    h->seen = true;
    h->holders = reading->holders;
    h->processes = reading->processes;
    h->no_reset = reading->no_reset || (reading->error && h->no_reset);
    check_order(h);
    h->needs_reset = reading->error && reading->needs_reset;
    h->of_driver = reading->error && reading->of_driver;
    put_problem(h, o, HEALTH_NO_ANSWER, reading->error, now);
    if (!reading->error) {
        read_recovery(h, o, reading, now);
        read_temperature(h, o, reading->temperature, now);
        read_memory(h, o, reading->errors, now);
        read_links(h, o, reading, now);
    }
    if (now >= h->evaluate_to)
        h->evaluated = 0;
    if (h->proved)
        judge_proof(h, o, now);
    decide(h, o, now);
}

void health_take_xid(struct health *h, const struct health_options *o, uint32_t code,
                     uint64_t now) {
    enum xid_action action = xid_action(&o->xids, code);

    h->last_xid = code;
    if (action == XID_TAKE_OUT) {
        bool first = !h->problems[HEALTH_XID].there;

        /* The first one is the cause of the others, unless one of them is worse. */
        if (first || (xid_reset_helps(h->xid) && !xid_reset_helps(code))) {
            xid_describe(code, h->problems[HEALTH_XID].text, HEALTH_TEXT_MAX);
            h->xid = code;
        }
        h->problems[HEALTH_XID].there = true;
        h->problems[HEALTH_XID].over = false;
        h->problems[HEALTH_XID].since = now; /* the settle time begins again */
    } else if (action == XID_EVALUATE) {
        h->evaluated = code;
        h->evaluate_to = now + o->settle_ms;
    }
    decide(h, o, now);
}

void health_set_problem(struct health *h, const struct health_options *o, enum health_cause cause,
                        const char *text, uint64_t now) {
    put_problem(h, o, cause, text, now);
    decide(h, o, now);
}

static void set_healthy(struct health *h) {
    forget_past(h);
    h->held = false;
    h->nvlinks = 0;
    h->nleft = 0;
    h->tries = 0;
    h->resets = 0;
    h->retry_at = 0;
    h->failure[0] = 0;
}

void health_take_order(struct health *h, const struct health_options *o, enum health_order order,
                       const char *origin, uint64_t now) {
    switch (order) {
    case HEALTH_ORDER_RESET:
    case HEALTH_ORDER_RESET_BY_AGENT:
        h->reset_ordered = true;
        if (order == HEALTH_ORDER_RESET)
            h->ordered = HEALTH_ORDERED_AWAITED;
        check_order(h);
        break;
    case HEALTH_ORDER_SET_HEALTHY:
        set_healthy(h);
        break;
    default:
        if (h->released && order != HEALTH_ORDER_RELEASE)
            h->seen = false; /* nothing was read meanwhile */
        h->cordoned = order != HEALTH_ORDER_UNCORDON;
        h->draining = order == HEALTH_ORDER_DRAIN || order == HEALTH_ORDER_RELEASE;
        h->released = order == HEALTH_ORDER_RELEASE;
        text_copy(h->origin, sizeof(h->origin), origin);
        break;
    }
    decide(h, o, now);
}

/* ---- work ---- */

void health_work_done(struct health *h, const struct health_options *o, enum health_work work,
                      const char *error, uint64_t now) {
    if (h->state != (work == HEALTH_RESET ? HEALTH_RESETTING : HEALTH_PROBING))
        return;
    if (error) {
        note_failure(h, work, error, now);
        decide(h, o, now);
    } else if (work == HEALTH_RESET) {
        h->reset_ordered = false;
        h->after_reset = true;
        enter(h, HEALTH_PROBING, now);
    } else {
        forget_past(h);
        h->proved = true;
    }
}

bool health_drains_by(const struct health *h, const char *origin) {
    return h->draining && !h->for_reset && strncmp(h->origin, origin, strlen(origin)) == 0;
}

enum health_order health_level(const struct health *h) {
    return h->released   ? HEALTH_ORDER_RELEASE
           : h->draining ? HEALTH_ORDER_DRAIN
           : h->cordoned ? HEALTH_ORDER_CORDON
                         : HEALTH_ORDER_UNCORDON;
}

enum health_work health_work(const struct health *h) {
    switch (h->state) {
    case HEALTH_RESETTING:
        return HEALTH_RESET;
    case HEALTH_PROBING:
        return h->proved ? HEALTH_NOTHING : HEALTH_PROBE;
    case HEALTH_DRAINING:
        return h->holders > 0 && (h->draining || h->for_reset) ? HEALTH_EVICT : HEALTH_NOTHING;
    default:
        return HEALTH_NOTHING;
    }
}
