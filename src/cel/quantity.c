/* SPDX-License-Identifier: Apache-2.0 */

/* Quantities as Kubernetes reads them, without what it rounds or caps. */

#include <string.h>

#include "cel/internal.h"

#define NANO 9
#define DIGITS_MAX 18
#define EXPONENT_MAX 18

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits with a point between; `*ret_scale`: how many of them are behind it. */
static bool read_number(const char **at, const char *end, int64_t *ret, int *ret_scale) {
    int digits = 0, scale = 0;
    bool point = false;
    *ret = 0;
    for (; *at < end; (*at)++) {
        if (**at == '.' && !point && digits > 0 && *at + 1 < end && is_digit((*at)[1])) {
            point = true;
            continue;
        }
        if (!is_digit(**at))
            break;
        if (++digits > DIGITS_MAX)
            return false;
        *ret = *ret * 10 + (**at - '0');
        scale += point;
    }
    *ret_scale = scale;
    return digits > 0;
}

struct suffix {
    char text[3];
    int8_t decimal, binary;
};

static bool read_exponent(const char *at, const char *end, int *ret) {
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    *ret = 0;
    if (at == end || end - at > 2)
        return false;
    for (; at < end; at++) {
        if (!is_digit(*at))
            return false;
        *ret = *ret * 10 + (*at - '0');
    }
    *ret = negative ? -*ret : *ret;
    return true;
}

static bool read_suffix(const char *at, const char *end, int *ret_decimal, int *ret_binary) {
    static const struct suffix suffixes[] = {
        {"", 0, 0},    {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
        {"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},  {"Ki", 0, 10}, {"Mi", 0, 20},
        {"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
    };
    size_t len = (size_t) (end - at);
    *ret_binary = 0;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (len == strlen(suffixes[i].text) && memcmp(at, suffixes[i].text, len) == 0) {
            *ret_decimal = suffixes[i].decimal;
            *ret_binary = suffixes[i].binary;
            return true;
        }
    return len > 1 && (*at == 'e' || *at == 'E') && read_exponent(at + 1, end, ret_decimal);
}

bool cel_quantity_parse(struct cel_text text, cel_nano *ret) {
    const char *at = text.data, *end = text.data + text.len;
    const cel_nano most = (cel_nano) INT64_MAX * 1000000000;
    bool negative = at < end && *at == '-';
    int64_t digits;
    int scale, decimal, binary;
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (!read_number(&at, end, &digits, &scale) || !read_suffix(at, end, &decimal, &binary) ||
        decimal > EXPONENT_MAX)
        return false;
    cel_nano value = digits;
    int power = decimal - scale + NANO;
    for (int i = 0; i < binary; i++)
        if ((value *= 2) > most)
            return false;
    for (; power > 0; power--)
        if ((value *= 10) > most)
            return false;
    for (; power < 0; power++) {
        if (value % 10 != 0)
            return false; /* Kubernetes rounds it up */
        value /= 10;
    }
    *ret = negative ? -value : value;
    return true;
}
