/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/data.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct top_text {
    struct top_text *next;
    char *text;
};

const char *top_text(struct top_data *data, const char *format, ...) {
    struct top_text *entry = calloc(1, sizeof(*entry));
    va_list ap;

    if (!entry)
        return "";
    va_start(ap, format);
    int n = vasprintf(&entry->text, format, ap);
    va_end(ap);
    if (n < 0) {
        free(entry);
        return "";
    }
    entry->next = data->texts;
    data->texts = entry;
    return entry->text;
}

bool top_is_first(const struct top_data *data, size_t card) {
    const struct top_card *cards = data->cards;

    for (size_t i = card; i-- > 0 && strcmp(cards[i].node, cards[card].node) == 0;)
        if (strcmp(cards[i].device, cards[card].device) == 0)
            return false;
    return true;
}

static int by_key(const void *a, const void *b) {
    const struct top_hour *const *x = a, *const *y = b;

    return strcmp((*x)->key, (*y)->key);
}

const struct top_hour *top_hour_find(const struct top_hours *hours, const char *key) {
    const struct top_hour wanted = {.key = (char *) (uintptr_t) key}, *at = &wanted;
    struct top_hour **found = NULL;

    if (hours->n > 0)
        found = bsearch(&at, hours->list, hours->n, sizeof(at), by_key); /* NOLINT: of a pointer */
    return found ? *found : NULL;
}

/* A sum beyond `most` is that: the devices of a step that took a little longer have no more. */
static uint64_t figure(float value, float most) {
    return value < 0 ? TOP_UNKNOWN : (uint64_t) ((value < most ? value : most) + 0.5F);
}

struct top_figures top_hours_at(const struct top_hours *hours, const char *key, time_t at) {
    const struct top_hour *hour = top_hour_find(hours, key);
    uint64_t at_ms = (uint64_t) at * 1000, step = TOP_HOUR_STEPS;

    if (hour && at_ms <= hour->end_ms)
        step = (hour->end_ms - at_ms) / hour->step_ms;
    if (step >= TOP_HOUR_STEPS)
        return (struct top_figures){TOP_UNKNOWN, TOP_UNKNOWN};
    return (struct top_figures){figure(hour->used[step], 0x1p62F), figure(hour->busy[step], 100)};
}

bool top_hours_has_node(const struct top_hours *hours, const char *node) {
    for (size_t i = 0; i < hours->nnodes; i++)
        if (strcmp(hours->nodes[i], node) == 0)
            return true;
    return false;
}

void top_hours_keep(struct top_data *fresh, struct top_data *old) {
    if (fresh->hours.read_at > 0)
        return;
    fresh->hours = old->hours;
    old->hours = (struct top_hours){0};
}

void top_hours_done(struct top_hours *hours) {
    for (size_t i = 0; i < hours->n; i++) {
        free(hours->list[i]->key);
        free(hours->list[i]);
    }
    for (size_t i = 0; i < hours->nnodes; i++)
        free(hours->nodes[i]);
    free(hours->list);
    free(hours->nodes);
    *hours = (struct top_hours){0};
}

void top_data_done(struct top_data *data) {
    top_hours_done(&data->hours);
    while (data->texts) {
        struct top_text *entry = data->texts;
        data->texts = entry->next;
        free(entry->text);
        free(entry);
    }
    free(data->cards);
    free(data->shares);
    free(data->waiting);
    *data = (struct top_data){0};
}
