/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/account.h"

#include "share/cas128.h"

/* Smaller steps would lose fractions, and processes would contend for the word. */
#define STEP_MIN_NS 1000u

/* Longer times count as this, which exceeds any depth. Keeps the products within 64 bits. */
#define PASSED_MAX_NS 1000000000000ull

/* A clock that was read just now is not further than this behind that of another process. */
#define BEHIND_MAX_NS 1000000000ull

/* No thread is woken later than this. */
#define LATE_NS 200000000ull

/* Shorter sleeps cost more than they gain; the time of a sleep that is too long is not lost but
 * kept by the account. */
#define SLEEP_MIN_NS 300000ull

/* The bell is rung when a process begins to wait: when it has not waited for this long. */
#define RING_NS 60000000ull

void account_correct(struct account *account, int64_t ns) {
    if (ns == 0)
        return;
    __atomic_fetch_add(&account->shared->charged, (uint64_t) ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&account->shared->corrected, (uint64_t) (ns < 0 ? -ns : ns),
                       __ATOMIC_RELAXED);
}

/* An arbiter that has stopped beating, by this process's own clock, is gone; one that comes back is
 * there again at its first beat. */
static bool governed(struct account *account, uint64_t now) {
    uint64_t beat, seen = __atomic_load_n(&account->beat_ns, __ATOMIC_RELAXED);

    if (!account->grants)
        return false;
    beat = __atomic_load_n(&account->grants->beat, __ATOMIC_ACQUIRE);
    if (beat != __atomic_load_n(&account->beat, __ATOMIC_RELAXED)) {
        __atomic_store_n(&account->beat, beat, __ATOMIC_RELAXED);
        __atomic_store_n(&account->beat_ns, now, __ATOMIC_RELAXED);
        return true;
    }
    /* Zero: no arbiter has ever written the file. */
    return beat != 0 && (int64_t) (now - seen) < (int64_t) ARBITER_GONE_NS;
}

struct account_terms account_terms(struct account *account, uint32_t own_rate, uint64_t now_ns) {
    struct account_terms terms = {.rate = own_rate ? own_rate : RATE_UNLIMITED,
                                  .depth = ACCOUNT_DEPTH_NS};

    if (!governed(account, now_ns))
        return terms;
    terms.rate = __atomic_load_n(&account->grant->rate, __ATOMIC_RELAXED);
    terms.depth = __atomic_load_n(&account->grant->depth, __ATOMIC_RELAXED);
    terms.window = __atomic_load_n(&account->grant->window, __ATOMIC_RELAXED);
    /* The arbiter has not stepped this card yet. */
    if (terms.rate == 0)
        terms.rate = own_rate ? own_rate : RATE_UNLIMITED;
    if (terms.depth == 0 || terms.depth > ACCOUNT_DEBT_MAX_NS)
        terms.depth = ACCOUNT_DEPTH_NS;
    return terms;
}

/* How much unused time the account keeps. While a launch waits, the time that passes is in demand:
 * a thread that is woken late must not lose it. */
static uint64_t depth_of(const struct account *account, const struct account_terms *terms) {
    int64_t held = (int64_t) __atomic_load_n(&account->shared->held, __ATOMIC_RELAXED);

    return held > 0 && terms->depth < LATE_NS ? LATE_NS : terms->depth;
}

/* What the word becomes at `now`. */
static struct ledger_word filled_at(struct ledger_word old, const struct account_terms *terms,
                                    uint64_t charged, uint64_t depth, uint64_t now) {
    uint64_t passed = now - old.hi, top = charged + depth;
    struct ledger_word next = {.lo = old.lo, .hi = now};

    /* Without a limit the account keeps nothing: a limit that is set later counts from its first
     * launch. */
    if (terms->rate == RATE_UNLIMITED)
        next.lo = charged;
    else if (old.hi == 0)
        next.lo = top;
    else if (old.hi < now)
        next.lo += (passed < PASSED_MAX_NS ? passed : PASSED_MAX_NS) / 1000 * terms->rate / 1000;
    if ((int64_t) (next.lo - top) > 0)
        next.lo = top;
    if (charged - next.lo > ACCOUNT_DEBT_MAX_NS && (int64_t) (charged - next.lo) > 0)
        next.lo = charged - ACCOUNT_DEBT_MAX_NS;
    return next;
}

uint64_t account_fill(struct account *account, const struct account_terms *terms, uint64_t now_ns) {
    struct ledger_word *filled = &account->shared->filled, old = word_load(filled);

    /* A time a little ahead was read by another process after ours: to go back to ours would count
     * the time between the two twice. A time far ahead is of another clock, or forged: begin again.
     */
    while (now_ns - old.hi >= STEP_MIN_NS && old.hi - now_ns >= BEHIND_MAX_NS) {
        uint64_t charged = __atomic_load_n(&account->shared->charged, __ATOMIC_RELAXED);
        struct ledger_word next = filled_at(old, terms, charged, depth_of(account, terms), now_ns);

        if (word_swap(filled, &old, next)) {
            old = next;
            break;
        }
    }
    __atomic_store_n(&account->pass, old.lo + (terms->rate == RATE_UNLIMITED ? terms->depth : 0),
                     __ATOMIC_RELAXED);
    return old.lo;
}

uint64_t account_wait(struct account *account, const struct account_terms *terms, uint64_t place,
                      uint64_t now_ns, bool *ret_ring) {
    uint64_t filled = account_fill(account, terms, now_ns), ns;
    int64_t lacking = (int64_t) (place - filled);

    *ret_ring = false;
    if (lacking <= 0 || terms->rate == RATE_UNLIMITED)
        return 0;
    __atomic_fetch_add(&account->shared->waits, 1, __ATOMIC_RELAXED);
    if (account->bell && now_ns - account->rung_ns > RING_NS) {
        __atomic_fetch_add(account->bell, 1, __ATOMIC_RELEASE);
        *ret_ring = true;
    }
    __atomic_store_n(&account->rung_ns, now_ns, __ATOMIC_RELAXED);
    ns = (uint64_t) lacking >= COMPUTE_WAIT_NS ? COMPUTE_WAIT_NS
                                               : (uint64_t) lacking * RATE_WHOLE / terms->rate;
    if (ns < SLEEP_MIN_NS)
        return SLEEP_MIN_NS;
    return ns < COMPUTE_WAIT_NS ? ns : COMPUTE_WAIT_NS;
}
