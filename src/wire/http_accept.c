/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http_accept.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

#define WHOLE 1000u

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t");
}

/* "0.25" is 250. What is no such number counts as a refusal. */
static unsigned read_quality(const char *text, const char *end) {
    unsigned quality = text < end && *text == '1' ? WHOLE : 0, digit = WHOLE / 10;

    if (text == end || (*text != '0' && *text != '1'))
        return 0;
    if (++text < end && *text == '.')
        for (text++; text < end && isdigit((unsigned char) *text) && digit; text++, digit /= 10)
            quality += (unsigned) (*text - '0') * digit;
    return quality < WHOLE ? quality : WHOLE;
}

/* The parameters of an item, from its first semicolon on. */
static unsigned quality_of(const char *at, const char *end) {
    while ((at = memchr(at, ';', (size_t) (end - at)))) {
        at = skip_blanks(at + 1);
        if (end - at >= 2 && strncasecmp(at, "q=", 2) == 0)
            return read_quality(at + 2, end);
    }
    return WHOLE;
}

unsigned http_accept_quality(const char *header, const char *name) {
    const char *item;
    size_t len, wanted = strlen(name);
    unsigned best = 0;

    while (text_item(&header, &item, &len)) {
        const char *end = item + len;

        item = skip_blanks(item);
        if (end - item < (ptrdiff_t) wanted || strncasecmp(item, name, wanted) != 0 ||
            (item + wanted < end && !strchr("; \t", item[wanted])))
            continue;
        unsigned quality = quality_of(item + wanted, end);
        best = quality > best ? quality : best;
    }
    return best;
}
