/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/gates/gang.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "kube/objects/gang.h"

#define PLACES_PER_SECOND 256         /* placements of one member, each over all nodes */
#define SPENT_PER_PLACE 80000         /* steps of selectors that count as one placement */
#define SPENT_MAX UINT64_C(100000000) /* for one gang: below a second */
#define RETRY_MS 500                  /* after a gang did not fit */
#define BACK_OFF_MS 1000              /* after one was not bound in time; doubles */
#define BACK_OFF_MAX_MS 300000
#define STALLED_MS 60000 /* shares are not kept longer when no further member is bound */
#define KEY_MAX (2 * KUBE_LABEL_MAX)

struct gang {
    UT_hash_handle hh;
    char key[KEY_MAX];
    uint32_t size, timeout_s;   /* maximum over all members */
    int64_t created;            /* of the oldest member */
    uint64_t since_ms;          /* when the first member was seen */
    bool reported;              /* that it is not complete */
    bool fresh;                 /* not counted yet */
    bool started;               /* all were bound once, and some of them still are */
    uint64_t placed_ms;         /* when all got assumed allocations; 0: not yet */
    uint64_t moved_ms;          /* when another one was bound since, of */
    size_t bound;               /* their number then */
    uint64_t retry_ms;          /* not tried before */
    uint64_t round;             /* in which it was tried last */
    uint64_t closed_ms;         /* when it was last found not to be settled, and */
    uint64_t closed_generation; /* of the pods; 0: never */
    unsigned failures;
    size_t n, room, gated; /* members, and those beside that have scheduling gates */
    struct state_pod **members;
};

static void key_of(const struct state_pod *pod, char ret[static KEY_MAX]) {
    (void) snprintf(ret, KEY_MAX, "%s/%s", pod->namespace, pod->gang->name);
}

static void free_gang(struct gangs *g, struct gang *gang) {
    HASH_DEL(g->all, gang);
    free(gang->members);
    free(gang);
}

void gangs_done(struct gangs *g) {
    hash_drop_all(g, g->all, free_gang);
}

void gangs_forget(struct gangs *g) {
    gangs_done(g);
    g->pods_generation = g->state->pods_generation - 1;
    for (struct state_pod *pod = g->state->open; pod; pod = pod->open_next)
        pod->keep_until_ms = 0;
}

/* ---- members ---- */

static struct gang *find_gang(struct gangs *g, const struct state_pod *pod) {
    struct gang *gang;
    char key[KEY_MAX];
    key_of(pod, key);
    HASH_FIND_STR(g->all, key, gang);
    return gang;
}

static struct gang *get_gang(struct gangs *g, const struct state_pod *pod, uint64_t now_ms) {
    struct gang *gang = find_gang(g, pod);
    if (gang || !(gang = calloc(1, sizeof(*gang))))
        return gang;
    key_of(pod, gang->key);
    gang->since_ms = now_ms;
    gang->fresh = true;
    gang->round = g->round - 1;
    HASH_ADD_STR(g->all, key, gang);
    return hash_added_or_freed(gang);
}

static bool add_member(struct gang *gang, struct state_pod *pod) {
    if (array_reserve(&gang->members, &gang->room, gang->n + 1, sizeof(struct state_pod *)) < 0)
        return false;
    gang->members[gang->n++] = pod;
    gang->size = pod->gang->size > gang->size ? pod->gang->size : gang->size;
    gang->timeout_s =
        pod->gang->timeout_s > gang->timeout_s ? pod->gang->timeout_s : gang->timeout_s;
    if (gang->n == 1 || pod->created < gang->created)
        gang->created = pod->created;
    return true;
}

static size_t count_from(const struct gang *gang, enum pod_stage stage) {
    size_t n = 0;
    for (size_t i = 0; i < gang->n; i++)
        n += gang->members[i]->stage >= stage;
    return n;
}

/* Members of a started gang may have ended unseen: remaining and recreated members do not wait for
 * them. */
static uint32_t size_needed(const struct gang *gang) {
    return gang->started && gang->n < gang->size ? (uint32_t) gang->n : gang->size;
}

/* Whether enough members have their places. */
static bool is_settled(const struct gang *gang) {
    return count_from(gang, POD_ASSUMED) >= size_needed(gang);
}

/* Whether enough members certainly exist: pods known only from kube-scheduler's requests may be
 * gone.
 */
static bool is_known(const struct gang *gang) {
    size_t n = 0;
    for (size_t i = 0; i < gang->n; i++)
        n += gang->members[i]->stage >= POD_ASSUMED && gang->members[i]->shown;
    return n >= size_needed(gang);
}

/* A gang with bound members when first seen was started by another process. */
static void note_begun(struct gang *gang) {
    bool any = count_from(gang, POD_BINDING) > 0;
    gang->started = any && (gang->started || gang->fresh);
    gang->fresh = false;
}

/* The oldest gang first; the name decides between equals. */
static int by_age(struct gang *a, struct gang *b) {
    if (a->created != b->created)
        return a->created < b->created ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* Whether it is not known what the pod wants: its claims are not there yet, or of another driver.
 */
static bool is_unknown(const struct state_pod *pod) {
    return pod->resource_claims && pod->ncontainers == 0 && pod->stage == POD_PENDING;
}

/* Finds the members again after pods were added or removed. Members that failed for lack of memory
 * are added next time.
 */
static void refresh(struct gangs *g, uint64_t now_ms) {
    struct gang *gang, *next;
    bool complete = true;
    if (g->pods_generation == g->state->pods_generation)
        return;
    for (gang = g->all; gang; gang = gang->hh.next)
        gang->n = gang->gated = gang->size = gang->timeout_s = 0;
    for (struct state_pod *pod = g->state->pods; pod; pod = pod->hh.next) {
        if (!pod->gang || pod->gang->size == 0 || pod->deleting || is_unknown(pod))
            continue;
        gang = get_gang(g, pod, now_ms);
        if (gang && pod->gang->gated)
            gang->gated++;
        else
            complete &= gang && add_member(gang, pod);
    }
    HASH_ITER(hh, g->all, gang, next) {
        note_begun(gang);
        if (gang->n == 0)
            free_gang(g, gang);
    }
    HASH_SORT(g->all, by_age);
    if (complete)
        g->pods_generation = g->state->pods_generation;
}

/* ---- placing all at once ---- */

static void release_assumed(struct gangs *g, struct gang *gang) {
    for (size_t i = 0; i < gang->n; i++) {
        struct state_pod *pod = gang->members[i];
        pod->keep_until_ms = 0;
        if (pod->stage == POD_ASSUMED && pod->resource_claims)
            g->claims.release(pod, g->claims.userdata);
        else if (pod->stage == POD_ASSUMED)
            state_release(g->state, pod);
    }
    gang->placed_ms = 0;
}

/* Whether another gate refuses the member; the first one gives the reason for the gang. */
static bool is_held(struct gangs *g, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    _cleanup_buf_ struct buf own = BUF_INIT(GATE_WHY_MAX);
    g->trying = true; /* this gate itself is open to it meanwhile */
    bool held = gates_closed(g->gates, pod, now_ms, &own) != NULL;
    g->trying = false;
    if (held && why->len == 0)
        buf_puts(why, buf_str(&own));
    return held;
}

static bool place_member(struct gangs *g, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    struct state_node *best = NULL;
    struct place_result result;
    int64_t score, most = 0;
    g->placed++;
    if (is_held(g, pod, now_ms, why))
        return false;
    if (pod->resource_claims)
        return g->claims.place(pod, now_ms, why, g->claims.userdata);
    state_refresh_all(g->state);
    state_plan(g->state, pod, &g->request, &g->plan);
    for (struct state_node *node = g->state->nodes; node; node = node->hh.next)
        if (node->exists && node->ncards > 0 &&
            state_judge(g->state, &g->plan, node->head, pod, &score) == PLACE_OK &&
            (!best || score > most)) {
            best = node;
            most = score;
        }
    return best && state_place(g->state, &g->plan, best, pod, false, &result) == PLACE_OK &&
           state_allocate(g->state, pod, best, &result, POD_ASSUMED, now_ms) == 0;
}

static uint64_t size_of(const struct state_pod *pod) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        size += (uint64_t) pod->containers[i].cards *
                (pod->containers[i].whole ? CORE_PER_CARD : pod->containers[i].core);
    return size;
}

/* Those that are there for certain, and of them large ones first: they find a place only while
 * there is much room. */
static int by_size(const void *a, const void *b) {
    const struct state_pod *const *x = a, *const *y = b;
    uint64_t one = size_of(*x), other = size_of(*y);
    if ((*x)->shown != (*y)->shown)
        return (*x)->shown ? -1 : 1;
    if (one != other)
        return one > other ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static uint64_t spent(const struct gangs *g) {
    return g->claims.spent ? g->claims.spent(g->claims.userdata) : 0;
}

static bool place_all(struct gangs *g, struct gang *gang, uint64_t now_ms, struct buf *why) {
    uint64_t before = spent(g);
    release_assumed(g, gang);
    size_t settled = count_from(gang, POD_ASSUMED), left = gang->n - settled;
    const uint32_t size = size_needed(gang);
    qsort(gang->members, gang->n, sizeof(struct state_pod *), by_size);
    for (size_t i = 0; i < gang->n && settled < size && settled + left >= size; i++)
        if (gang->members[i]->stage == POD_PENDING) {
            if (spent(g) - before >= SPENT_MAX) {
                buf_reset(why);
                buf_printf(
                    why,
                    "gang %s: the selectors of its claims cost too much together: shorten them",
                    gang->members[i]->gang->name);
                break;
            }
            left--;
            settled += place_member(g, gang->members[i], now_ms, why);
        }
    g->placed += (spent(g) - before) / SPENT_PER_PLACE;
    if (settled < size) {
        release_assumed(g, gang);
        gang->retry_ms = now_ms + RETRY_MS;
        return false;
    }
    for (size_t i = 0; i < gang->n; i++)
        if (gang->members[i]->stage == POD_ASSUMED)
            gang->members[i]->keep_until_ms = now_ms + UINT64_C(1000) * gang->timeout_s;
    gang->placed_ms = gang->moved_ms = now_ms;
    gang->bound = count_from(gang, POD_BINDING);
    return true;
}

/* Whether there is time for another gang: what a large one took too much is made up for after it.
 */
static bool has_time(struct gangs *g, uint64_t now_ms) {
    uint64_t back = (now_ms - g->window_ms) / 1000 * PLACES_PER_SECOND;
    if (back > 0) {
        g->window_ms = now_ms;
        g->placed -= back < g->placed ? back : g->placed;
    }
    return g->placed < PLACES_PER_SECOND;
}

/* Tries the gangs that wait, the oldest first, and none again before all others had their turn:
 * many that do not fit must not keep one from its place that does. Why `asked` is held goes to
 * `why`. */
static void try_all(struct gangs *g, const struct gang *asked, uint64_t now_ms, struct buf *why) {
    if (g->tried_ms == now_ms && g->tried_generation == g->pods_generation)
        return;
    for (struct gang *gang = g->all; gang; gang = gang->hh.next) {
        _cleanup_buf_ struct buf ignored = BUF_INIT(GATE_WHY_MAX);
        if (gang->round == g->round || now_ms < gang->retry_ms || gang->n < size_needed(gang) ||
            is_settled(gang))
            continue;
        if (!has_time(g, now_ms))
            return;
        gang->round = g->round;
        (void) place_all(g, gang, now_ms, gang == asked ? why : &ignored);
    }
    g->round++;
    g->tried_ms = now_ms;
    g->tried_generation = g->pods_generation;
}

/* ---- the gate ---- */

bool gangs_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    struct gangs *g = self;
    if (!pod->gang || pod->deleting || g->trying)
        return true;
    if (pod->gang->size == 0) {
        buf_printf(why,
                   "gang %s: its name must be letters, digits and -_./:, its size a number from 1 "
                   "to %d and its timeout like 90s or 5m",
                   pod->gang->name, GANG_SIZE_MAX);
        return false;
    }
    refresh(g, now_ms);
    struct gang *gang = find_gang(g, pod);
    if (!gang) {
        buf_puts(why, "out of memory");
        return false;
    }
    /* All members that wait are often asked about in one moment: they need to be counted once. */
    bool closed = gang->closed_ms == now_ms && gang->closed_generation == g->pods_generation;
    if (!closed && gang->n >= size_needed(gang) && !is_settled(gang))
        try_all(g, gang, now_ms, why);
    if (!closed && is_settled(gang)) {
        if (is_known(gang))
            return true;
        buf_reset(why);
        buf_printf(why, "gang %s: it has its places, and one of its pods is not known yet",
                   pod->gang->name);
        return false;
    }
    gang->closed_ms = now_ms;
    gang->closed_generation = g->pods_generation;
    if (gang->n < size_needed(gang)) {
        buf_printf(why, "gang %s: %zu of %" PRIu32 " pods have arrived", pod->gang->name, gang->n,
                   gang->size);
        if (gang->gated > 0)
            buf_printf(why, ", and %zu more %s scheduling gates", gang->gated,
                       gang->gated == 1 ? "has" : "have");
    } else if (why->len == 0)
        buf_printf(why, "gang %s: all %" PRIu32 " pods have arrived, and do not fit together yet",
                   pod->gang->name, gang->size);
    return false;
}

/* ---- time ---- */

static void put_events(struct gangs *g, const struct gang *gang, enum pod_stage up_to,
                       const char *reason, const char *text) {
    for (size_t i = 0; g->refuse && i < gang->n; i++)
        if (gang->members[i]->stage <= up_to)
            g->refuse(gang->members[i], reason, 0, text, g->userdata);
}

static void give_back(struct gangs *g, struct gang *gang, uint64_t now_ms) {
    char text[512], keeping[128] = "";
    size_t bound = count_from(gang, POD_BINDING);
    uint64_t kept_s = (now_ms - gang->placed_ms) / 1000;
    uint64_t wait = (uint64_t) BACK_OFF_MS << (gang->failures < 9 ? gang->failures : 9);
    release_assumed(g, gang);
    gang->failures++;
    gang->retry_ms = now_ms + (wait < BACK_OFF_MAX_MS ? wait : BACK_OFF_MAX_MS);
    size_t keep = count_from(gang, POD_ASSUMED) - bound;
    if (keep > 0)
        (void) snprintf(keeping, sizeof(keeping),
                        " %zu keep their allocated ResourceClaims until they are deleted;", keep);
    (void) snprintf(text, sizeof(text),
                    "gang %s: %zu of %" PRIu32 " pods were bound within %" PRIu64
                    " s;%s the shares of the others are given back, and it tries again in %" PRIu64
                    " s",
                    strchr(gang->key, '/') + 1, bound, gang->size, kept_s, keeping,
                    (gang->retry_ms - now_ms) / 1000);
    put_events(g, gang, POD_ASSUMED, "GPUGangTimeout", text);
}

/* Whether the assumed allocations have expired: after the gang's timeout, or earlier when binding
 * has stalled. A member may never be bound, and other pods need the shares. */
static bool is_over(struct gang *gang, uint64_t now_ms) {
    size_t bound = count_from(gang, POD_BINDING);
    if (bound > gang->bound)
        gang->moved_ms = now_ms;
    gang->bound = bound;
    return now_ms - gang->placed_ms >= UINT64_C(1000) * gang->timeout_s ||
           now_ms - gang->moved_ms >= STALLED_MS;
}

static void check_gang(struct gangs *g, struct gang *gang, uint64_t now_ms) {
    char text[256];
    uint64_t limit = UINT64_C(1000) * gang->timeout_s;
    if (count_from(gang, POD_BINDING) >= size_needed(gang)) {
        gang->started = true;
        gang->placed_ms = 0;
        gang->failures = 0;
        gang->reported = false;
        gang->since_ms = now_ms;
    } else if (gang->placed_ms > 0) {
        if (!is_settled(gang))
            release_assumed(g, gang); /* a member has gone */
        else if (is_over(gang, now_ms))
            give_back(g, gang, now_ms);
    } else if (gang->n < gang->size && !gang->reported && now_ms - gang->since_ms >= limit) {
        gang->reported = true;
        (void) snprintf(text, sizeof(text),
                        "gang %s: %zu of %" PRIu32 " pods have arrived within %" PRIu32
                        " s; nothing is kept for them, and it goes on waiting",
                        strchr(gang->key, '/') + 1, gang->n, gang->size, gang->timeout_s);
        put_events(g, gang, POD_PENDING, "GPUGangIncomplete", text);
    }
}

void gangs_tick(struct gangs *g, uint64_t now_ms) {
    refresh(g, now_ms);
    for (struct gang *gang = g->all; gang; gang = gang->hh.next)
        check_gang(g, gang, now_ms);
}
