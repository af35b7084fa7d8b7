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

void top_data_done(struct top_data *data) {
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
