/* SPDX-License-Identifier: Apache-2.0 */

/* Semantic versions as the library of Kubernetes reads and orders them. */

#include <string.h>

#include "cel/internal.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_identifier(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

static bool all_are(struct cel_text text, bool (*is)(char c)) {
    for (size_t i = 0; i < text.len; i++)
        if (!is(text.data[i]))
            return false;
    return true;
}

static bool read_number(struct cel_text text, uint64_t *ret) {
    *ret = 0;
    if (text.len == 0 || (text.len > 1 && text.data[0] == '0') || !all_are(text, is_digit))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (__builtin_mul_overflow(*ret, 10, ret) ||
            __builtin_add_overflow(*ret, (uint64_t) (text.data[i] - '0'), ret))
            return false;
    return true;
}

/* Takes off what is before the character, and that; all of it where it is not there. */
static struct cel_text cut(struct cel_text *text, char c, bool *ret_found) {
    const char *at = text->len > 0 ? memchr(text->data, c, text->len) : NULL;
    struct cel_text part = {text->data, at ? (size_t) (at - text->data) : text->len};
    *ret_found = at != NULL;
    text->data += part.len + (at != NULL);
    text->len -= part.len + (at != NULL);
    return part;
}

/* Of a pre-release also: numbers are without leading zeros. */
static bool are_identifiers(struct cel_text list, bool pre) {
    bool more = true;
    while (more) {
        struct cel_text part = cut(&list, '.', &more);
        uint64_t number;
        if (part.len == 0 || !all_are(part, is_identifier) ||
            (pre && all_are(part, is_digit) && !read_number(part, &number)))
            return false;
    }
    return true;
}

static bool parse(struct cel_text text, struct cel_version *ret) {
    bool found = true, has_build, has_pre;
    for (int i = 0; i < 2; i++) {
        struct cel_text part = cut(&text, '.', &found);
        if (!found || !read_number(part, &ret->numbers[i]))
            return false;
    }
    struct cel_text patch = cut(&text, '+', &has_build);
    if (has_build && !are_identifiers(text, false))
        return false;
    ret->pre = patch;
    patch = cut(&ret->pre, '-', &has_pre);
    return read_number(patch, &ret->numbers[2]) && (!has_pre || are_identifiers(ret->pre, true));
}

/* Without a "v" in front, without leading zeros of the three parts; parts that lack are 0. */
static bool normalize(struct cel_text text, char buf[static CEL_VERSION_MAX],
                      struct cel_text *ret) {
    size_t n = 0;
    bool more = true;
    if (text.len > 0 && text.data[0] == 'v')
        text.data++, text.len--;
    for (int i = 0; i < 3; i++) {
        bool there = more;
        struct cel_text part = text;
        if (i < 2)
            part = cut(&text, '.', &more);
        if (!there)
            part = (struct cel_text){"0", 1};
        else if (i < 2 && !more &&
                 (memchr(part.data, '+', part.len) || memchr(part.data, '-', part.len)))
            return false; /* a short version has no more than numbers */
        while (part.len > 1 && part.data[0] == '0' && is_digit(part.data[1]))
            part.data++, part.len--;
        memcpy(buf + n, part.data, part.len);
        n += part.len;
        if (i < 2)
            buf[n++] = '.';
    }
    *ret = (struct cel_text){buf, n};
    return true;
}

enum cel_parsed cel_version_parse(struct cel_text text, bool tolerant,
                                  char buf[static CEL_VERSION_MAX], struct cel_version *ret) {
    if (text.len > CEL_VERSION_MAX - 8)
        return CEL_TOO_LONG;
    if (!tolerant) {
        memcpy(buf, text.data, text.len);
        text.data = buf;
    } else if (!normalize(text, buf, &text)) {
        return CEL_MALFORMED;
    }
    return parse(text, ret) ? CEL_PARSED : CEL_MALFORMED;
}

static int compare_numbers(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int compare_identifiers(struct cel_text a, struct cel_text b) {
    uint64_t m, n;
    bool a_is_number = read_number(a, &m), b_is_number = read_number(b, &n);
    if (a_is_number && b_is_number)
        return compare_numbers(m, n);
    if (a_is_number != b_is_number)
        return a_is_number ? -1 : 1;
    int r = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
    return r != 0 ? (r < 0 ? -1 : 1) : compare_numbers(a.len, b.len);
}

int cel_version_compare(const struct cel_version *a, const struct cel_version *b) {
    struct cel_text pre_a = a->pre, pre_b = b->pre;
    bool more_a = pre_a.len > 0, more_b = pre_b.len > 0;
    for (int i = 0; i < 3; i++)
        if (a->numbers[i] != b->numbers[i])
            return compare_numbers(a->numbers[i], b->numbers[i]);
    if (!more_a || !more_b)
        return more_b - more_a;
    while (more_a && more_b) {
        int r = compare_identifiers(cut(&pre_a, '.', &more_a), cut(&pre_b, '.', &more_b));
        if (r != 0)
            return r;
    }
    return more_a - more_b;
}
