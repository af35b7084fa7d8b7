/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json_write.h"

#include <inttypes.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at s (RFC 3629: shortest form, no surrogates), 0 if
 * there is none. The text is NUL-terminated, which ends any sequence. */
static size_t utf8_len(const unsigned char *s) {
    unsigned char lowest = 0x80, highest = 0xbf;
    size_t len;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        len = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        len = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        len = 4;
    else
        return 0;

    if (s[0] == 0xe0)
        lowest = 0xa0;
    else if (s[0] == 0xed)
        highest = 0x9f;
    else if (s[0] == 0xf0)
        lowest = 0x90;
    else if (s[0] == 0xf4)
        highest = 0x8f;
    if (s[1] < lowest || s[1] > highest)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* Length of the longest start of s that needs no escape and no check. */
static size_t plain_run(const unsigned char *s) {
    size_t n = 0;
    while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

/* Control characters; and what YAML, which reads JSON, takes escaped only: the line breaks and the
 * byte order mark of Unicode, and what is no character. The code, or 0 for all others. */
static unsigned special(const unsigned char *s, size_t len) {
    unsigned code = *s;

    if (len == 2)
        code = (s[0] & 0x1fU) << 6 | (s[1] & 0x3fU);
    else if (len == 3)
        code = (s[0] & 0xfU) << 12 | (s[1] & 0x3fU) << 6 | (s[2] & 0x3fU);
    else if (len == 4)
        return 0;
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
                   code == 0xfeff || code >= 0xfffe
               ? code
               : 0;
}

static void put_escaped(struct buf *out, const char *text) {
    const unsigned char *s = (const unsigned char *) text;
    buf_putc(out, '"');
    for (;;) {
        size_t run = plain_run(s);
        buf_append(out, s, run);
        s += run;
        if (*s == '\0')
            break;
        size_t len = utf8_len(s);
        if (len == 0) {
            buf_puts(out, "\xef\xbf\xbd");
            len = 1;
        } else if (*s == '"' || *s == '\\') {
            buf_putc(out, '\\');
            buf_putc(out, (char) *s);
        } else if (special(s, len)) {
            buf_printf(out, "\\u%04x", special(s, len));
        } else {
            buf_append(out, s, len);
        }
        s += len;
    }
    buf_putc(out, '"');
}

static void start(struct json_writer *w, const char *key) {
    if (w->comma)
        buf_putc(w->out, ',');
    if (key) {
        put_escaped(w->out, key);
        buf_putc(w->out, ':');
    }
    w->comma = true;
}

static void open_with(struct json_writer *w, const char *key, char bracket) {
    start(w, key);
    buf_putc(w->out, bracket);
    w->comma = false;
}

static void close_with(struct json_writer *w, char bracket) {
    buf_putc(w->out, bracket);
    w->comma = true;
}

void json_object_begin(struct json_writer *w, const char *key) {
    open_with(w, key, '{');
}

void json_object_end(struct json_writer *w) {
    close_with(w, '}');
}

void json_array_begin(struct json_writer *w, const char *key) {
    open_with(w, key, '[');
}

void json_array_end(struct json_writer *w) {
    close_with(w, ']');
}

void json_put_string(struct json_writer *w, const char *key, const char *value) {
    if (!value) {
        json_put_null(w, key);
        return;
    }
    start(w, key);
    put_escaped(w->out, value);
}

void json_put_stringf(struct json_writer *w, const char *key, const char *format, ...) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    va_list ap;
    va_start(ap, format);
    buf_vprintf(&text, format, ap);
    va_end(ap);
    if (text.error && !w->out->error)
        w->out->error = text.error;
    json_put_string(w, key, buf_str(&text));
}

void json_put_u64(struct json_writer *w, const char *key, uint64_t value) {
    start(w, key);
    buf_printf(w->out, "%" PRIu64, value);
}

void json_put_i64(struct json_writer *w, const char *key, int64_t value) {
    start(w, key);
    buf_printf(w->out, "%" PRId64, value);
}

void json_put_bool(struct json_writer *w, const char *key, bool value) {
    json_put_raw(w, key, value ? "true" : "false");
}

void json_put_null(struct json_writer *w, const char *key) {
    json_put_raw(w, key, "null");
}

void json_put_raw(struct json_writer *w, const char *key, const char *text) {
    start(w, key);
    buf_puts(w->out, text);
}
