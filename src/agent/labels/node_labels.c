/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/node_labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "wire/json_write.h"

static const char *const prefixes[] = {"nvidia.com/", "elasticgpu.io/"};

static bool is_of_interest(const char *key) {
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

int node_labels_read(struct json node, struct node_labels *ret) {
    struct json_iter it = json_iter(JSON_PATH(node, "metadata", "labels"));
    const char *key, *value, *owned;
    struct node_labels labels = {0};
    struct json v;

    while (json_next(&it, &key, &v)) {
        value = json_string(v);
        if (value && is_of_interest(key))
            label_put(&labels.labels, key, value);
    }
    owned = json_string(JSON_PATH(node, "metadata", "annotations", NODE_LABELS_OWNED));
    labels.owned = owned ? strdup(owned) : NULL;
    if (labels.labels.incomplete || (owned && !labels.owned)) {
        node_labels_done(&labels);
        return -ENOMEM;
    }
    *ret = labels;
    return 0;
}

void node_labels_done(struct node_labels *labels) {
    label_set_done(&labels->labels);
    free(labels->owned);
    *labels = (struct node_labels){0};
}

/* ---- owned keys ---- */

/* Copies the next key of a list into `ret`; false at its end. Too long a one is no key of ours. */
static bool next_key(const char **list, char ret[static LABEL_KEY_SIZE]) {
    const char *item;
    size_t len;

    if (!text_item(list, &item, &len))
        return false;
    (void) snprintf(ret, LABEL_KEY_SIZE, "%.*s", len < LABEL_KEY_SIZE ? (int) len : 0, item);
    return true;
}

static void put_owned(const struct label_set *want, struct buf *ret) {
    for (size_t i = 0; i < want->n; i++)
        buf_printf(ret, "%s,", want->labels[i].key);
}

static bool same_owned(const struct node_labels *have, const struct label_set *want) {
    const char *list = have->owned;
    char key[LABEL_KEY_SIZE];

    for (size_t i = 0; i < want->n; i++)
        if (!next_key(&list, key) || strcmp(key, want->labels[i].key) != 0)
            return false;
    return !next_key(&list, key);
}

/* ---- the difference ---- */

static bool has(const struct node_labels *have, const struct label *label) {
    const char *value = label_find(&have->labels, label->key);

    return value && strcmp(value, label->value) == 0;
}

/* The timestamp says when the others changed; it is no reason to write. */
static bool is_stale(const struct node_labels *have, const struct label_set *want,
                     const char *key) {
    return !label_find(want, key) && label_find(&have->labels, key) && is_of_interest(key) &&
           strcmp(key, NODE_LABELS_TIMESTAMP) != 0;
}

bool node_labels_differ(const struct node_labels *have, const struct label_set *want) {
    for (size_t i = 0; i < want->n; i++)
        if (!has(have, &want->labels[i]))
            return true;
    return !same_owned(have, want);
}

void node_labels_patch(const struct node_labels *have, const struct label_set *want, int64_t now,
                       struct buf *ret) {
    _cleanup_buf_ struct buf owned = BUF_INIT(64 << 10);
    struct json_writer w = {.out = ret};
    const char *list = have->owned;
    char key[LABEL_KEY_SIZE];

    put_owned(want, &owned);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_object_begin(&w, "labels");
    for (size_t i = 0; i < want->n; i++)
        if (!has(have, &want->labels[i]))
            json_put_string(&w, want->labels[i].key, want->labels[i].value);
    while (next_key(&list, key))
        if (is_stale(have, want, key))
            json_put_null(&w, key);
    if (want->n == 0)
        json_put_null(&w, NODE_LABELS_TIMESTAMP);
    else if (now > 0)
        json_put_stringf(&w, NODE_LABELS_TIMESTAMP, "%lld", (long long) now);
    json_object_end(&w);
    json_object_begin(&w, "annotations");
    json_put_string(&w, NODE_LABELS_OWNED, want->n > 0 ? buf_str(&owned) : NULL);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    if (buf_error(&owned) < 0 && ret->error == 0)
        ret->error = -buf_error(&owned);
}

void node_labels_file(const struct label_set *want, struct buf *ret) {
    for (size_t i = 0; i < want->n; i++)
        buf_printf(ret, "%s=%s\n", want->labels[i].key, want->labels[i].value);
}
