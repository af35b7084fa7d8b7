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
    return strcmp(((const struct top_hour *) a)->key, ((const struct top_hour *) b)->key);
}

const struct top_hour *top_hour_find(const struct top_hours *hours, const char *key) {
    const struct top_hour wanted = {.key = (char *) (uintptr_t) key};

    return hours->n > 0 ? bsearch(&wanted, hours->list, hours->n, sizeof(wanted), by_key) : NULL;
}

struct top_hours top_hours_copy(const struct top_hours *hours) {
    struct top_hours copy = {.list = calloc(hours->n + 1, sizeof(*copy.list))};

    for (; copy.list && copy.n < hours->n; copy.n++) {
        copy.list[copy.n] = hours->list[copy.n];
        copy.list[copy.n].key = strdup(hours->list[copy.n].key);
        if (!copy.list[copy.n].key) {
            top_hours_done(&copy);
            break;
        }
    }
    return copy;
}

void top_hours_done(struct top_hours *hours) {
    for (size_t i = 0; i < hours->n; i++)
        free(hours->list[i].key);
    free(hours->list);
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
