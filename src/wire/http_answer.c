/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http_answer.h"

#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "base/text.h"

void http_answer_init(struct http_answer *a, size_t body_max) {
    *a = (struct http_answer){.line = BUF_INIT(HTTP_ANSWER_HEAD_MAX), .body = BUF_INIT(body_max)};
}

void http_answer_done(struct http_answer *a) {
    buf_done(&a->line);
    buf_done(&a->body);
}

/* ---- the head ---- */

struct fields {
    bool has_length, chunked, close;
    uint64_t length, retry_s;
    char date[HTTP_ANSWER_DATE_SIZE];
};

/* Whether the comma-separated list has the word, in any case. */
static bool has_word(const char *list, const char *word) {
    size_t len = strlen(word);

    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n == len && strncasecmp(list, word, n) == 0)
            return true;
        list += n;
    }
    return false;
}

static int read_field(char *line, struct fields *fields) {
    char *value = strchr(line, ':');

    if (!value || value == line)
        return -EBADMSG;
    *value++ = '\0';
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n > 0 && strchr(" \t", value[n - 1]); n--)
        value[n - 1] = '\0';
    if (strcasecmp(line, "content-length") == 0) {
        uint64_t length;
        if (num_parse_u64(value, UINT64_MAX, &length) < 0 ||
            (fields->has_length && fields->length != length))
            return -EBADMSG;
        fields->has_length = true;
        fields->length = length;
    } else if (strcasecmp(line, "transfer-encoding") == 0) {
        if (strcasecmp(value, "chunked") != 0)
            return -EBADMSG; /* this client asks for no other coding */
        fields->chunked = true;
    } else if (strcasecmp(line, "connection") == 0) {
        fields->close |= has_word(value, "close");
    } else if (strcasecmp(line, "retry-after") == 0) {
        if (num_parse_u64(value, HTTP_ANSWER_RETRY_MAX, &fields->retry_s) < 0)
            fields->retry_s = 0; /* a date, which a clock that is off would make a long time */
    } else if (strcasecmp(line, "date") == 0) {
        text_copy(fields->date, sizeof(fields->date), value);
    }
    return 0;
}

/* "HTTP/1.1 200 OK" */
static int read_status(const char *line, int *ret_status, bool *ret_old) {
    int status = 0;

    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return -EBADMSG;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -EBADMSG;
        status = 10 * status + line[i] - '0';
    }
    if (status < 100 || (line[12] != ' ' && line[12] != '\0'))
        return -EBADMSG;
    *ret_status = status;
    *ret_old = line[7] == '0';
    return 0;
}

static void begin_body(struct http_answer *a, int status, const struct fields *fields) {
    a->status = status;
    a->keeps = !fields->close;
    a->retry_s = (uint32_t) fields->retry_s;
    text_copy(a->date, sizeof(a->date), fields->date);
    if (status == 204 || status == 304) {
        a->part = HTTP_ANSWER_COMPLETE;
    } else if (fields->chunked) {
        a->part = HTTP_ANSWER_SIZE;
    } else if (fields->has_length) {
        a->left = fields->length;
        a->part = a->left > 0 ? HTTP_ANSWER_BODY : HTTP_ANSWER_COMPLETE;
    } else {
        a->to_the_end = true;
        a->keeps = false;
        a->part = HTTP_ANSWER_BODY;
    }
}

/* The lines of a head, without their ends; the empty one is its end. */
static int read_head(struct http_answer *a, char *text) {
    struct fields fields = {0};
    int status = 0;
    bool old = false;
    char *line = text;
    int r = 0;

    for (bool first = true; r == 0 && line; first = false) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (end && end > line && end[-1] == '\r')
            end[-1] = '\0';
        if (first)
            r = read_status(line, &status, &old);
        else if (*line)
            r = read_field(line, &fields);
        line = end ? end + 1 : NULL;
    }
    if (r < 0)
        return r;
    fields.close |= old;
    if (status >= 200)
        begin_body(a, status, &fields);
    return 0; /* an interim answer: another head follows */
}

/* ---- lines ---- */

/* Appends up to the end of a line. Returns how many bytes it took; *ret_whole: the line ended. */
static size_t take_line(struct http_answer *a, const char *data, size_t len, bool *ret_whole) {
    const char *end = memchr(data, '\n', len);
    size_t n = end ? (size_t) (end - data) + 1 : len;

    buf_append(&a->line, data, n);
    *ret_whole = end;
    return n;
}

/* The last line of what is held is an empty one. */
static bool ends_empty(const struct buf *text) {
    const char *data = buf_str(text);
    size_t len = text->len;

    if (len >= 2 && data[len - 1] == '\n' && data[len - 2] == '\n')
        return true;
    if (len >= 3 && memcmp(data + len - 3, "\n\r\n", 3) == 0)
        return true;
    return (len == 2 && memcmp(data, "\r\n", 2) == 0) || (len == 1 && data[0] == '\n');
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char) (c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "1f40;extension" */
static int read_size(const char *line, uint64_t *ret) {
    uint64_t size = 0;
    const char *at = line;

    for (; hex_digit(*at) >= 0; at++) {
        if (size >> 60)
            return -EBADMSG;
        size = size << 4 | (uint64_t) hex_digit(*at);
    }
    if (at == line || !*at || !strchr(" \t;\r\n", *at))
        return -EBADMSG;
    *ret = size;
    return 0;
}

static int end_line(struct http_answer *a) {
    int r = 0;

    if (strlen(buf_str(&a->line)) != a->line.len)
        return -EBADMSG;
    if (a->part == HTTP_ANSWER_HEAD) {
        if (!ends_empty(&a->line))
            return 0;
        r = read_head(a, a->line.data);
    } else if (a->part == HTTP_ANSWER_SIZE) {
        r = read_size(buf_str(&a->line), &a->left);
        a->part = a->left > 0 ? HTTP_ANSWER_CHUNK : HTTP_ANSWER_TRAILER;
    } else if (a->part == HTTP_ANSWER_GAP) {
        r = ends_empty(&a->line) ? 0 : -EBADMSG;
        a->part = HTTP_ANSWER_SIZE;
    } else if (ends_empty(&a->line)) {
        a->part = HTTP_ANSWER_COMPLETE;
    } else {
        return 0; /* more of the trailer */
    }
    buf_reset(&a->line);
    return r;
}

/* ---- the whole ---- */

static size_t take_body(struct http_answer *a, const char *data, size_t len) {
    size_t n = a->to_the_end || len < a->left ? len : (size_t) a->left;

    buf_append(&a->body, data, n);
    if (a->to_the_end)
        return n;
    a->left -= n;
    if (a->left == 0)
        a->part = a->part == HTTP_ANSWER_CHUNK ? HTTP_ANSWER_GAP : HTTP_ANSWER_COMPLETE;
    return n;
}

int http_answer_feed(struct http_answer *a, const char *data, size_t len, struct err *err) {
    int r = 0;

    while (len > 0 && r == 0) {
        size_t n;
        bool whole = false;
        if (a->part == HTTP_ANSWER_COMPLETE)
            return err_set(err, EBADMSG, "bytes follow the answer");
        if (a->part == HTTP_ANSWER_BODY || a->part == HTTP_ANSWER_CHUNK)
            n = take_body(a, data, len);
        else
            n = take_line(a, data, len, &whole);
        r = buf_error(&a->body) < 0 ? buf_error(&a->body) : buf_error(&a->line);
        if (r == 0 && whole)
            r = end_line(a);
        data += n;
        len -= n;
    }
    if (r == -EBADMSG)
        return err_set(err, EBADMSG, "the answer is not HTTP/1.1");
    return r < 0 ? err_errno(err, -r, "cannot take the answer") : 0;
}

int http_answer_end(struct http_answer *a, struct err *err) {
    if (a->to_the_end && a->part == HTTP_ANSWER_BODY)
        a->part = HTTP_ANSWER_COMPLETE;
    if (a->part == HTTP_ANSWER_COMPLETE)
        return 0;
    return err_set(err, ECONNRESET, "the connection ended before the answer did");
}
