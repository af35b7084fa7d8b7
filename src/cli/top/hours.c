/* SPDX-License-Identifier: Apache-2.0 */

/* The last hour, from the history that agents keep. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "cli/cluster/agents.h"
#include "cli/top/data.h"

#define POINT_MS (3600000 / TOP_HOUR_POINTS)
#define HOURS_MAX 20000

struct entry {
    UT_hash_handle hh;
    char *key;
    double percent[TOP_HOUR_POINTS]; /* below 0: not known */
};

struct entries {
    struct entry *by_key;
    size_t n;
};

static void entries_done(struct entries *entries) {
    struct entry *entry, *next;

    HASH_ITER(hh, entries->by_key, entry, next) {
        HASH_DEL(entries->by_key, entry);
        free(entry->key);
        free(entry);
    }
}

static struct entry *entry_of(struct entries *entries, const char *key) {
    struct entry *entry = NULL;

    HASH_FIND(hh, entries->by_key, key, strlen(key), entry);
    if (entry || entries->n == HOURS_MAX)
        return entry;
    entry = calloc(1, sizeof(*entry));
    if (!entry || !(entry->key = strdup(key))) {
        free(entry);
        return NULL;
    }
    for (size_t i = 0; i < TOP_HOUR_POINTS; i++)
        entry->percent[i] = -1;
    HASH_ADD_KEYPTR(hh, entries->by_key, entry->key, strlen(entry->key), entry);
    entries->n++;
    return entry;
}

/* The means of the known steps of each point. */
static void means(struct json record, uint64_t step_ms, double ret[static TOP_HOUR_POINTS]) {
    struct json list = json_get(record, "gpuTimeMs"), one;
    struct json_iter it = json_iter(list);
    uint64_t ago = 0, ms, steps = json_size(list), known[TOP_HOUR_POINTS] = {0};

    (void) json_u64(json_get(record, "agoMs"), &ago);
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

static void add(struct entry *entry, const double percent[static TOP_HOUR_POINTS]) {
    for (size_t i = 0; entry && i < TOP_HOUR_POINTS; i++)
        if (percent[i] >= 0)
            entry->percent[i] = (entry->percent[i] < 0 ? 0 : entry->percent[i]) + percent[i];
}

static void take(void *arg, struct json record, uint64_t step_ms) {
    struct entries *entries = arg;
    const char *uuid = json_string_or(json_get(record, "uuid"), "");
    double percent[TOP_HOUR_POINTS];
    char key[1024];

    means(record, step_ms, percent);
    (void) snprintf(key, sizeof(key), "%s/%s/%s/%s", uuid,
                    json_string_or(json_get(record, "namespace"), ""),
                    json_string_or(json_get(record, "pod"), ""),
                    json_string_or(json_get(record, "container"), ""));
    add(entry_of(entries, key), percent);
    add(entry_of(entries, uuid), percent);
}

static void ignore(const char *pod, const char *text) {
    (void) pod;
    (void) text; /* the reading of its use says so */
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct top_hour *) a)->key, ((const struct top_hour *) b)->key);
}

static void hand_over(struct entries *entries, struct top_hours *ret) {
    ret->n = 0;
    for (struct entry *entry = entries->by_key; entry; entry = entry->hh.next) {
        struct top_hour *hour = &ret->list[ret->n++];
        hour->key = take_ptr(entry->key);
        for (size_t i = 0; i < TOP_HOUR_POINTS; i++) {
            double percent = entry->percent[i];
            hour->percent[i] = percent < 0     ? TOP_HOUR_UNKNOWN
                               : percent > 100 ? 100
                                               : (uint8_t) (percent + 0.5);
        }
    }
    qsort(ret->list, ret->n, sizeof(*ret->list), by_key);
}

int top_read_hours(const struct top_source *source, const char *const *nodes, size_t n,
                   struct top_hours *ret) {
    _cleanup_(entries_done) struct entries entries = {0};
    const struct history_source history = {
        .system = source->system, .query = "", .take = take, .arg = &entries, .trouble = ignore};
    struct err ignored;

    if (agents_history_of(nodes, n, &history, &ignored) < 0)
        return -1;
    *ret = (struct top_hours){.list = calloc(entries.n + 1, sizeof(*ret->list))};
    if (ret->list)
        hand_over(&entries, ret);
    return ret->list ? 0 : -1;
}
