/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of a monitor, for monitor.c and release.c. */

#include "base/err.h"
#include "base/on_closed.h"
#include "gpu/nvml/child.h"
#include "gpu/nvml/collect.h"
#include "gpu/nvml/monitor.h"
#include "gpu/nvml/probe.h"

/* Children that each wait for one card. With more cards than that, the driver hangs as a whole. */
#define WATCHERS_MAX 3
#define PROBES_MAX 4

/* A child and its polls. */
struct poller {
    struct gpu_monitor *monitor;
    struct poller *next; /* of all children that exist, killed ones among them */
    struct gpu_child *child;
    uint64_t number; /* in the order of their starts */
    bool polling;    /* a poll is being answered */
    bool limiting;   /* no poll is, and calls for a limit run */
    bool answered;   /* one was */
    uint32_t sequence;
    uint64_t left_out; /* cards (bits, by index) that the poll leaves out */
    uint64_t opened;   /* cards that it may have open */
    uint64_t heard;    /* cards for whose events it is registered; 0 before the first poll */
    uint32_t reading;  /* the card whose calls run, NO_CARD: none */
    uint64_t since;    /* loop time when the poll, or the reading of the card, began */
    uint32_t card;     /* of a watcher */
    bool hangs;        /* a watcher's card is past the deadline */
    unsigned prompt;   /* of a watcher: prompt answers in a row */
    struct gpu_collect answer;
};

struct gpu_monitor {
    uv_loop_t *loop;
    struct gpu_monitor_options options;
    char program[256];
    struct poller *main; /* reads all cards but those of the watchers; NULL: to be started */
    struct poller *watchers[WATCHERS_MAX]; /* each reads one card that was slow; NULL: none */
    struct poller *all;
    uint64_t released;    /* cards (bits, by index) that no child may open */
    struct poller *dying; /* a former main child that was killed in a call, not yet dead */
    struct gpu_probe *probes[PROBES_MAX]; /* NULL: none */
    uv_timer_t timer;                     /* the next start of the main child */
    unsigned handles; /* children and probes that are not freed, and the timer */
    bool poll_again;
    unsigned backoff_ms;
    uint32_t sequence;
    uint64_t answered_at;                  /* loop time of the main child's last END */
    uint64_t card_answered[GPU_CARDS_MAX]; /* of the last END with that card */
    struct gpu_snapshot now;
    struct gpu_snapshot room; /* empty: for gpu_collect_end() */
    struct {
        char uuid[GPU_UUID_MAX];
        uint64_t bytes;
    } contexts[GPU_MAX]; /* measured, or known from before */
    size_t ncontexts;
    bool complete;
    uint64_t polls, starts, restarts, hangs, limit_generation;
    char text[ERR_TEXT_MAX];
    struct on_closed on_closed;
};

/* Its bit in a set of cards. */
static inline uint64_t bit_of(uint32_t card) {
    return UINT64_C(1) << card;
}

static inline bool is_released(const struct gpu_monitor *m, uint32_t card) {
    return card < GPU_CARDS_MAX && (m->released & bit_of(card));
}

/* Whether there are cards, and none that the monitor may read. */
bool gpu_monitor_reads_none(const struct gpu_monitor *m);

/* Evaluates all devices and reports the snapshot. */
void gpu_monitor_changed(struct gpu_monitor *m);

/* Kills a watcher, or the main child. No other one is started. */
void gpu_monitor_kill(struct gpu_monitor *m, struct poller *p);

/* Plans the next start of the main child, where there is none. */
void gpu_monitor_start_soon(struct gpu_monitor *m);
