/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/orphans.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/run/card_use.h"
#include "cli/run/driver_calls.h"
#include "cli/run/node_holders.h"
#include "cli/run/proc_stat.h"
#include "cli/run/run_shares.h"
#include "share/limits.h"
#include "share/orphaned.h"
#include "share/unattributed.h"

/* Interval of polls; crediting takes two of them. */
#define POLL_NS 100000000
/* After a driver that did not answer. */
#define RETRY_S 1
/* Polls after a ledger has changed: memory of a process that ends leaves the driver's list
 * some time after it has left the ledger. */
#define POLLS_AFTER 10

static struct {
    char path[96];
    struct share_limits share;
    uint32_t running;
    struct orphaned account[LEDGER_DEVICES];
    struct device {
        uint64_t baseline;  /* bytes in use for no listed process before the run */
        uint64_t operation; /* the ledger's at the last poll */
        uint32_t polls;     /* remaining */
        struct unattributed found;
    } device[LIMITS_DEVICES_MAX];
} watch;

/* ---- the ledger ---- */

/* Whether anything is orphaned, or was booked since the last poll. */
static bool has_changed(struct ledger *ledger) {
    struct ledger_usage u;
    uint64_t bytes = 0;

    if (ledger_snapshot(ledger, &u) < 0)
        return false;
    for (uint32_t i = 0; i < watch.share.ndevices; i++)
        if (u.operation[i] != watch.device[i].operation ||
            (ledger_get_orphaned(ledger, i, &bytes) == 0 && bytes > 0))
            return true;
    return false;
}

static bool has_card_account(uint32_t device) {
    return ledger_has_card_account(watch.share.more[device].physical_bytes, watch.share.ndevices);
}

static bool begin_account(struct ledger *ledger, unsigned int account) {
    struct orphaned *o = &watch.account[account];
    uint64_t bytes = o->now;

    /* The account changes meanwhile, but only this thread subtracts from it. */
    (void) ledger_get_orphaned(ledger, account, &bytes);
    orphaned_begin(o, bytes);
    return o->now > 0;
}

static void end_account(struct ledger *ledger, unsigned int account, uint64_t rest, bool still) {
    uint64_t back = orphaned_end(&watch.account[account], rest, still);

    if (back > 0)
        (void) ledger_credit(ledger, account, back);
}

/* Whether nothing was booked since `before`. */
static bool is_unchanged(struct ledger *ledger, const struct ledger_usage *before,
                         uint32_t device) {
    struct ledger_usage now;

    return ledger_snapshot(ledger, &now) == 0 && now.operation[device] == before->operation[device];
}

/* ---- other runs ---- */

struct sum {
    const char *uuid;
    uint64_t bytes;
};

static void add_run(const struct run_share *place, void *userdata) {
    struct share_limits limits;
    struct sum *sum = userdata;
    struct ledger *ledger;
    char path[96];
    struct err err;

    run_shares_path(place->dir, "limits", path);
    if (place->machine != run_shares_machine() || limits_read(path, &limits, &err) < 0)
        return;
    run_shares_path(place->dir, "ledger", path);
    if (strcmp(path, watch.path) == 0 || ledger_open(path, &ledger, &err) < 0)
        return;
    for (uint32_t i = 0; i < limits.ndevices; i++) {
        uint64_t bytes = 0;

        if (strcmp(limits.device[i].uuid, sum->uuid) == 0 &&
            ledger_get_orphaned(ledger, i, &bytes) == 0)
            sum->bytes += bytes;
    }
    (void) ledger_free(ledger);
}

/* Bytes of a card that other runs of this user have orphaned. */
static uint64_t other_runs_orphaned(const char *uuid) {
    struct sum sum = {.uuid = uuid};

    run_shares_each(add_run, &sum);
    return sum.bytes;
}

/* ---- the thread ---- */

/* Memory that belongs to no listed process and that no ledger has, at several polls, is booked if a
 * process of the command can hold it. Returns whether there may be some. */
static bool find_orphaned(struct ledger *ledger, uint32_t i, const struct card_use *use,
                          bool still) {
    struct device *d = &watch.device[i];
    struct unattributed_poll l = {.now_ms = clock_ms(CLOCK_MONOTONIC),
                                  .used = use->least,
                                  .attributed = d->baseline + watch.account[i].now,
                                  .still = still};
    bool again;

    if (l.used > l.attributed + UNATTRIBUTED_NOISE)
        l.attributed +=
            node_holders_any(use) ? other_runs_orphaned(watch.share.device[i].uuid) : l.used;
    again = unattributed_poll(&d->found, &l);
    if (d->found.bytes == 0)
        return again;
    (void) ledger_charge(ledger, i, d->found.bytes);
    if (has_card_account(i))
        (void) ledger_charge(ledger, ledger_card_account(i), d->found.bytes);
    d->found = (struct unattributed){0};
    return true;
}

/* Bytes that processes of the command hold and no slot has: orphaned memory that one of them has
 * imported again is the process's for the driver, and not back. */
static uint64_t held_beyond(const struct card_use *use, uint64_t in_slots) {
    uint64_t held = 0;

    for (size_t i = 0; i < use->npids; i++)
        if (proc_descends(use->pids[i]))
            held += use->bytes[i];
    return held > in_slots ? held - in_slots : 0;
}

/* Returns whether it has to be polled again. */
static bool audit_card(struct ledger *ledger, void *nvml, uint32_t i) {
    struct device *d = &watch.device[i];
    bool again = begin_account(ledger, i), still;
    struct ledger_usage before;
    struct card_use use;
    uint64_t held;

    if (has_card_account(i))
        again |= begin_account(ledger, ledger_card_account(i));
    if (ledger_snapshot(ledger, &before) < 0)
        return again;
    if (before.operation[i] != d->operation)
        d->polls = POLLS_AFTER;
    d->operation = before.operation[i];
    again |= d->polls > 0;
    d->polls -= d->polls > 0;
    if (!again || !card_use_read_uuid(nvml, watch.share.device[i].uuid, &use))
        return again;
    still = is_unchanged(ledger, &before, i);
    held = use.most + held_beyond(&use, before.used[i] - watch.account[i].now);
    end_account(ledger, i, held, still);
    if (has_card_account(i))
        end_account(ledger, ledger_card_account(i), held, still);
    return find_orphaned(ledger, i, &use, still) || again;
}

static bool audit_cards(struct ledger *ledger, void *nvml) {
    bool again = false;

    (void) ledger_sweep(ledger);
    for (uint32_t i = 0; i < watch.share.ndevices; i++)
        again |= audit_card(ledger, nvml, i);
    return again;
}

static void *audit_thread(void *arg) {
    const struct timespec pause = {.tv_nsec = POLL_NS};
    struct ledger *ledger = NULL;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool failed = !nvml;
    struct err err;

    (void) arg;
    if (nvml && ledger_open(watch.path, &ledger, &err) == 0) {
        LOOK_UP(nvml, nvmlInit_v2);
        LOOK_UP(nvml, nvmlShutdown);

        if (nvmlInit_v2 && nvmlShutdown && nvmlInit_v2() == NVML_SUCCESS) {
            while (audit_cards(ledger, nvml))
                (void) nanosleep(&pause, NULL);
            (void) nvmlShutdown();
        } else {
            failed = true;
        }
    }
    (void) ledger_free(ledger);
    if (failed)
        (void) sleep(RETRY_S);
    __atomic_store_n(&watch.running, 0, __ATOMIC_RELEASE);
    return NULL;
}

void orphans_begin(const char *path, const struct share_limits *share,
                   const uint64_t baseline[static LIMITS_DEVICES_MAX]) {
    (void) snprintf(watch.path, sizeof(watch.path), "%s", path);
    watch.share = *share;
    for (uint32_t i = 0; i < LIMITS_DEVICES_MAX; i++)
        watch.device[i].baseline = baseline[i];
}

void orphans_poll(struct ledger *ledger) {
    sigset_t all, before;
    pthread_t thread;

    if (__atomic_load_n(&watch.running, __ATOMIC_ACQUIRE) || !has_changed(ledger))
        return;
    __atomic_store_n(&watch.running, 1, __ATOMIC_RELEASE);
    (void) sigfillset(&all);
    (void) sigdelset(&all, SIGBUS); /* a truncated ledger */
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, audit_thread, NULL) == 0)
        (void) pthread_detach(thread);
    else
        __atomic_store_n(&watch.running, 0, __ATOMIC_RELEASE);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
}
