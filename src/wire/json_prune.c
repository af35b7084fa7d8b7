/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json_prune.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "wire/json.h"

#define KEY_MAX 256 /* longer keys are on no path */

/* What becomes of a value. */
enum fate {
    DROP,
    WALK, /* on the way to something that is kept */
    KEEP,
};

enum expect {
    VALUE,        /* after a colon, after a comma in an array, at the beginning */
    VALUE_OR_END, /* after [ */
    KEY,          /* after a comma in an object */
    KEY_OR_END,   /* after { */
    COLON,
    COMMA_OR_END,
    IN_KEY,
    IN_STRING,
    IN_SCALAR, /* number, true, false, null */
    NOTHING,   /* the document is complete */
};

struct level {
    bool object;
    bool emitted; /* the next member needs a comma before it */
    enum fate fate;
    uint32_t paths; /* those that lead through here, one bit each */
};

struct json_prune {
    const char *const *keep;
    struct buf *out;
    int error;
    enum expect expect;
    bool escaped;   /* the last byte in a string was a backslash */
    enum fate fate; /* of the value that is read or expected next */
    uint32_t paths; /* those that lead to it */
    uint32_t depth;
    struct level levels[JSON_DEPTH_MAX];
    size_t key_len;
    char key[KEY_MAX];
};

struct json_prune *json_prune_new(const char *const *keep, struct buf *out) {
    struct json_prune *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct json_prune){.keep = keep, .out = out, .expect = VALUE, .fate = WALK};
    for (uint32_t i = 0; i < JSON_PRUNE_KEEP_MAX && keep[i]; i++)
        p->paths |= UINT32_C(1) << i;
    return p;
}

struct json_prune *json_prune_free(struct json_prune *p) {
    free(p);
    return NULL;
}

static struct level *top(struct json_prune *p) {
    return p->depth > 0 ? &p->levels[p->depth - 1] : NULL;
}

/* The part of a path below `depth` levels. */
static const char *part_of(const char *path, uint32_t depth) {
    for (; depth > 0 && path; depth--) {
        path = strchr(path, '/');
        if (path)
            path++;
    }
    return path;
}

/* Whether the next part of a path is this key, or matches any; *ret_last when nothing comes
 * behind it. */
static bool part_is(const char *part, const char *key, size_t len, bool *ret_last) {
    size_t own = part ? strcspn(part, "/") : 0;
    bool any = own == 1 && *part == '*' && len > 0;
    if (!part || (!any && (own != len || strncasecmp(part, key, len) != 0)))
        return false;
    *ret_last = part[own] == '\0';
    return true;
}

/* Decides about a member of the level on top. */
static void choose(struct json_prune *p, const char *key, size_t len) {
    const struct level *l = top(p);
    p->fate = l->fate;
    p->paths = 0;
    if (l->fate != WALK)
        return;
    p->fate = DROP;
    for (uint32_t i = 0; i < JSON_PRUNE_KEEP_MAX && p->keep[i]; i++) {
        bool last;
        if (!(l->paths & UINT32_C(1) << i) ||
            !part_is(part_of(p->keep[i], p->depth - 1), key, len, &last))
            continue;
        p->paths |= UINT32_C(1) << i;
        p->fate = last || p->fate == KEEP ? KEEP : WALK;
    }
}

/* Comma and key, where the level above has not written them as it copies everything. */
static void begin_member(struct json_prune *p) {
    struct level *l = top(p);
    if (p->fate == DROP || !l || l->fate != WALK)
        return;
    if (l->emitted)
        buf_putc(p->out, ',');
    l->emitted = true;
    if (l->object) {
        buf_putc(p->out, '"');
        buf_append(p->out, p->key, p->key_len);
        buf_puts(p->out, "\":");
    }
}

static int open_level(struct json_prune *p, char c) {
    if (p->depth == JSON_DEPTH_MAX)
        return -EBADMSG;
    p->levels[p->depth++] = (struct level){.object = c == '{', .fate = p->fate, .paths = p->paths};
    p->expect = c == '{' ? KEY_OR_END : VALUE_OR_END;
    if (c == '[')
        choose(p, "*", 1);
    return 0;
}

static int begin_value(struct json_prune *p, char c) {
    begin_member(p);
    if (p->fate != DROP)
        buf_putc(p->out, c);
    if (c == '{' || c == '[')
        return open_level(p, c);
    p->escaped = false;
    p->expect = c == '"' ? IN_STRING : IN_SCALAR;
    return c != '\0' && strchr("\"-0123456789tfn", c) ? 0 : -EBADMSG;
}

static void end_value(struct json_prune *p) {
    p->expect = p->depth > 0 ? COMMA_OR_END : NOTHING;
}

static int end_level(struct json_prune *p, char c) {
    const struct level *l = top(p);
    if (!l || l->object != (c == '}'))
        return -EBADMSG;
    if (l->fate != DROP)
        buf_putc(p->out, c);
    p->depth--;
    end_value(p);
    return 0;
}

static int comma(struct json_prune *p) {
    const struct level *l = top(p);
    if (l->fate == KEEP)
        buf_putc(p->out, ',');
    p->expect = l->object ? KEY : VALUE;
    if (!l->object)
        choose(p, "*", 1);
    return 0;
}

static int begin_key(struct json_prune *p) {
    if (top(p)->fate == KEEP)
        buf_putc(p->out, '"');
    p->key_len = 0;
    p->escaped = false;
    p->expect = IN_KEY;
    return 0;
}

static int colon(struct json_prune *p) {
    if (top(p)->fate == KEEP)
        buf_putc(p->out, ':');
    choose(p, p->key, p->key_len <= KEY_MAX ? p->key_len : 0);
    p->expect = VALUE;
    return 0;
}

/* One byte between strings and scalars. */
static int structure(struct json_prune *p, char c) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
        return 0;
    switch (p->expect) {
    case VALUE_OR_END:
        if (c == ']')
            return end_level(p, c);
        return begin_value(p, c);
    case VALUE:
        return begin_value(p, c);
    case KEY_OR_END:
        if (c == '}')
            return end_level(p, c);
        return c == '"' ? begin_key(p) : -EBADMSG;
    case KEY:
        return c == '"' ? begin_key(p) : -EBADMSG;
    case COLON:
        return c == ':' ? colon(p) : -EBADMSG;
    case COMMA_OR_END:
        if (c == ',')
            return comma(p);
        return c == '}' || c == ']' ? end_level(p, c) : -EBADMSG;
    default:
        return -EBADMSG;
    }
}

/* As much of a string as there is; returns how many bytes that were. */
static size_t string(struct json_prune *p, const char *data, size_t len, bool *ret_ended) {
    size_t i = 0;
    *ret_ended = false;
    while (i < len && !*ret_ended) {
        char c = data[i++];
        if (p->escaped)
            p->escaped = false;
        else if (c == '\\')
            p->escaped = true;
        else
            *ret_ended = c == '"';
    }
    return i;
}

static size_t in_string(struct json_prune *p, const char *data, size_t len) {
    bool ended;
    size_t n = string(p, data, len, &ended);
    if (p->fate != DROP)
        buf_append(p->out, data, n);
    if (ended)
        end_value(p);
    return n;
}

static size_t in_key(struct json_prune *p, const char *data, size_t len) {
    bool ended;
    size_t n = string(p, data, len, &ended), text = n - ended;
    if (top(p)->fate == KEEP)
        buf_append(p->out, data, n);
    if (p->key_len + text <= KEY_MAX) {
        memcpy(p->key + p->key_len, data, text);
        p->key_len += text;
    } else {
        p->key_len = KEY_MAX + 1;
    }
    if (ended)
        p->expect = COLON;
    return n;
}

static size_t in_scalar(struct json_prune *p, const char *data, size_t len) {
    static const char bytes[] = "0123456789+-.eEtrufalsn";
    size_t n = 0;
    while (n < len && data[n] != '\0' && strchr(bytes, data[n]))
        n++;
    if (p->fate != DROP)
        buf_append(p->out, data, n);
    if (n < len)
        end_value(p); /* the byte that ends it is read next */
    return n;
}

int json_prune_feed(struct json_prune *p, const char *data, size_t len) {
    for (size_t i = 0; i < len && p->error == 0;) {
        if (p->expect == IN_STRING)
            i += in_string(p, data + i, len - i);
        else if (p->expect == IN_KEY)
            i += in_key(p, data + i, len - i);
        else if (p->expect == IN_SCALAR)
            i += in_scalar(p, data + i, len - i);
        else
            p->error = structure(p, data[i++]);
        if (p->error == 0)
            p->error = buf_error(p->out);
    }
    return p->error;
}

int json_prune_end(struct json_prune *p) {
    if (p->error == 0 && p->expect == IN_SCALAR)
        end_value(p);
    if (p->error == 0 && p->expect != NOTHING)
        p->error = -EBADMSG;
    return p->error;
}
