/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/yaml_write.h"

#include <string.h>
#include <strings.h>

#include "wire/json_write.h"

#define INDENT 2

/* Words that readers of YAML 1.1 or 1.2 take for a boolean or null. */
static const char *const words[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};

static bool is_plain(const char *text) {
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char more[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._/()-";
    size_t len = strlen(text);

    if (len == 0 || !strchr(first, text[0]) || strspn(text, more) != len || text[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    return true;
}

/* A quoted string of JSON is one of YAML. */
static void put_text(struct buf *out, const char *text) {
    struct json_writer w = {.out = out};

    if (is_plain(text))
        buf_puts(out, text);
    else
        json_put_string(&w, NULL, text);
}

static void put_scalar(struct buf *out, struct json v) {
    const char *text = json_string(v);

    if (text)
        put_text(out, text);
    else
        json_print(out, v);
}

static bool is_block(struct json v) {
    return (json_type(v) == JSON_ARRAY || json_type(v) == JSON_OBJECT) && json_size(v) > 0;
}

static void put_block(struct buf *out, struct json v, unsigned indent, bool begun);

/* An element of a list begins on the line of its dash; a member's block on the next line. */
static void put_value(struct buf *out, struct json v, unsigned indent, bool is_element) {
    if (!is_block(v)) {
        buf_putc(out, ' ');
        put_scalar(out, v);
        buf_putc(out, '\n');
    } else if (is_element) {
        buf_putc(out, ' ');
        put_block(out, v, indent + INDENT, true);
    } else {
        buf_putc(out, '\n');
        put_block(out, v, indent + INDENT, false);
    }
}

/* `begun`: the first line is indented already. */
static void put_block(struct buf *out, struct json v, unsigned indent, bool begun) {
    struct json_iter it = json_iter(v);
    bool is_list = json_type(v) == JSON_ARRAY;
    struct json item;
    const char *key = NULL;

    while (json_next(&it, &key, &item)) {
        if (!begun)
            buf_printf(out, "%*s", (int) indent, "");
        begun = false;
        if (!is_list)
            put_text(out, key ? key : "");
        buf_putc(out, is_list ? '-' : ':');
        put_value(out, item, indent, is_list);
    }
}

void yaml_print(struct buf *out, struct json v) {
    if (is_block(v)) {
        put_block(out, v, 0, false);
        return;
    }
    put_scalar(out, v);
    buf_putc(out, '\n');
}
