/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/history_page.h"

#include <string.h>

#include "agent/report/claim_users.h"
#include "agent/report/recorder.h"
#include "base/step.h"
#include "wire/json_write.h"

typedef uint16_t figure_fn(const struct history_step *step);

static uint16_t memory(const struct history_step *step) {
    return step->memory;
}

static uint16_t taken(const struct history_step *step) {
    return step->taken;
}

static uint16_t entitled(const struct history_step *step) {
    return step->entitled;
}

static uint16_t throttled(const struct history_step *step) {
    return step->throttled;
}

static const struct column {
    const char *key;
    figure_fn *of;
    bool in_units;
} columns[] = {
    {"memoryUsed", memory, true},
    {"gpuTimeMs", taken, false},
    {"gpuEntitledMs", entitled, false},
    {"throttledMs", throttled, false},
};

/* Steps before the first one that is known are left out. */
static uint32_t steps_of(const struct history_record *r) {
    uint32_t n = HISTORY_STEPS;

    while (n > 0 && !history_known(history_at(r, n - 1)))
        n--;
    return n;
}

static void put_column(const struct history_record *r, const struct column *column,
                       struct json_writer *w) {
    step_end();
    json_array_begin(w, column->key);
    for (uint32_t age = steps_of(r); age-- > 0;) {
        uint16_t value = column->of(history_at(r, age));

        if (value == HISTORY_UNKNOWN)
            json_put_null(w, NULL);
        else
            json_put_u64(w, NULL, value * (column->in_units ? r->unit : 1));
    }
    json_array_end(w);
}

static void put_record(const struct report *report, const struct slot *slot, uint32_t at,
                       const struct history_record *r, struct json_writer *w) {
    uint64_t ago, step = recorder_step(&ago);

    json_object_begin(w, NULL);
    json_put_string(w, "namespace", slot->grant.namespace);
    json_put_string(w, "pod", slot->grant.pod);
    json_put_string(w, "podUID", slot->grant.pod_uid);
    json_put_string(w, "container", slot->grant.container);
    claim_users_write(report->shares, slot, w);
    json_put_u64(w, "index", slot->grant.devices[at].index);
    json_put_string(w, "uuid", slot->grant.devices[at].uuid);
    json_put_u64(w, "memoryUnit", r->unit);
    json_put_u64(w, "agoMs", (step - r->last) * HISTORY_STEP_MS + ago);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        put_column(r, &columns[i], w);
    json_object_end(w);
}

static bool is_chosen(const char *value, const char *wanted) {
    return !wanted || strcmp(value, wanted) == 0;
}

/* Returns how many of `query` there are, on this page or not. */
static uint64_t put_containers(struct report *report, const struct history_query *query,
                               struct json_writer *w) {
    uint64_t n = 0;

    for (const struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        if (!is_chosen(slot->grant.namespace, query->namespace) ||
            (query->pod && !claim_users_have(report->shares, slot, query->pod)))
            continue;
        for (uint32_t at = 0; at < slot->grant.ndevices; at++) {
            const struct history_record *r = history_find(&report->history, slot->nonce, at);

            if (!r)
                continue;
            if (n >= query->skip && n - query->skip < HISTORY_PAGE_MAX)
                put_record(report, slot, at, r, w);
            n++;
        }
    }
    return n;
}

void history_page_write(struct report *report, const struct history_query *query, struct buf *out) {
    struct json_writer w = {.out = out};
    uint64_t n;

    json_object_begin(&w, NULL);
    json_put_string(&w, "node", report->shares->options.node_name);
    json_put_u64(&w, "stepMs", HISTORY_STEP_MS);
    json_array_begin(&w, "containers");
    n = put_containers(report, query, &w);
    json_array_end(&w);
    if (n > query->skip && n - query->skip > HISTORY_PAGE_MAX)
        json_put_u64(&w, "next", query->skip + HISTORY_PAGE_MAX);
    json_object_end(&w);
    buf_putc(out, '\n');
}
