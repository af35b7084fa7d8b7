/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

void buf_done(struct buf *b) {
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

void buf_reset(struct buf *b) {
    b->len = 0;
    b->error = 0;
    if (b->data)
        b->data[0] = '\0';
}

static void set_error(struct buf *b, int error) {
    if (!b->error)
        b->error = error;
}

void *buf_reserve(struct buf *b, size_t len) {
    size_t max = b->max ? b->max : BUF_MAX_DEFAULT;
    if (b->error)
        return NULL;
    if (len > max || b->len > max - len) {
        set_error(b, EMSGSIZE);
        return NULL;
    }

    size_t need = b->len + len + 1;
    if (need > b->cap) {
        size_t cap = b->cap < 64 ? 64 : b->cap;
        while (cap < need)
            cap += cap / 2;
        char *data = realloc(b->data, cap);
        if (!data) {
            set_error(b, ENOMEM);
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_commit(struct buf *b, size_t len) {
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_append(struct buf *b, const void *data, size_t len) {
    void *room = buf_reserve(b, len);
    if (!room)
        return;
    if (len > 0)
        memcpy(room, data, len);
    buf_commit(b, len);
}

void buf_puts(struct buf *b, const char *s) {
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c) {
    buf_append(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *format, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (len < 0) {
        set_error(b, EINVAL);
        return;
    }

    char *room = buf_reserve(b, (size_t) len);
    if (!room)
        return;
    (void) vsnprintf(room, (size_t) len + 1, format, ap);
    buf_commit(b, (size_t) len);
}

void buf_printf(struct buf *b, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    buf_vprintf(b, format, ap);
    va_end(ap);
}

void buf_consume(struct buf *b, size_t len) {
    if (len == 0)
        return;
    b->len -= len;
    memmove(b->data, b->data + len, b->len + 1);
}
