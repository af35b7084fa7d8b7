/* SPDX-License-Identifier: Apache-2.0 */
#include "share/arbiter.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define CARDS_MAX 64
#define WORDS_MAX 128 /* that futex_waitv takes */
#define BEAT_NS (ARBITER_BEAT_NS * 9 / 10)
#define LOAD_BEATS 10 /* a second, more or less */
/* How often bells are read where the thread cannot sleep on them: no futex_waitv, or too many. */
#define POLL_NS 10000000u
/* Cards that are due within this time are stepped now, so that they are stepped together. */
#define TOGETHER_NS 4000000u
/* A bell that has rung is ignored for a moment, and each time for longer if its container has no
 * demand: a tenant that rings all the time costs next to nothing. */
#define MUTE_FIRST_NS 10000000u
#define MUTE_MAX_NS 1000000000u
#define EMPTY_NS 3600000000000u /* without a member; one that joins wakes the thread */
#define STACK_BYTES (128u << 10)

/* The member to which a tenant of a card belongs. */
struct seat {
    struct arbiter_member *member;
    uint32_t device;                /* of the member's share */
    bool damaged;                   /* its account could not be read */
    uint32_t load;                  /* what it took over the last LOAD_BEATS, ppm */
    uint64_t stepped_ns, others_ns; /* of the last step, and what others had taken by then */
    struct unsettled unsettled;
    struct compute_launch launch; /* the last one, and what the account has been since */
    uint64_t unsettled_ns;        /* of unsettled.charged_ns, what is in launch.charged */
};

struct card {
    char uuid[48];
    struct arbitration_tenant *tenants; /* and seats: side by side */
    struct seat *seats;
    size_t n, cap;
    uint64_t due; /* when to step it */
};

struct arbiter_member {
    struct arbiter *of;
    struct arbiter_member *prev, *next;
    struct compute *compute;
    struct card *card[COMPUTE_DEVICES]; /* of each device; NULL: left out */
    uint32_t ndevices;
    uint32_t bell;    /* its value when it was last read */
    bool rung;        /* it has moved, and the step that follows has not been evaluated */
    bool gone;        /* its bell cannot be read */
    uint64_t mute_ns; /* the latest silence */
    uint64_t muted_until;
};

struct arbiter {
    pthread_mutex_t mutex;
    pthread_t thread;
    uint32_t called; /* futex word: something has changed */
    bool ending;
    bool no_waitv;
    bool overfull; /* more bells than can be slept on */
    struct card *card[CARDS_MAX];
    size_t ncards;
    struct arbiter_member *members;
    uint64_t beat_due;
    struct arbiter_stats stats;
    /* What the thread sleeps on; its own. */
    struct futex_waitv words[WORDS_MAX];
    struct arbiter_member *ringers[WORDS_MAX]; /* compared, not followed, after a sleep */
    unsigned int nwords;
};

/* ---- cards and their tenants ---- */

static struct card *card_of(struct arbiter *a, const char *uuid) {
    struct card *card;

    for (size_t i = 0; i < a->ncards; i++)
        if (strncmp(a->card[i]->uuid, uuid, sizeof(a->card[i]->uuid)) == 0)
            return a->card[i];
    card = a->ncards < CARDS_MAX ? calloc(1, sizeof(*card)) : NULL;
    if (!card)
        return NULL;
    memcpy(card->uuid, uuid, sizeof(card->uuid));
    a->card[a->ncards++] = card;
    return card;
}

static void card_free(struct card *card) {
    for (size_t i = 0; i < card->n; i++)
        unsettled_done(&card->seats[i].unsettled);
    free(card->tenants);
    free(card->seats);
    free(card);
}

static bool card_grow(struct card *card) {
    size_t cap = card->cap ? 2 * card->cap : 4;
    struct arbitration_tenant *tenants = realloc(card->tenants, cap * sizeof(*tenants));
    struct seat *seats;

    if (!tenants)
        return false;
    card->tenants = tenants;
    seats = realloc(card->seats, cap * sizeof(*seats));
    if (!seats)
        return false;
    card->seats = seats;
    card->cap = cap;
    return true;
}

/* The account of a share that has no launch yet is 0; what others than this version have had is
 * not known. */
static struct compute_launch launch_before(const struct compute *compute, uint32_t device) {
    struct compute_usage usage = {0};
    struct compute_launch ret;

    compute_kept_launch(compute, device, &ret);
    if (ret.at_ns == 0 && compute_read(compute, device, &usage) == 0)
        ret.charged = usage.charged;
    return ret;
}

static bool card_add(struct card *card, struct arbiter_member *m, uint32_t device) {
    if (card->n == card->cap && !card_grow(card))
        return false;
    memset(&card->tenants[card->n], 0, sizeof(card->tenants[0]));
    card->seats[card->n++] =
        (struct seat){.member = m, .device = device, .launch = launch_before(m->compute, device)};
    card->due = 0;
    return true;
}

static void card_remove(struct card *card, const struct arbiter_member *m) {
    for (size_t i = card->n; i-- > 0;) {
        if (card->seats[i].member != m)
            continue;
        unsettled_done(&card->seats[i].unsettled);
        card->n--;
        card->seats[i] = card->seats[card->n];
        card->tenants[i] = card->tenants[card->n];
    }
    card->due = 0;
}

static struct arbitration_tenant *tenant_of(const struct arbiter_member *m, uint32_t device) {
    struct card *card = device < m->ndevices ? m->card[device] : NULL;

    for (size_t i = 0; card && i < card->n; i++)
        if (card->seats[i].member == m && card->seats[i].device == device)
            return &card->tenants[i];
    return NULL;
}

/* ---- a turn ---- */

static uint64_t devices_of(const struct arbiter_member *m) {
    uint64_t devices = 0;

    for (uint32_t d = 0; d < m->ndevices; d++)
        devices |= m->card[d] ? 1ull << d : 0;
    return devices;
}

/* Charges for processes that are stopped or dead. */
static void charge_unsettled(struct seat *seat, struct arbitration_tenant *t, uint64_t now) {
    if (seat->stepped_ns)
        unsettled_pass(&seat->unsettled, now - seat->stepped_ns, t->grant.others - seat->others_ns,
                       t->grant.neighbours);
    seat->stepped_ns = now;
    seat->others_ns = t->grant.others;
    /* As of the step before: a container without such processes costs nothing here. */
    if (!t->usage.processes || !unsettled_reserve(&seat->unsettled, t->usage.processes))
        return;
    seat->unsettled.devices = devices_of(seat->member);
    compute_settle(seat->member->compute, seat->device, &seat->unsettled, now);
    t->pending_ns = seat->unsettled.pending_ns;
}

/* An account that has moved, and not by the arbiter alone: there were launches since the last step,
 * or some of those before have been measured. */
static void note_launches(struct seat *seat, uint64_t charged) {
    seat->launch.charged += seat->unsettled.charged_ns - seat->unsettled_ns;
    seat->unsettled_ns = seat->unsettled.charged_ns;
    if (seat->launch.charged != charged)
        seat->launch =
            (struct compute_launch){.at_ns = clock_ns(CLOCK_REALTIME), .charged = charged};
}

static void step_card(struct arbiter *a, struct card *card, uint64_t now) {
    for (size_t i = 0; i < card->n; i++) {
        struct seat *seat = &card->seats[i];

        charge_unsettled(seat, &card->tenants[i], now);
        /* An account that cannot be read does not move: its container counts as idle. */
        seat->damaged =
            compute_read(seat->member->compute, seat->device, &card->tenants[i].usage) < 0;
        seat->member->gone = seat->member->gone && seat->damaged;
        if (!seat->damaged)
            note_launches(seat, card->tenants[i].usage.charged);
    }
    card->due = now + arbitration_step(card->tenants, card->n, now);
    for (size_t i = 0; i < card->n; i++) {
        const struct arbitration_tenant *t = &card->tenants[i];
        struct seat *seat = &card->seats[i];

        if (t->changed)
            compute_grant(seat->member->compute, seat->device, &t->grant);
        if (t->unpaid_ns)
            compute_charge(seat->member->compute, seat->device, t->unpaid_ns);
        seat->launch.charged += t->unpaid_ns;
        compute_keep_launch(seat->member->compute, seat->device, &seat->launch);
    }
    a->stats.steps++;
}

static bool member_active(const struct arbiter_member *m, bool *ret_everywhere) {
    bool any = false, all = true;

    for (uint32_t d = 0; d < m->ndevices; d++) {
        const struct arbitration_tenant *t = tenant_of(m, d);

        any = any || (t && t->active);
        all = all && (!t || t->active);
    }
    if (ret_everywhere)
        *ret_everywhere = all;
    return any;
}

/* If the bell has rung since it was last read, its cards are due. */
static void listen_to(struct arbiter *a, struct arbiter_member *m, uint64_t now) {
    uint32_t value;

    if (m->muted_until > now || m->gone)
        return;
    m->gone = compute_bell_value(m->compute, &value) < 0;
    if (m->gone || value == m->bell)
        return;
    m->bell = value;
    m->rung = true;
    a->stats.rings++;
    for (uint32_t d = 0; d < m->ndevices; d++)
        if (m->card[d])
            m->card[d]->due = now;
}

/* After the step that follows a ring. */
static void judge_ring(struct arbiter_member *m, uint64_t now) {
    if (!m->rung)
        return;
    m->rung = false;
    if (member_active(m, NULL)) {
        /* It may be active on one card and ring for another: the latter is stepped as often. */
        m->mute_ns = 0;
        m->muted_until = now + MUTE_FIRST_NS;
        return;
    }
    m->mute_ns = m->mute_ns == 0 ? MUTE_FIRST_NS : 2 * m->mute_ns;
    if (m->mute_ns > MUTE_MAX_NS)
        m->mute_ns = MUTE_MAX_NS;
    m->muted_until = now + m->mute_ns;
}

static void say_load(struct card *card) {
    for (size_t i = 0; i < card->n; i++) {
        struct seat *seat = &card->seats[i];

        seat->load = (seat->load * (LOAD_BEATS - 1) + card->tenants[i].taken) / LOAD_BEATS;
        compute_load(seat->member->compute, seat->device, seat->load);
    }
}

static void beat(struct arbiter *a, uint64_t now) {
    if (now < a->beat_due)
        return;
    for (size_t i = 0; i < a->ncards; i++)
        say_load(a->card[i]);
    for (struct arbiter_member *m = a->members; m; m = m->next)
        compute_beat(m->compute);
    a->beat_due = now + BEAT_NS;
}

/* Steps what is due; returns when there is something to do again. */
static uint64_t step_cards(struct arbiter *a, uint64_t now) {
    uint64_t next = a->beat_due;

    for (size_t i = 0; i < a->ncards; i++) {
        struct card *card = a->card[i];

        if (card->n == 0)
            continue;
        if (card->due <= now + TOGETHER_NS)
            step_card(a, card, now);
        if (card->due < next)
            next = card->due;
    }
    return next;
}

/* ---- sleeping ---- */

static void add_word(struct arbiter *a, struct arbiter_member *m, uint32_t *word, uint32_t value) {
    a->ringers[a->nwords] = m;
    a->words[a->nwords++] =
        (struct futex_waitv){.val = value, .uaddr = (uint64_t) (uintptr_t) word, .flags = FUTEX_32};
}

/* Collects the futexes to wait on: that of every container without known demand, and our own.
 * Returns false when they exceed the maximum of futex_waitv. */
static bool collect_words(struct arbiter *a, uint64_t now) {
    bool everywhere, all = true;

    a->nwords = 0;
    for (struct arbiter_member *m = a->members; m; m = m->next) {
        (void) member_active(m, &everywhere);
        if (everywhere || m->gone || m->muted_until > now)
            continue;
        if (a->nwords < WORDS_MAX)
            add_word(a, m, compute_bell(m->compute), m->bell);
        else
            all = false;
    }
    if (a->nwords < WORDS_MAX)
        add_word(a, NULL, &a->called, __atomic_load_n(&a->called, __ATOMIC_RELAXED));
    return all;
}

/* Sleeps, without the mutex, until a word moves or the time has come. Returns which word, -EAGAIN:
 * one of them, -ETIMEDOUT: none. */
static int sleep_until(struct arbiter *a, uint64_t until) {
    struct timespec t = {.tv_sec = (time_t) (until / 1000000000u),
                         .tv_nsec = (long) (until % 1000000000u)};

    if (!a->no_waitv) {
        long r = syscall(SYS_futex_waitv, a->words, a->nwords, 0, &t, CLOCK_MONOTONIC);

        if (r >= 0 || errno == ETIMEDOUT)
            return r >= 0 ? (int) r : -ETIMEDOUT;
        /* EFAULT: a file was truncated under its bell. Without futex_waitv the next turn has to
         * find the end of the sleep: `until` may be an hour away, and nothing ends a plain sleep.
         */
        a->no_waitv = errno != EAGAIN && errno != EINTR && errno != EFAULT;
        return -EAGAIN;
    }
    (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    return -EAGAIN;
}

static void listen_to_all(struct arbiter *a, uint64_t now) {
    for (struct arbiter_member *m = a->members; m; m = m->next)
        listen_to(a, m, now);
}

/* `woken` may have left since the sleep began. */
static void listen_to_member(struct arbiter *a, const struct arbiter_member *woken, uint64_t now) {
    for (struct arbiter_member *m = a->members; m; m = m->next)
        if (m == woken)
            listen_to(a, m, now);
}

/* ---- the thread ---- */

/* Reads what has changed; returns until when there is nothing to do. `woken`: the result of
 * sleep_until. */
static uint64_t turn(struct arbiter *a, int woken) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC), next;

    if (woken >= 0)
        listen_to_member(a, a->ringers[woken], now);
    else if (woken == -EAGAIN || a->overfull)
        listen_to_all(a, now);
    beat(a, now);
    next = step_cards(a, now);
    for (struct arbiter_member *m = a->members; m; m = m->next)
        judge_ring(m, now);
    a->overfull = !collect_words(a, now);
    a->stats.turns++;
    a->stats.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!a->members && !a->no_waitv)
        return now + EMPTY_NS;
    return (a->overfull || a->no_waitv) && next > now + POLL_NS ? now + POLL_NS : next;
}

static void *run(void *arg) {
    struct arbiter *a = arg;
    int woken = -ETIMEDOUT;

    (void) pthread_mutex_lock(&a->mutex);
    while (!a->ending) {
        uint64_t until = turn(a, woken);

        (void) pthread_mutex_unlock(&a->mutex);
        woken = sleep_until(a, until);
        (void) pthread_mutex_lock(&a->mutex);
    }
    (void) pthread_mutex_unlock(&a->mutex);
    return NULL;
}

/* Wakes the thread; with the mutex. */
static void call(struct arbiter *a) {
    (void) __atomic_add_fetch(&a->called, 1, __ATOMIC_RELEASE);
    (void) syscall(SYS_futex, &a->called, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Signals are for other threads of the program; faults of this one are handled here. */
static int create_thread(struct arbiter *a) {
    pthread_attr_t attr;
    sigset_t most, before;
    int r;

    (void) sigfillset(&most);
    (void) sigdelset(&most, SIGBUS);
    (void) sigdelset(&most, SIGSEGV);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void) pthread_sigmask(SIG_BLOCK, &most, &before);
    r = pthread_create(&a->thread, &attr, run, a);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy(&attr);
    return r;
}

int arbiter_start(struct arbiter **ret, struct err *err) {
    struct arbiter *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return err_errno(err, ENOMEM, "cannot start the arbiter");
    (void) pthread_mutex_init(&a->mutex, NULL);
    r = create_thread(a);
    if (r != 0) {
        (void) pthread_mutex_destroy(&a->mutex);
        free(a);
        return err_errno(err, r, "cannot start the arbiter");
    }
    *ret = a;
    return 0;
}

static void member_free(struct arbiter_member *m) {
    compute_free(m->compute);
    free(m);
}

struct arbiter *arbiter_stop(struct arbiter *a) {
    struct arbiter_member *m, *next;

    if (!a)
        return NULL;
    (void) pthread_mutex_lock(&a->mutex);
    a->ending = true;
    call(a);
    (void) pthread_mutex_unlock(&a->mutex);
    (void) pthread_join(a->thread, NULL);
    DL_FOREACH_SAFE(a->members, m, next)
        member_free(m);
    for (size_t i = 0; i < a->ncards; i++)
        card_free(a->card[i]);
    (void) pthread_mutex_destroy(&a->mutex);
    free(a);
    return NULL;
}

/* ---- members ---- */

static void set_tenant(struct arbitration_tenant *t, const struct share_device *d) {
    t->policy = d->policy < SHARE_POLICIES ? (enum share_policy) d->policy : SHARE_DEFAULT;
    t->share_percent = d->core_percent;
    t->ceiling_percent = d->ceiling_percent;
    t->weight = d->weight;
}

static void set_tenants(struct arbiter_member *m, const struct share_limits *limits) {
    for (uint32_t i = 0; i < m->ndevices && i < limits->ndevices; i++) {
        struct arbitration_tenant *t = tenant_of(m, i);

        if (!t)
            continue;
        set_tenant(t, &limits->device[i]);
        m->card[i]->due = 0;
    }
}

static void take_in(struct arbiter *a, struct arbiter_member *m,
                    const struct share_limits *limits) {
    m->of = a;
    m->ndevices = limits->ndevices < COMPUTE_DEVICES ? limits->ndevices : COMPUTE_DEVICES;
    for (uint32_t i = 0; i < m->ndevices; i++) {
        m->card[i] = card_of(a, limits->device[i].uuid);
        if (m->card[i] && !card_add(m->card[i], m, i))
            m->card[i] = NULL;
    }
    DL_APPEND(a->members, m);
    set_tenants(m, limits);
    compute_beat(m->compute);
    (void) step_cards(a, clock_ns(CLOCK_MONOTONIC));
    call(a);
}

int arbiter_join(struct arbiter *a, const struct share_limits *limits, const char *grants_path,
                 const char *compute_path, struct arbiter_member **ret, struct err *err) {
    _cleanup_free_ struct arbiter_member *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_errno(err, ENOMEM, "cannot arbitrate for a container");
    r = compute_open(grants_path, compute_path, &m->compute, err);
    if (r < 0)
        return r;
    m->gone = compute_bell_value(m->compute, &m->bell) < 0;
    (void) pthread_mutex_lock(&a->mutex);
    take_in(a, m, limits);
    (void) pthread_mutex_unlock(&a->mutex);
    *ret = take_ptr(m);
    return 0;
}

void arbiter_change(struct arbiter_member *m, const struct share_limits *limits) {
    (void) pthread_mutex_lock(&m->of->mutex);
    set_tenants(m, limits);
    call(m->of);
    (void) pthread_mutex_unlock(&m->of->mutex);
}

void arbiter_driver(struct arbiter_member *m, uint32_t device, uint64_t ns) {
    struct arbitration_tenant *t;

    (void) pthread_mutex_lock(&m->of->mutex);
    t = tenant_of(m, device);
    if (t)
        t->driver_ns = ns;
    (void) pthread_mutex_unlock(&m->of->mutex);
}

struct arbiter_member *arbiter_leave(struct arbiter_member *m) {
    struct arbiter *a;

    if (!m)
        return NULL;
    a = m->of;
    (void) pthread_mutex_lock(&a->mutex);
    DL_DELETE(a->members, m);
    for (uint32_t i = 0; i < m->ndevices; i++)
        if (m->card[i])
            card_remove(m->card[i], m);
    call(a);
    (void) pthread_mutex_unlock(&a->mutex);
    member_free(m);
    return NULL;
}

void arbiter_view(const struct arbiter_member *m, uint32_t device, struct arbiter_view *ret) {
    const struct arbitration_tenant *t;

    memset(ret, 0, sizeof(*ret));
    (void) pthread_mutex_lock(&m->of->mutex);
    t = tenant_of(m, device);
    if (t) {
        const struct card *card = m->card[device];

        *ret = (struct arbiter_view){
            .policy = t->policy,
            .usage = t->usage,
            .taken = t->taken,
            .entitled = t->entitled,
            .active = t->active,
            .launched = card->seats[t - card->tenants].launch.at_ns,
            .damaged = card->seats[t - card->tenants].damaged,
        };
    }
    (void) pthread_mutex_unlock(&m->of->mutex);
}

void arbiter_stats(struct arbiter *a, struct arbiter_stats *ret) {
    (void) pthread_mutex_lock(&a->mutex);
    *ret = a->stats;
    (void) pthread_mutex_unlock(&a->mutex);
}
