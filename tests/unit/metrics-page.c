/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics-page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double page_sum(const char *text, const char *family) {
    size_t len = strlen(family);
    double sum = 0;

    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n'))
        if (strncmp(line + 1, family, len) == 0 && line[1 + len] == '{')
            sum += strtod(strstr(line, "} ") + 2, NULL);
    return sum;
}

unsigned page_labelled(const char *text, const char *family, const char *label) {
    size_t len = strlen(family);
    unsigned n = 0;

    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        const char *found = strstr(line + 1, label), *end = strchr(line + 1, '\n');

        n += strncmp(line + 1, family, len) == 0 && line[1 + len] == '{' && found && found < end;
    }
    return n;
}

size_t page_samples(const char *page, const char *name, const char *value) {
    size_t n = 0, length = strlen(name);

    for (const char *line = page; *line; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n'), *at = end;

        assert_non_null(end);
        while (at > line && at[-1] != ' ')
            at--;
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '{') &&
            (!value ||
             ((size_t) (end - at) == strlen(value) && strncmp(at, value, strlen(value)) == 0)))
            n++;
    }
    return n;
}

static size_t families(const char *page) {
    size_t n = 0;

    for (const char *at = page; (at = strstr(at, "# TYPE ")); at++)
        n++;
    return n;
}

static const char *sample_name(const struct metric *m, char ret[static 128]) {
    (void) snprintf(ret, 128, "%s%s", m->name, m->type == PROM_HISTOGRAM ? "_sum" : "");
    return ret;
}

static const struct expected *find(const struct expected *expected, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(expected[i].name, name) == 0)
            return &expected[i];
    return NULL;
}

static bool is_flag(const char *value) {
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static void assert_distinct(const struct vocabulary *v, const struct metric *m, const char *value,
                            const struct expected *expected, size_t nexpected) {
    for (size_t i = 0; i < v->nmetrics && !is_flag(value); i++) {
        const struct metric *other = &v->metrics[i];
        const struct expected *e = find(expected, nexpected, other->name);
        bool same = other->figure.offset == m->figure.offset;

        if (e && !same && strcmp(e->value, value) == 0)
            fail_msg("%s and %s have the same value", m->name, other->name);
    }
}

void assert_page(const char *page, const struct vocabulary *const *vocabularies, size_t n,
                 const struct expected *expected, size_t nexpected) {
    size_t metrics = 0;
    char name[128];

    for (size_t v = 0; v < n; v++) {
        for (size_t i = 0; i < vocabularies[v]->nmetrics; i++, metrics++) {
            const struct metric *m = &vocabularies[v]->metrics[i];
            const struct expected *e = find(expected, nexpected, m->name);

            if (!e)
                fail_msg("no value is expected of %s", m->name);
            else if (page_samples(page, sample_name(m, name), e->value) == 0)
                fail_msg("the page has no %s of %s", e->value, m->name);
            if (e)
                assert_distinct(vocabularies[v], m, e->value, expected, nexpected);
        }
    }
    assert_int_equal(metrics, nexpected);
    assert_int_equal(metrics, families(page));
}

void assert_absent(const char *page, const struct vocabulary *const *vocabularies, size_t n) {
    size_t metrics = 0;
    char name[128];

    for (size_t v = 0; v < n; v++) {
        for (size_t i = 0; i < vocabularies[v]->nmetrics; i++, metrics++) {
            const struct metric *m = &vocabularies[v]->metrics[i];
            bool absent = page_samples(page, sample_name(m, name), NULL) == 0;

            if (absent != (m->absent[0] != 0))
                fail_msg("%s is %s", m->name, absent ? "absent" : "not absent");
        }
    }
    assert_int_equal(metrics, families(page));
}
