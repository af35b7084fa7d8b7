/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* More digits than any quantity that Kubernetes itself would print, and few enough that a number of
 * them times any suffix stays within 128 bits. */
#define DIGITS_MAX 20

typedef unsigned __int128
    wide; /* NOLINT: the product of digits and suffix needs more than 64 bits */

struct scaled {
    wide digits;
    int decimal; /* times 10 to the ... */
    int binary;  /* times 2 to the ... */
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits with an optional point. Leading and trailing zeros do not count towards the limit. */
static int parse_digits(const char **at, const char *end, struct scaled *ret) {
    bool any = false, point = false;
    int count = 0, zeros = 0; /* zeros held back: they count only if another digit follows */
    for (; *at < end && (is_digit(**at) || (**at == '.' && !point)); (*at)++) {
        if (**at == '.') {
            point = true;
            continue;
        }
        any = true;
        if (point)
            ret->decimal--;
        if (**at == '0') {
            zeros += ret->digits > 0;
            continue;
        }
        count += zeros + 1;
        if (count > DIGITS_MAX)
            return -ERANGE;
        for (; zeros > 0; zeros--)
            ret->digits *= 10;
        ret->digits = ret->digits * 10 + (unsigned) (**at - '0');
    }
    ret->decimal += zeros;
    return any ? 0 : -EINVAL;
}

static int parse_exponent(const char *at, const char *end, struct scaled *ret) {
    bool negative = false;
    int value = 0;
    if (at < end && (*at == '+' || *at == '-'))
        negative = *at++ == '-';
    if (at == end)
        return -EINVAL;
    for (; at < end; at++) {
        if (!is_digit(*at))
            return -EINVAL;
        if (value < 10000) /* beyond that the result is zero or out of range anyway */
            value = value * 10 + (*at - '0');
    }
    ret->decimal += negative ? -value : value;
    return 0;
}

static int parse_suffix(const char *at, const char *end, struct scaled *ret) {
    static const struct {
        char text[3];
        short decimal, binary;
    } suffixes[] = {
        {"", 0, 0},    {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
        {"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},  {"Ki", 0, 10}, {"Mi", 0, 20},
        {"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
    };
    size_t len = (size_t) (end - at);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (strlen(suffixes[i].text) == len && memcmp(at, suffixes[i].text, len) == 0) {
            ret->decimal += suffixes[i].decimal;
            ret->binary = suffixes[i].binary;
            return 0;
        }
    if (*at == 'e' || *at == 'E')
        return parse_exponent(at + 1, end, ret);
    return -EINVAL;
}

static int to_integer(const struct scaled *s, bool round_up, uint64_t *ret) {
    wide value = s->digits;
    if (value == 0) {
        *ret = 0;
        return 0;
    }
    if (__builtin_mul_overflow(value, (wide) 1 << s->binary, &value))
        return -ERANGE;
    for (int e = s->decimal; e > 0; e--)
        if (__builtin_mul_overflow(value, (wide) 10, &value))
            return -ERANGE;
    for (int e = s->decimal; e < 0; e++) {
        if (value % 10 != 0 && !round_up)
            return -EDOM;
        value = value / 10 + (value % 10 != 0);
    }
    if (value > INT64_MAX)
        return -ERANGE;
    *ret = (uint64_t) value;
    return 0;
}

static int parse_scaled(const char *text, size_t len, struct scaled *ret) {
    struct scaled s = {0};
    const char *at = text, *end = text + len;
    if (len > 0 && *at == '+')
        at++;
    int r = parse_digits(&at, end, &s);
    if (r < 0)
        return r;
    r = parse_suffix(at, end, &s);
    if (r == 0)
        *ret = s;
    return r;
}

int quantity_parse(const char *text, size_t len, uint64_t *ret_value) {
    struct scaled s;
    int r = parse_scaled(text, len, &s);
    return r < 0 ? r : to_integer(&s, false, ret_value);
}

int quantity_parse_milli(const char *text, size_t len, uint64_t *ret_value) {
    struct scaled s;
    int r = parse_scaled(text, len, &s);
    if (r < 0)
        return r;
    s.decimal += 3;
    return to_integer(&s, true, ret_value);
}

const char *quantity_format_bytes(uint64_t bytes, char out[static 24]) {
    static const char suffixes[][3] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    size_t i = 0;
    while (bytes != 0 && bytes % 1024 == 0 && i + 1 < sizeof(suffixes) / sizeof(suffixes[0])) {
        bytes /= 1024;
        i++;
    }
    snprintf(out, 24, "%" PRIu64 "%s", bytes, suffixes[i]);
    return out;
}
