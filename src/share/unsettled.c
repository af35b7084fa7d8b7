/* SPDX-License-Identifier: Apache-2.0 */
#include "share/unsettled.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>

/* A container that shows COMPUTE_PROCESSES processes does not slow the arbiter. */
#define POLLS_MAX 128u

/* The state of a process at the last step. */
struct unsettled_process {
    uint64_t own_ns;   /* `own_ns` of the container at that step */
    uint64_t moved_ns; /* when the counter was seen to have moved */
    uint64_t ran_ns;   /* what its work can have had of the card since then */
    uint64_t added_ns; /* what was charged for that */
    uint32_t moves;
    bool still; /* it has not moved since the step before */
};

void unsettled_done(struct unsettled *unsettled) {
    free(unsettled->process);
    unsettled->process = NULL;
    unsettled->reserved = 0;
}

uint32_t unsettled_count(const struct compute_file *file) {
    uint32_t n = __atomic_load_n(&file->processes, __ATOMIC_RELAXED);

    return n < COMPUTE_PROCESSES ? n : COMPUTE_PROCESSES;
}

bool unsettled_reserve(struct unsettled *unsettled, uint32_t n) {
    uint32_t room = unsettled->reserved ? unsettled->reserved : 8;
    struct unsettled_process *process;

    if (n <= unsettled->reserved)
        return true;
    while (room < n)
        room *= 2;
    process = realloc(unsettled->process, room * sizeof(*process));
    if (!process)
        return false;
    memset(process + unsettled->reserved, 0, (room - unsettled->reserved) * sizeof(*process));
    unsettled->process = process;
    unsettled->reserved = room;
    return true;
}

void unsettled_pass(struct unsettled *unsettled, uint64_t passed_ns, uint64_t others_ns,
                    uint32_t neighbours) {
    uint64_t least = passed_ns / (1ull + neighbours);
    uint64_t own = others_ns < passed_ns ? passed_ns - others_ns : 0;

    unsettled->own_before_ns = unsettled->own_ns;
    unsettled->own_ns += own > least ? own : least;
}

static void set_still(struct unsettled *unsettled, struct unsettled_process *p, bool still) {
    if (p->still != still)
        unsettled->still += still ? 1u : UINT32_MAX;
    p->still = still;
}

static void forget_work(struct unsettled *unsettled, struct unsettled_process *p) {
    set_still(unsettled, p, false);
    unsettled->pending_ns -= p->added_ns;
    p->moves = 0;
    p->ran_ns = p->added_ns = 0;
}

/* Returns how much. */
static uint64_t charge(struct unsettled_process *p, struct compute_device *account,
                       struct compute_work *work, uint64_t *charged_ns) {
    uint64_t ahead = __atomic_load_n(&work->ahead, __ATOMIC_RELAXED) * 1000ull, ns;

    if (p->ran_ns <= ahead + p->added_ns || p->added_ns >= UNSETTLED_MAX_NS)
        return 0;
    ns = p->ran_ns - ahead - p->added_ns;
    if (ns > UNSETTLED_MAX_NS - p->added_ns)
        ns = UNSETTLED_MAX_NS - p->added_ns;
    __atomic_fetch_add(&account->charged, ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&work->added, ns, __ATOMIC_ACQUIRE);
    /* Behind the accesses to the file, either of which may end the caller's step. */
    p->added_ns += ns;
    *charged_ns += ns;
    return ns;
}

/* Ends what a dead process has on this card, and its place when that was the last. */
static void end_process(const struct unsettled *unsettled, struct compute_file *file,
                        uint32_t index, uint32_t device, uint32_t owner) {
    struct compute_work *work = file->work[index];

    __atomic_store_n(&work[device].added, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&work[device].moves, 0, __ATOMIC_RELAXED);
    compute_release_held(file, index, device);
    for (uint32_t i = 0; i < COMPUTE_DEVICES; i++)
        if ((unsettled->devices >> i & 1) && (__atomic_load_n(&work[i].moves, __ATOMIC_RELAXED) ||
                                              __atomic_load_n(&work[i].held, __ATOMIC_RELAXED)))
            return;
    (void) __atomic_compare_exchange_n(&file->owner[index], &owner, 0, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}

static void poll_process(struct unsettled *unsettled, struct compute_file *file, uint32_t index,
                         uint32_t device, uint64_t now_ns) {
    struct unsettled_process *p = &unsettled->process[index];
    uint32_t owner = __atomic_load_n(&file->owner[index], __ATOMIC_ACQUIRE);
    struct compute_work *work = &file->work[index][device];
    uint32_t moves = owner ? __atomic_load_n(&work->moves, __ATOMIC_ACQUIRE) : 0;
    /* Work that is new here began after the step before this one. */
    uint64_t since = p->moves ? p->own_ns : unsettled->own_before_ns;
    uint64_t passed = unsettled->own_ns - since;
    bool dead = (owner & FUTEX_OWNER_DIED) != 0;

    p->own_ns = unsettled->own_ns;
    if (moves != p->moves) {
        forget_work(unsettled, p);
        p->moves = moves;
        p->moved_ns = now_ns;
    }
    if (moves && (dead || p->moved_ns != now_ns)) {
        set_still(unsettled, p, true);
        p->ran_ns += passed / unsettled->still;
        if (dead || now_ns - p->moved_ns > UNSETTLED_NS)
            unsettled->pending_ns += charge(p, &file->device[device], work, &unsettled->charged_ns);
    }
    if (!dead)
        return;
    forget_work(unsettled, p);
    end_process(unsettled, file, index, device, owner);
}

void unsettled_step(struct unsettled *unsettled, struct compute_file *file, uint32_t device,
                    uint64_t now_ns) {
    uint32_t n = unsettled_count(file);

    /* It may have grown since room was made. */
    n = n < unsettled->reserved ? n : unsettled->reserved;
    for (uint32_t i = 0; i < n && i < POLLS_MAX; i++) {
        if (unsettled->next >= n)
            unsettled->next = 0;
        poll_process(unsettled, file, unsettled->next++, device, now_ns);
    }
}
