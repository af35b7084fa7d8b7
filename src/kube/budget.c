/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/field.h"

static int add_term(struct budget *b, enum budget_operator operator, const char * key,
                    struct buf *values) {
    if (b->nterms == BUDGET_TERMS_MAX || !key)
        return -EINVAL;
    struct budget_term *term = &b->terms[b->nterms++];
    *term = (struct budget_term){operator, strdup(key), strdup(buf_str(values))};
    return buf_error(values) < 0 || !term->key || !term->values ? -ENOMEM : 0;
}

static int read_match_labels(struct budget *b, struct json labels) {
    struct json_iter it = json_iter(labels);
    struct json value;
    const char *key;
    int r = 0;
    while (r == 0 && json_next(&it, &key, &value)) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        const char *word = json_string(value);
        if (!word)
            return -EINVAL;
        buf_printf(&text, "%s,", word);
        r = add_term(b, BUDGET_IN, key, &text);
    }
    return r;
}

static int read_values(struct json list, struct buf *out) {
    struct json_iter it = json_iter(list);
    struct json value;
    while (json_next(&it, NULL, &value)) {
        const char *word = json_string(value);
        if (!word)
            return -EINVAL;
        buf_printf(out, "%s,", word);
    }
    return 0;
}

static int read_expressions(struct budget *b, struct json list) {
    static const char *const operators[] = {
        [BUDGET_IN] = "In",
        [BUDGET_NOT_IN] = "NotIn",
        [BUDGET_EXISTS] = "Exists",
        [BUDGET_DOES_NOT_EXIST] = "DoesNotExist",
    };
    struct json_iter it = json_iter(list);
    struct json item;
    int r = 0;
    while (r == 0 && json_next(&it, NULL, &item)) {
        _cleanup_buf_ struct buf values = BUF_INIT(0);
        const char *word = json_string(json_get(item, "operator"));
        unsigned o = 0;
        while (o < 4 && (!word || strcmp(word, operators[o]) != 0))
            o++;
        if (o == 4 || read_values(json_get(item, "values"), &values) < 0)
            return -EINVAL;
        r = add_term(b, (enum budget_operator) o, json_string(json_get(item, "key")), &values);
    }
    return r;
}

int budget_parse(struct json object, struct budget *ret, struct err *err) {
    struct json meta = json_get(object, "metadata");
    struct json selector = JSON_PATH(object, "spec", "selector");
    struct budget b = {.has_selector = json_type(selector) == JSON_OBJECT};
    int64_t allowed = 0;
    if (field_copy(json_get(meta, "name"), b.name, sizeof(b.name)) < 0 ||
        field_copy(json_get(meta, "namespace"), b.namespace, sizeof(b.namespace)) < 0)
        return err_set(err, EINVAL, "not a disruption budget: no name or namespace");
    if (json_i64(JSON_PATH(object, "status", "disruptionsAllowed"), &allowed) && allowed > 0)
        b.allowed = allowed < INT32_MAX ? (int32_t) allowed : INT32_MAX;
    int r = read_match_labels(&b, json_get(selector, "matchLabels"));
    if (r == 0)
        r = read_expressions(&b, json_get(selector, "matchExpressions"));
    if (r < 0) {
        budget_done(&b);
        return err_set(err, -r, "disruption budget %s/%s: its selector cannot be read", b.namespace,
                       b.name);
    }
    *ret = b;
    return 0;
}

void budget_done(struct budget *b) {
    for (uint32_t i = 0; i < b->nterms; i++) {
        free(b->terms[i].key);
        free(b->terms[i].values);
    }
    b->nterms = 0;
}

/* ---- matching ---- */

/* The value of a label, up to its comma; NULL: the pod has no such label. */
static const char *find_label(const char *labels, const char *key, size_t *ret_len) {
    size_t len = strlen(key);
    for (const char *at = labels; at && *at;) {
        size_t all = strcspn(at, ",");
        if (all > len && at[len] == '=' && strncmp(at, key, len) == 0) {
            *ret_len = all - len - 1;
            return at + len + 1;
        }
        at += all + (at[all] == ',');
    }
    return NULL;
}

static bool is_among(const char *values, const char *value, size_t len) {
    for (const char *at = values; *at;) {
        size_t all = strcspn(at, ",");
        if (all == len && strncmp(at, value, len) == 0)
            return true;
        at += all + (at[all] == ',');
    }
    return false;
}

static bool holds(const struct budget_term *term, const char *labels) {
    size_t len = 0;
    const char *value = find_label(labels, term->key, &len);
    switch (term->operator) {
    case BUDGET_IN:
        return value && is_among(term->values, value, len);
    case BUDGET_NOT_IN:
        return !value || !is_among(term->values, value, len);
    case BUDGET_EXISTS:
        return value != NULL;
    case BUDGET_DOES_NOT_EXIST:
        return value == NULL;
    }
    return false;
}

bool budget_counts(const struct budget *b, const char *namespace, const char *labels) {
    if (!b->has_selector || strcmp(b->namespace, namespace) != 0)
        return false;
    for (uint32_t i = 0; i < b->nterms; i++)
        if (!holds(&b->terms[i], labels))
            return false;
    return true;
}
