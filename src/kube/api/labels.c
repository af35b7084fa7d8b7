/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/labels_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

int labels_read(struct json labels, char **ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_iter it = json_iter(labels);
    struct json value;
    const char *key;
    while (json_next(&it, &key, &value)) {
        const char *word = json_string(value);
        if (key && word)
            buf_printf(&text, "%s=%s,", key, word);
    }
    if (buf_error(&text) < 0)
        return buf_error(&text);
    char *copy = text.len > 0 ? strdup(buf_str(&text)) : NULL;
    if (text.len > 0 && !copy)
        return -ENOMEM;
    *ret = copy;
    return 0;
}

/* ---- reading ---- */

static int add_term(struct label_terms *terms, enum label_operator operator, bool field,
                    const char *key, struct buf *values) {
    if (terms->n == LABEL_TERMS_MAX || !key)
        return -EINVAL;
    struct label_term *list = reallocarray(terms->v, terms->n + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    terms->v = list;
    struct label_term *term = &list[terms->n++];
    *term = (struct label_term){operator, field, strdup(key), strdup(buf_str(values))};
    return buf_error(values) < 0 || !term->key || !term->values ? -ENOMEM : 0;
}

int label_terms_add(struct label_terms *terms, enum label_operator operator, const char * key,
                    struct buf *values) {
    return add_term(terms, operator, false, key, values);
}

static int read_match_labels(struct label_terms *terms, struct json labels) {
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
        r = add_term(terms, LABEL_IN, false, key, &text);
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

/* Where expressions are, and their operators. */
struct member {
    const char *name;
    unsigned operators; /* values of enum label_operator; 0: not given, which means In */
    bool field;
};

static int read_operator(const struct member *m, struct json text, enum label_operator *ret) {
    static const char *const names[] = {
        [LABEL_IN] = "In",         [LABEL_NOT_IN] = "NotIn",
        [LABEL_EXISTS] = "Exists", [LABEL_DOES_NOT_EXIST] = "DoesNotExist",
        [LABEL_GREATER] = "Gt",    [LABEL_LESS] = "Lt",
    };
    const char *word = json_string(text);
    *ret = LABEL_IN;
    if (m->operators == 0)
        return 0;
    for (unsigned o = 0; word && o < m->operators; o++)
        if (strcmp(word, names[o]) == 0) {
            *ret = (enum label_operator) o;
            return 0;
        }
    return -EINVAL;
}

static int read_expressions(struct label_terms *terms, struct json object, const struct member *m) {
    struct json_iter it = json_iter(json_get(object, m->name));
    struct json item;
    int r = 0;
    while (r == 0 && json_next(&it, NULL, &item)) {
        _cleanup_buf_ struct buf values = BUF_INIT(0);
        enum label_operator operator;
        if (read_operator(m, json_get(item, "operator"), &operator) < 0 ||
            read_values(json_get(item, "values"), &values) < 0)
            return -EINVAL;
        r = add_term(terms, operator, m->field, json_string(json_get(item, "key")), &values);
    }
    return r;
}

int label_selector_read(struct json selector, struct label_terms *ret) {
    static const struct member expressions = {"matchExpressions", LABEL_DOES_NOT_EXIST + 1, false};
    struct label_terms terms = {0};
    int r = read_match_labels(&terms, json_get(selector, "matchLabels"));
    if (r == 0)
        r = read_expressions(&terms, selector, &expressions);
    if (r < 0)
        label_terms_done(&terms);
    else
        *ret = terms;
    return r;
}

static int read_node_terms(struct json object, struct label_terms *ret) {
    static const struct member members[] = {
        {"matchExpressions", LABEL_LESS + 1, false},
        {"matchFields", LABEL_NOT_IN + 1, true},
        {"matchLabelExpressions", 0, false},
    };
    struct label_terms terms = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(members) / sizeof(members[0]); i++)
        r = read_expressions(&terms, object, &members[i]);
    if (r < 0)
        label_terms_done(&terms);
    *ret = terms;
    return r == -EINVAL ? 0 : r; /* without a term */
}

int label_match_read(struct json labels, struct label_terms *ret) {
    struct label_terms terms = {0};
    int r = read_match_labels(&terms, labels);
    if (r < 0)
        label_terms_done(&terms);
    else
        *ret = terms;
    return r;
}

int node_selector_read(struct json list, struct node_selector *ret) {
    struct node_selector s = {0};
    struct json_iter it = json_iter(list);
    struct json object;
    size_t n = json_type(list) == JSON_ARRAY ? json_size(list) : 0;
    int r = n > NODE_SELECTOR_MAX ? -EINVAL : 0;
    if (r == 0 && n > 0 && !(s.v = calloc(n, sizeof(*s.v))))
        r = -ENOMEM;
    while (r == 0 && s.n < n && json_next(&it, NULL, &object))
        r = read_node_terms(object, &s.v[s.n++]);
    if (r < 0)
        node_selector_done(&s);
    else
        *ret = s;
    return r;
}

void label_terms_done(struct label_terms *terms) {
    for (uint32_t i = 0; i < terms->n; i++) {
        free(terms->v[i].key);
        free(terms->v[i].values);
    }
    free(terms->v);
    *terms = (struct label_terms){0};
}

void node_selector_done(struct node_selector *s) {
    for (uint32_t i = 0; i < s->n; i++)
        label_terms_done(&s->v[i]);
    free(s->v);
    *s = (struct node_selector){0};
}

/* ---- matching ---- */

/* The value of a label, up to its comma; NULL: there is no such label. */
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

/* A whole number up to a comma. */
static bool read_number(const char *text, long long *ret) {
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && end != text && (*end == ',' || *end == '\0');
}

/* The first is a label's value, and the second one of ours: "4,". */
static bool is_beyond(const char *value, const char *bound, bool greater) {
    long long a, b;
    if (!read_number(value, &a) || !read_number(bound, &b))
        return false;
    return greater ? a > b : a < b;
}

static bool term_matches(const struct label_term *term, const char *labels, const char *name) {
    size_t len = name ? strlen(name) : 0;
    const char *value = name;
    if (!term->field)
        value = find_label(labels, term->key, &len);
    else if (strcmp(term->key, "metadata.name") != 0)
        value = NULL;
    switch (term->operator) {
    case LABEL_IN:
        return value && is_among(term->values, value, len);
    case LABEL_NOT_IN:
        return !value || !is_among(term->values, value, len);
    case LABEL_EXISTS:
        return value != NULL;
    case LABEL_DOES_NOT_EXIST:
        return value == NULL;
    case LABEL_GREATER:
    case LABEL_LESS:
        return value && is_beyond(value, term->values, term->operator== LABEL_GREATER);
    }
    return false;
}

bool label_terms_hold(const struct label_terms *terms, const char *labels, const char *name) {
    for (uint32_t i = 0; i < terms->n; i++)
        if (!term_matches(&terms->v[i], labels, name))
            return false;
    return true;
}

bool node_selector_holds(const struct node_selector *s, const char *labels, const char *name) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->v[i].n > 0 && label_terms_hold(&s->v[i], labels, name))
            return true;
    return s->n == 0;
}
