/* SPDX-License-Identifier: Apache-2.0 */

/* Maps by a table of their keys, and the readers of scalars. */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/num.h"
#include "wire/yaml.h"

#define SHOWN_MAX 300 /* bytes of a list of words in a message */

const char *yaml_type_name(const struct yaml *v) {
    static const char *const names[] = {
        [YAML_NULL] = "empty",    [YAML_BOOL] = "true or false", [YAML_NUMBER] = "a number",
        [YAML_STRING] = "a text", [YAML_LIST] = "a list",        [YAML_MAP] = "a map"};

    return names[v->type];
}

int yaml_error(const struct yaml *v, struct err *err, const char *format, ...) {
    char why[ERR_TEXT_MAX];
    va_list ap;

    va_start(ap, format);
    (void) vsnprintf(why, sizeof(why), format, ap);
    va_end(ap);
    return err_set(err, EINVAL, "line %u, column %u: %.64s%s%s", v->line, v->column,
                   v->key ? v->key->text : "", v->key ? ": " : "", why);
}

static void list_words(struct buf *out, const char *const *words) {
    for (size_t i = 0; words[i]; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
}

/* ---- maps ---- */

#define FIELDS_MAX 40

static int unknown_key(const struct yaml *v, const struct yaml_field *fields, struct err *err) {
    const char *names[FIELDS_MAX + 1] = {NULL}, *nearest;
    _cleanup_buf_ struct buf known = BUF_INIT(SHOWN_MAX);

    for (size_t i = 0; i < FIELDS_MAX && fields[i].key; i++)
        names[i] = fields[i].key;
    nearest = text_nearest(v->key->text, names);
    if (nearest)
        return err_set(err, EINVAL, "line %u, column %u: unknown key '%.64s'; did you mean '%s'?",
                       v->key->line, v->key->column, v->key->text, nearest);
    list_words(&known, names);
    return err_set(err, EINVAL, "line %u, column %u: unknown key '%.64s'; here can be: %s",
                   v->key->line, v->key->column, v->key->text, buf_str(&known));
}

static int read_member(const struct yaml *v, const struct yaml_field *fields, void *target,
                       struct err *err) {
    for (const struct yaml_field *f = fields; f->key; f++) {
        if (strcmp(f->key, v->key->text) != 0)
            continue;
        if (v->type == YAML_NULL || !f->read)
            return 0;
        return f->read(v, (char *) target + f->offset, f->arg, err);
    }
    return unknown_key(v, fields, err);
}

int yaml_read(const struct yaml *v, const struct yaml_field *fields, void *target,
              struct err *err) {
    if (v && v->type != YAML_MAP && v->type != YAML_NULL)
        return yaml_error(v, err, "expected a map of keys and values, not %s", yaml_type_name(v));
    for (const struct yaml *m = v ? v->first : NULL; m; m = m->next) {
        int r = read_member(m, fields, target, err);

        if (r < 0)
            return r;
    }
    for (const struct yaml_field *f = fields; v && f->key; f++) {
        const struct yaml *m = yaml_get(v, f->key);

        if (f->required && (!m || m->type == YAML_NULL))
            return yaml_error(v, err, "the key '%s' is missing", f->key);
    }
    return 0;
}

int yaml_read_each(const struct yaml *v, yaml_read_fn each, void *target, const void *arg,
                   struct err *err) {
    int r = 0;

    if (!v || v->type == YAML_NULL)
        return 0;
    if (v->type != YAML_LIST)
        return yaml_error(v, err, "expected a list, not %s", yaml_type_name(v));
    for (const struct yaml *item = v->first; item && r == 0; item = item->next)
        r = each(item, target, arg, err);
    return r;
}

/* ---- scalars ---- */

int yaml_bool(const struct yaml *v, void *target, const void *arg, struct err *err) {
    bool *ret = target;

    (void) arg;
    if (v->type != YAML_BOOL)
        return yaml_error(v, err, "expected true or false, not %s%s%.40s%s", yaml_type_name(v),
                          v->text ? " ('" : "", v->text ? v->text : "", v->text ? "')" : "");
    *ret = strchr("yYtT", v->text[0]) || strcmp(v->text + 1, "n") == 0 ||
           strcmp(v->text + 1, "N") == 0;
    return 0;
}

int yaml_string(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const char **ret = target;

    (void) arg;
    if (!v->text)
        return yaml_error(v, err, "expected a text, not %s", yaml_type_name(v));
    *ret = v->text;
    return 0;
}

int yaml_word(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const char *const *words = arg, *nearest;
    _cleanup_buf_ struct buf known = BUF_INIT(SHOWN_MAX);
    int *ret = target;

    if (!v->text)
        return yaml_error(v, err, "expected a text, not %s", yaml_type_name(v));
    for (int i = 0; words[i]; i++) {
        if (strcmp(v->text, words[i]) == 0) {
            *ret = i;
            return 0;
        }
    }
    list_words(&known, words);
    nearest = text_nearest(v->text, words);
    if (nearest)
        return yaml_error(v, err, "'%.64s' is not %s; did you mean '%s'?", v->text, buf_str(&known),
                          nearest);
    return yaml_error(v, err, "'%.64s' is not %s", v->text, buf_str(&known));
}

int yaml_u32(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const struct yaml_range *range = arg;
    uint32_t min = range ? range->min : 0, max = range ? range->max : UINT32_MAX, *ret = target;
    uint64_t n;

    if (!v->text)
        return yaml_error(v, err, "expected a number, not %s", yaml_type_name(v));
    if (v->type != YAML_NUMBER || num_parse_u64(v->text, max, &n) < 0 || n < min)
        return yaml_error(v, err, "'%.40s' is not a whole number from %u to %u", v->text, min, max);
    *ret = (uint32_t) n;
    return 0;
}

/* ---- durations ---- */

/* One number with its unit; *p moves behind it. */
static bool take_part(const char **p, double *ret_ns) {
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    double value = 0, place = 1;
    const char *start = *p;

    for (; **p >= '0' && **p <= '9'; (*p)++)
        value = value * 10 + (**p - '0');
    if (**p == '.')
        for ((*p)++; **p >= '0' && **p <= '9'; (*p)++)
            value += (**p - '0') * (place /= 10);
    if (*p == start || (*p == start + 1 && *start == '.'))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t n = strlen(units[i].name);

        /* "m" begins "ms", too: what follows is a digit, a point or the end. */
        if (strncmp(*p, units[i].name, n) != 0 || isalpha((unsigned char) (*p)[n]))
            continue;
        *p += n;
        *ret_ns = value * units[i].ns;
        return true;
    }
    return false;
}

int yaml_duration(const struct yaml *v, void *target, const void *arg, struct err *err) {
    uint64_t *ret = target;
    double sum = 0;

    (void) arg;
    if (!v->text)
        return yaml_error(v, err, "expected a duration like 10s, not %s", yaml_type_name(v));
    if (v->type == YAML_NUMBER && num_parse_u64(v->text, INT64_MAX, ret) == 0)
        return 0;
    for (const char *p = v->text; *p || p == v->text;) {
        double part = 0;

        if (!take_part(&p, &part) || (sum += part) > (double) INT64_MAX / 2)
            return yaml_error(v, err, "'%.40s' is not a duration like 1s, 250ms, 10m or 1h30m",
                              v->text);
    }
    *ret = (uint64_t) (sum + 0.5);
    return 0;
}

int yaml_read_text(const char *text, size_t len, const char *expected,
                   const struct yaml_field *fields, void *target, struct yaml_doc **ret_doc,
                   struct err *err) {
    const struct yaml *root;
    int r = yaml_parse(text, len, ret_doc, &root, err);

    if (r == 0 && root->type != YAML_MAP)
        r = yaml_error(root, err, "expected %s", expected);
    return r == 0 ? yaml_read(root, fields, target, err) : r;
}
