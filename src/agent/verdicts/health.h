/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of one card or MIG instance, decided from what the driver reports and what a person
 * orders. Pure: no I/O and no clock. Times are milliseconds of one clock that goes on while the
 * agent restarts (CLOCK_BOOTTIME). After each call `state` and `reason` are what holds, and
 * health_work() is what the agent has to do; both follow from the struct alone, so that a restarted
 * agent goes on with a saved one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"
#include "model/xid.h"

#define HEALTH_TEXT_MAX 240
#define HEALTH_FLAPPING_MAX 16 /* of flapping_times */
#define HEALTH_ORIGIN_MAX 80
#define HEALTH_RESETS_MAX 3      /* resets without an order, since the card was healthy */
#define HEALTH_RETRY_MIN_MS 5000 /* between two of them, and between probes; doubles */
#define HEALTH_RETRY_MAX_MS 300000

/* When a card is reset that a reset can heal. */
enum health_reset {
    HEALTH_RESET_NEVER, /* only by an order */
    HEALTH_RESET_IDLE,  /* when its last share has ended */
    HEALTH_RESET_DRAIN, /* its pods are evicted for it, within their disruption budgets */
};

/* Section `health` and `reset` of the configuration. */
struct health_options {
    uint32_t interval_ms; /* between polls of NVML */
    uint32_t deadline_ms; /* for one poll */
    /* Time after an XID in which the driver may not report its recovery action yet, and for which a
     * temperature or a link has to be bad. */
    uint32_t settle_ms;
    uint32_t max_temperature; /* degrees Celsius; 0: any */
    bool recover;             /* a card whose problem is over is healthy without an order */
    uint32_t flapping_times;  /* at most HEALTH_FLAPPING_MAX; 0: never */
    uint64_t flapping_within_ms;
    struct xid_rules xids;
    enum health_reset reset;
    uint32_t reset_timeout_ms;
    const char *const *reset_command; /* NULL-terminated; "UUID" in it is replaced; NULL: default */
};

extern const struct health_options health_defaults;

enum health_state {
    HEALTH_UNKNOWN, /* nothing is known of it, or the agent has let go of it by order */
    HEALTH_HEALTHY, /* the only state in which it takes new pods */
    HEALTH_SUSPECT, /* a sign of a problem, which has to last or to be confirmed */
    HEALTH_UNHEALTHY,
    HEALTH_DRAINING, /* it is left by its pods, by order or for a reset */
    HEALTH_RESETTING,
    HEALTH_PROBING, /* whether it works is tried with a context */
    HEALTH_STATES,
};

/* As in GPU.status.state. */
const char *health_state_name(enum health_state state);

/* The state of that name; HEALTH_STATES: none. */
enum health_state health_state_parse(const char *name);

/* What keeps a card from being healthy. The first one that holds is the reason. */
enum health_cause {
    HEALTH_XID,
    HEALTH_NO_ANSWER, /* NVML calls on it fail, often after an XID */
    HEALTH_RECOVERY,  /* the driver reports a recovery action */
    HEALTH_MEMORY,    /* ECC, row remapping */
    HEALTH_MPS,       /* its control daemon does not serve */
    HEALTH_OFFER,     /* it waits to be given out in another way, or to be divided */
    HEALTH_LINKS,     /* this and the next: after settle_ms */
    HEALTH_TEMPERATURE,
    HEALTH_CAUSES,
};

/* What has become of the last HEALTH_ORDER_RESET. */
enum health_ordered {
    HEALTH_ORDERED_NONE, /* there was none */
    HEALTH_ORDERED_AWAITED,
    HEALTH_ORDERED_DONE, /* and the card works */
    HEALTH_ORDERED_FAILED,
};

struct health_problem {
    bool there;
    bool certain; /* it has taken the card out */
    bool over;    /* the problem is, and an order is needed to be healthy */
    uint64_t since;
    char text[HEALTH_TEXT_MAX];
};

/* What the agent has to do for the card. */
enum health_work {
    HEALTH_NOTHING,
    HEALTH_EVICT, /* its pods */
    HEALTH_RESET,
    HEALTH_PROBE,
};

/* All zero: unknown. Only the functions below write to it. */
struct health {
    enum health_state state;
    char reason[HEALTH_TEXT_MAX]; /* "" when healthy */
    uint64_t since;               /* of the state */
    uint32_t last_xid;            /* 0: none */

    bool seen; /* there was a reading */
    struct health_problem problems[HEALTH_CAUSES];
    uint32_t xid;       /* of HEALTH_XID */
    uint32_t evaluated; /* an XID about which the readings until evaluate_to decide; 0: none */
    uint64_t evaluate_to;
    bool memory_reset;           /* HEALTH_MEMORY: a reset heals it */
    uint32_t nvlinks;            /* most that were active; 0: not known */
    bool no_reset;               /* as in the last reading */
    int32_t recovery;            /* action that the driver reports; negative: it reports none */
    bool needs_reset, of_driver; /* as in the last reading, like the next two */
    uint32_t holders, processes; /* as in the last reading */

    bool cordoned, draining, released; /* by order */
    char origin[HEALTH_ORIGIN_MAX];    /* of that order: "by order", "by label ..." */
    bool reset_ordered;
    enum health_ordered ordered;
    char ordered_failure[HEALTH_TEXT_MAX]; /* with HEALTH_ORDERED_FAILED */
    bool after_reset;                      /* the probe is the one that follows a reset */
    bool for_reset;                        /* it drains to be reset */
    bool proved;                           /* a probe has succeeded; the next reading decides */
    bool held;                             /* it flaps; until an order */
    uint64_t left[HEALTH_FLAPPING_MAX];    /* when it ceased to be healthy, the latest first */
    uint32_t nleft;
    uint32_t tries;                /* resets or probes that did not help, since it was healthy */
    uint32_t resets;               /* of them, resets */
    uint64_t retry_at;             /* not before */
    char failure[HEALTH_TEXT_MAX]; /* of the last reset or probe; "": none */
};

/* One poll. */
struct health_reading {
    const char *error; /* why NVML calls fail; NULL: they do not */
    bool needs_reset;  /* they fail until the card is reset */
    bool of_driver;    /* they fail on all cards, which is no flapping */
    bool late;         /* the figures can be older than the last XID, and show no recovery of it */
    int32_t recovery;  /* NVML's recovery action, 0: none; negative: not reported */
    int32_t temperature;             /* degrees Celsius; negative: not reported */
    const struct gpu_errors *errors; /* NULL: of a device that has none of its own */
    bool divided;                    /* NVLinks of a card in MIG mode are of no use */
    bool no_reset;      /* a vGPU, which only its host can reset, or a part of a card */
    bool peer_away;     /* another card is reset or does not answer: links to it are down */
    uint32_t holders;   /* shares of the card */
    uint32_t processes; /* on the card */
};

/* Whether a part of the memory is repaired by the next reset. The card works on without it. */
bool health_repair_pending(const struct gpu_errors *errors);

/* Each of these takes a new time and evaluates the state again. */
void health_read(struct health *h, const struct health_options *o,
                 const struct health_reading *reading, uint64_t now);
void health_take_xid(struct health *h, const struct health_options *o, uint32_t code, uint64_t now);

/* A cause that a reading does not have (HEALTH_MPS, HEALTH_OFFER) holds, for that reason, or no
 * longer does (NULL). */
void health_set_problem(struct health *h, const struct health_options *o, enum health_cause cause,
                        const char *text, uint64_t now);

enum health_order {
    HEALTH_ORDER_UNCORDON,       /* ends cordon, drain and release */
    HEALTH_ORDER_CORDON,         /* no new pods */
    HEALTH_ORDER_DRAIN,          /* and its pods are evicted */
    HEALTH_ORDER_RELEASE,        /* no process of the agent uses it */
    HEALTH_ORDER_RESET,          /* as soon as it has no shares; no effect where there is none */
    HEALTH_ORDER_RESET_BY_AGENT, /* the same, of the agent's own: `ordered` is not its end */
    /* What is over, and flapping, is forgotten; links that are down are no longer expected. */
    HEALTH_ORDER_SET_HEALTHY,
};
/* Whether the card drains by nothing but orders whose origin begins with that text. */
bool health_drains_by(const struct health *h, const char *origin);

/* `origin` is part of the reason ("cordoned by order"), at most HEALTH_ORIGIN_MAX - 1 bytes. */
void health_take_order(struct health *h, const struct health_options *o, enum health_order order,
                       const char *origin, uint64_t now);

/* HEALTH_ORDER_UNCORDON, _CORDON, _DRAIN or _RELEASE, as it is followed now. */
enum health_order health_level(const struct health *h);

/* The reset or probe of health_work() has ended; `error`: why it failed, or NULL. */
void health_work_done(struct health *h, const struct health_options *o, enum health_work work,
                      const char *error, uint64_t now);

enum health_work health_work(const struct health *h);
