/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/orphans.h"

#include <string.h>

#include "agent/audit/audit_internal.h"
#include "agent/os/procfs.h"
#include "agent/shares/slot_owner.h"
#include "share/ledger.h"

enum { OF_DEVICE, OF_CARD };

uint64_t orphans_of(const struct slot_device *d, uint32_t n, uint32_t account) {
    return d->orphaned[account == n ? OF_DEVICE : OF_CARD].now;
}

static unsigned int account_of(uint32_t n, int which) {
    return which == OF_DEVICE ? n : ledger_card_account(n);
}

static int accounts_of(const struct slot *slot, uint32_t n) {
    return ledger_has_card_account(slot_physical(&slot->grant.devices[n]), slot->grant.ndevices)
               ? 2
               : 1;
}

/* UINT64_MAX: not known. */
static uint64_t operation_of(struct slot *slot, uint32_t n) {
    struct ledger_usage u;

    return slot->ledger && ledger_snapshot(slot->ledger, &u) == 0 ? u.operation[n] : UINT64_MAX;
}

static void begin_device(struct slot *slot, uint32_t n) {
    struct slot_device *d = &slot->grant.devices[n];

    d->orphaned_operation = operation_of(slot, n);
    for (int which = 0; which < accounts_of(slot, n); which++) {
        struct orphaned *o = &d->orphaned[which];
        uint64_t bytes = o->now;

        /* In motion: at least what there was, for only this credits any of it. */
        (void) ledger_get_orphaned(slot->ledger, account_of(n, which), &bytes);
        orphaned_begin(o, bytes);
    }
}

void orphans_begin(struct audit *a) {
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t n = 0; slot->ledger && n < slot->grant.ndevices; n++)
            begin_device(slot, n);
}

/* ---- what the card has in use for no process ---- */

static uint64_t less(uint64_t from, uint64_t bytes) {
    return from > bytes ? from - bytes : 0;
}

static uint64_t within_share(const struct slot_device *d, uint64_t bytes) {
    if (d->physical > 0 && bytes > d->physical)
        bytes = d->physical;
    return bytes > d->driver_memory ? bytes : d->driver_memory;
}

static uint64_t claimed(struct slot *slot, uint32_t n) {
    const struct slot_device *d = &slot->grant.devices[n];
    uint32_t account = slot_card_account(slot, n);
    uint64_t booked = 0;
    struct ledger_usage u;

    if (slot->ledger && ledger_snapshot(slot->ledger, &u) == 0)
        booked = less(u.used[account], orphans_of(d, n, account));
    return within_share(d, booked);
}

uint64_t orphans_accounted(const struct slot *slot, uint32_t n) {
    const struct slot_device *d = &slot->grant.devices[n];
    uint64_t all;

    if (__builtin_add_overflow(d->claimed, orphans_of(d, n, slot_card_account(slot, n)), &all))
        all = UINT64_MAX;
    return within_share(d, all);
}

uint64_t orphans_held(const struct slot *slot, uint32_t n) {
    const struct slot_device *d = &slot->grant.devices[n];
    uint64_t orphaned = orphans_of(d, n, slot_card_account(slot, n));
    uint64_t most = less(d->unexplained, d->charged);

    return orphaned < most ? orphaned : most;
}

/* What its own processes hold, and only they: what its ledger has booked for memory that is not on
 * the card must not explain what is held. A process that is ending may have left its memory behind
 * already. */
static uint64_t living_of(struct audit *a, const struct slot *slot, const struct gpu_device *card,
                          uint64_t bytes) {
    for (size_t i = 0; i < card->nprocesses; i++) {
        const struct gpu_process *p = &card->processes[i];

        if (procfs_is_ending((int) p->pid) && slot_of_process(a->shares, p->pid) == slot)
            bytes = less(bytes, p->memory);
    }
    return bytes;
}

static bool device_on(const struct slot *slot, const char *uuid, uint32_t *ret) {
    for (uint32_t n = 0; n < slot->grant.ndevices; n++) {
        *ret = n;
        if (strcmp(slot->grant.devices[n].uuid, uuid) == 0)
            return true;
    }
    return false;
}

/* ---- one card ---- */

/* Credits what is back, in both accounts. */
static bool credit(struct slot *slot, uint32_t n, uint64_t rest, bool still) {
    bool again = false;

    for (int which = 0; which < accounts_of(slot, n); which++) {
        struct orphaned *o = &slot->grant.devices[n].orphaned[which];
        uint64_t back = orphaned_end(o, rest, still);

        if (back > 0)
            (void) ledger_credit(slot->ledger, account_of(n, which), back);
        again |= orphaned_is_new(o);
    }
    return again;
}

/* Whether no ledger with a share of the card has moved since the poll began. */
static bool all_still(struct audit *a, const char *uuid) {
    uint32_t n;

    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        if (slot->ledger && device_on(slot, uuid, &n) &&
            (slot->grant.devices[n].orphaned_operation == UINT64_MAX ||
             slot->grant.devices[n].orphaned_operation != operation_of(slot, n)))
            return false;
    return true;
}

/* What a container has orphaned may be all that the card has in use beyond what is certain to be
 * others': what the others have orphaned is not, for it may be back. */
static bool credit_unexplained(struct audit *a, struct slot *slot, uint32_t n,
                               const struct gpu_device *card, uint64_t certain, bool still) {
    struct slot_device *d = &slot->grant.devices[n];
    uint64_t used = card->sample.memory_most;

    d->unexplained = less(used, certain - d->claimed + living_of(a, slot, card, d->driver_memory));
    return slot->ledger && credit(slot, n, d->unexplained, still);
}

static bool settle_card(struct audit *a, uint32_t at, const struct gpu_device *card) {
    bool again = false, still = all_still(a, card->uuid);
    uint64_t certain = a->outside[at];
    uint32_t n;

    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        if (!device_on(slot, card->uuid, &n))
            continue;
        slot->grant.devices[n].claimed = claimed(slot, n);
        certain += slot->grant.devices[n].claimed;
    }
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        if (device_on(slot, card->uuid, &n))
            again |= credit_unexplained(a, slot, n, card, certain, still);
    return again;
}

bool orphans_end(struct audit *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    bool again = false;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (gpu_can_be_audited(&s->devices[i]))
            again |= settle_card(a, i, &s->devices[i]);
    return again;
}
