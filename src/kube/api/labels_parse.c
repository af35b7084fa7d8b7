/* SPDX-License-Identifier: Apache-2.0 */

/* Selectors of labels as they are in URLs. */

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "kube/api/labels_internal.h"

#define WORD_MAX 320 /* a prefix of 253 bytes, a slash, a name of 63 */

static const char *skip_blanks(const char *at) {
    while (*at == ' ')
        at++;
    return at;
}

/* A key or a value; `end` is behind it. False: it is too long. */
static bool take_word(const char **at, char ret[static WORD_MAX]) {
    const char *begin = skip_blanks(*at), *end = begin;
    while (isalnum((unsigned char) *end) || (*end && strchr("-_./", *end)))
        end++;
    if (end - begin >= WORD_MAX)
        return false;
    memcpy(ret, begin, (size_t) (end - begin));
    ret[end - begin] = '\0';
    *at = skip_blanks(end);
    return true;
}

static bool take(const char **at, const char *token) {
    size_t len = strlen(token);
    if (strncmp(*at, token, len) != 0)
        return false;
    *at = skip_blanks(*at + len);
    return true;
}

/* "(a,b)", as values of a term. */
static bool take_set(const char **at, struct buf *out) {
    char word[WORD_MAX];
    if (!take(at, "("))
        return false;
    do {
        if (!take_word(at, word))
            return false;
        buf_printf(out, "%s,", word);
    } while (take(at, ","));
    return take(at, ")");
}

static bool take_value(const char **at, struct buf *out) {
    char word[WORD_MAX];
    if (!take_word(at, word))
        return false;
    buf_printf(out, "%s,", word);
    return true;
}

/* One requirement. "in" and "notin" are words only with a set behind them. */
static int take_term(const char **at, struct label_terms *terms) {
    _cleanup_buf_ struct buf values = BUF_INIT(0);
    enum label_operator operator= LABEL_EXISTS;
    char key[WORD_MAX];
    bool absent = take(at, "!"), good = take_word(at, key) && *key;
    if (absent)
        operator= LABEL_DOES_NOT_EXIST;
    else if (take(at, "!=")) {
        operator= LABEL_NOT_IN;
        good = good && take_value(at, &values);
    } else if (take(at, "==") || take(at, "=")) {
        operator= LABEL_IN;
        good = good && take_value(at, &values);
    } else if (take(at, "notin")) {
        operator= LABEL_NOT_IN;
        good = good && take_set(at, &values);
    } else if (take(at, "in")) {
        operator= LABEL_IN;
        good = good && take_set(at, &values);
    }
    return good ? label_terms_add(terms, operator, key, &values) : -EINVAL;
}

int label_selector_parse(const char *text, struct label_terms *ret) {
    struct label_terms terms = {0};
    const char *at = skip_blanks(text);
    int r = 0;
    while (*at && r == 0) {
        r = take_term(&at, &terms);
        if (r == 0 && *at && (!take(&at, ",") || !*at))
            r = -EINVAL;
    }
    if (r < 0)
        label_terms_done(&terms);
    else
        *ret = terms;
    return r;
}
