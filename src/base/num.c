/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Parses the digits at the start of text; *ret_end is the first character behind them. */
static int parse_digits(const char *text, uint64_t *ret, const char **ret_end) {
    uint64_t value = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++) {
        uint64_t digit = (uint64_t) (*c - '0');
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return -ERANGE;
    }
    if (c == text)
        return -EINVAL;
    *ret = value;
    *ret_end = c;
    return 0;
}

int num_parse_u64(const char *text, uint64_t max, uint64_t *ret) {
    uint64_t value;
    const char *end;
    int r = parse_digits(text, &value, &end);
    if (r < 0)
        return r;
    if (*end != '\0')
        return -EINVAL;
    if (value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}

static const struct {
    const char *suffix;
    uint64_t factor;
} units[] = {
    {"", 1},
    {"Ki", UINT64_C(1) << 10},
    {"Mi", UINT64_C(1) << 20},
    {"Gi", UINT64_C(1) << 30},
    {"Ti", UINT64_C(1) << 40},
    {"Pi", UINT64_C(1) << 50},
    {"k", 1000},
    {"M", 1000000},
    {"G", 1000000000},
    {"T", UINT64_C(1000000000000)},
    {"P", UINT64_C(1000000000000000)},
};

int num_parse_size(const char *text, uint64_t *ret) {
    uint64_t value;
    const char *end;
    int r = parse_digits(text, &value, &end);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].suffix) != 0)
            continue;
        if (__builtin_mul_overflow(value, units[i].factor, &value))
            return -ERANGE;
        *ret = value;
        return 0;
    }
    return -EINVAL;
}

/* Whether it is a whole number of tenths of that unit. */
static bool is_tenths(uint64_t bytes, unsigned unit) {
    uint64_t size = UINT64_C(1) << (10 * unit);
    return bytes % size * 10 % size == 0;
}

const char *num_format_bytes(uint64_t bytes, char out[static 24]) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (unit < 6 && bytes >> (10 * (unit + 1)) > 0)
        unit++;
    /* 2000 MiB is no 1.9 GiB. */
    if (unit > 1 && !is_tenths(bytes, unit) && bytes % (UINT64_C(1) << (10 * (unit - 1))) == 0)
        unit--;

    uint64_t whole = bytes >> (10 * unit);
    uint64_t rest = unit == 0 ? 0 : bytes - (whole << (10 * unit));
    uint64_t tenths = unit == 0 ? 0 : (rest >> (10 * (unit - 1))) * 10 / 1024;
    if (tenths == 0)
        (void) snprintf(out, 24, "%" PRIu64 " %s", whole, names[unit]);
    else
        (void) snprintf(out, 24, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, names[unit]);
    return out;
}

static int hex_value(unsigned char digit) {
    return isdigit(digit) ? digit - '0' : tolower(digit) - 'a' + 10;
}

int num_hex_byte(const char *text) {
    const unsigned char high = (unsigned char) text[0];
    const unsigned char low = high ? (unsigned char) text[1] : 0;

    return isxdigit(high) && isxdigit(low) ? hex_value(high) * 16 + hex_value(low) : -1;
}
