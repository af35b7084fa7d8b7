/* SPDX-License-Identifier: Apache-2.0 */

/* The last hour, from the history that agents keep. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "cli/cluster/agents.h"
#include "cli/top/data.h"

#define POINT_MS (3600000 / TOP_HOUR_POINTS)
#define HOURS_MAX 20000

struct entry {
    UT_hash_handle hh;
    double percent[TOP_HOUR_POINTS]; /* below 0: not known */
    struct top_hour *hour;           /* owned, with its key */
};

struct entries {
    struct entry *by_key;
    size_t n;
};

static void entries_done(struct entries *entries) {
    struct entry *entry, *next;

    HASH_ITER(hh, entries->by_key, entry, next) {
        HASH_DEL(entries->by_key, entry);
        if (entry->hour)
            free(entry->hour->key);
        free(entry->hour);
        free(entry);
    }
}

/* Where the steps of an agent are in time: at the first record of each share and card. */
static struct top_hour *hour_new(const char *key, uint64_t ago, uint64_t step_ms) {
    struct top_hour *hour = calloc(1, sizeof(*hour));

    if (!hour || !(hour->key = strdup(key))) {
        free(hour);
        return NULL;
    }
    hour->end_ms = clock_ms(CLOCK_REALTIME) - ago % step_ms;
    hour->step_ms = step_ms;
    for (size_t i = 0; i < TOP_HOUR_STEPS; i++)
        hour->used[i] = hour->busy[i] = -1;
    return hour;
}

static struct entry *entry_of(struct entries *entries, const char *key, uint64_t ago,
                              uint64_t step_ms) {
    struct entry *entry = NULL;

    HASH_FIND(hh, entries->by_key, key, strlen(key), entry);
    if (entry || entries->n == HOURS_MAX)
        return entry;
    entry = calloc(1, sizeof(*entry));
    if (!entry || !(entry->hour = hour_new(key, ago, step_ms))) {
        free(entry);
        return NULL;
    }
    for (size_t i = 0; i < TOP_HOUR_POINTS; i++)
        entry->percent[i] = -1;
    HASH_ADD_KEYPTR(hh, entries->by_key, entry->hour->key, strlen(key), entry);
    entries->n++;
    return entry;
}

/* The means of the known steps of each point. */
static void means(struct json record, uint64_t ago, uint64_t step_ms,
                  double ret[static TOP_HOUR_POINTS]) {
    struct json list = json_get(record, "gpuTimeMs"), one;
    struct json_iter it = json_iter(list);
    uint64_t ms, steps = json_size(list), known[TOP_HOUR_POINTS] = {0};

    for (size_t i = 0; i < TOP_HOUR_POINTS; i++)
        ret[i] = 0;
    for (; steps > 0 && json_next(&it, NULL, &one); steps--) {
        uint64_t back = (ago + (steps - 1) * step_ms) / POINT_MS;
        if (back >= TOP_HOUR_POINTS || !json_u64(one, &ms))
            continue;
        ret[TOP_HOUR_POINTS - 1 - back] += 100.0 * (double) ms / (double) step_ms;
        known[TOP_HOUR_POINTS - 1 - back]++;
    }
    for (size_t i = 0; i < TOP_HOUR_POINTS; i++)
        ret[i] = known[i] > 0 ? ret[i] / (double) known[i] : -1;
}

/* Adds the known figures of a list, each `scale` times, to those of the same steps. */
static void add_steps(struct json list, uint64_t ago, uint64_t step_ms, double scale,
                      float to[static TOP_HOUR_STEPS]) {
    struct json_iter it = json_iter(list);
    struct json one;
    uint64_t value;

    for (uint64_t left = json_size(list); left > 0 && json_next(&it, NULL, &one); left--) {
        uint64_t back = ago / step_ms + left - 1;
        if (back < TOP_HOUR_STEPS && json_u64(one, &value))
            to[back] = (to[back] < 0 ? 0 : to[back]) + (float) (scale * (double) value);
    }
}

static void add(struct entry *entry, struct json record, uint64_t ago, uint64_t step_ms,
                const double percent[static TOP_HOUR_POINTS]) {
    if (!entry)
        return;
    for (size_t i = 0; i < TOP_HOUR_POINTS; i++)
        if (percent[i] >= 0)
            entry->percent[i] = (entry->percent[i] < 0 ? 0 : entry->percent[i]) + percent[i];
    add_steps(json_get(record, "memoryUsed"), ago, step_ms, 1, entry->hour->used);
    add_steps(json_get(record, "gpuTimeMs"), ago, step_ms, 100.0 / (double) step_ms,
              entry->hour->busy);
}

static void take(void *arg, struct json record, uint64_t step_ms) {
    struct entries *entries = arg;
    const char *uuid = json_string_or(json_get(record, "uuid"), "");
    double percent[TOP_HOUR_POINTS];
    uint64_t ago = 0;
    char key[1024];

    (void) json_u64(json_get(record, "agoMs"), &ago);
    means(record, ago, step_ms, percent);
    const char *claim = json_string(json_get(record, "claim"));
    (void) snprintf(key, sizeof(key), "%s/%s/%s/%s", uuid,
                    json_string_or(json_get(record, "namespace"), ""),
                    claim ? "" : json_string_or(json_get(record, "pod"), ""),
                    claim ? claim : json_string_or(json_get(record, "container"), ""));
    add(entry_of(entries, key, ago, step_ms), record, ago, step_ms, percent);
    add(entry_of(entries, uuid, ago, step_ms), record, ago, step_ms, percent);
}

static void ignore(const char *pod, const char *text) {
    (void) pod;
    (void) text; /* the reading of its use says so */
}

static int by_key(const void *a, const void *b) {
    const struct top_hour *const *x = a, *const *y = b;

    return strcmp((*x)->key, (*y)->key);
}

static void hand_over(struct entries *entries, struct top_hours *ret) {
    ret->n = 0;
    for (struct entry *entry = entries->by_key; entry; entry = entry->hh.next) {
        for (size_t i = 0; i < TOP_HOUR_POINTS; i++) {
            double percent = entry->percent[i];
            entry->hour->percent[i] = percent < 0 ? TOP_HOUR_UNKNOWN
                                      : percent > 100
                                          ? 100
                                          : (uint8_t) (percent + 0.5); /* NOLINT: not negative */
        }
        ret->list[ret->n++] = take_ptr(entry->hour);
    }
    qsort(ret->list, ret->n, sizeof(*ret->list), by_key); /* NOLINT: of a pointer */
}

static void note_nodes(const char *const *nodes, size_t n, struct top_hours *ret) {
    for (size_t i = 0; i < n; i++)
        if ((ret->nodes[ret->nnodes] = strdup(nodes[i])))
            ret->nnodes++;
}

int top_read_hours(const struct top_source *source, const char *const *nodes, size_t n,
                   struct top_hours *ret, struct err *err) {
    _cleanup_(entries_done) struct entries entries = {0};
    const struct history_source history = {
        .system = source->system, .query = "", .take = take, .arg = &entries, .trouble = ignore};

    int r = agents_history_of(nodes, n, &history, err);
    if (r < 0)
        return r;
    *ret = (struct top_hours){
        .list = calloc(entries.n + 1, sizeof(*ret->list)), /* NOLINT: of a pointer */
        .nodes = calloc(n + 1, sizeof(*ret->nodes)),
        .read_at = time(NULL)};
    if (!ret->list || !ret->nodes) {
        top_hours_done(ret);
        return err_errno(err, ENOMEM, "cannot hold the history");
    }
    note_nodes(nodes, n, ret);
    hand_over(&entries, ret);
    return 0;
}
