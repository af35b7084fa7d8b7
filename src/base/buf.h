/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A growable byte buffer with an upper bound. Appending never has to be checked one by one: the
 * first failure (out of memory, or past the bound) is remembered, later appends do nothing, and
 * buf_error() returns it at the end. Not thread-safe. */

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

#ifdef __cplusplus
extern "C" {
#endif

struct buf {
    char *data; /* NUL-terminated whenever it is not NULL; the NUL is not counted in len */
    size_t len;
    size_t cap;
    size_t max; /* longest content in bytes; 0 means BUF_MAX_DEFAULT */
    int error;  /* 0, or the positive errno of the first failure */
};

#define BUF_MAX_DEFAULT ((size_t) 256 << 20)
#define BUF_INIT(max_bytes) ((struct buf){.max = (max_bytes)})

void buf_done(struct buf *b);  /* frees; b may be used again */
void buf_wipe(struct buf *b);  /* overwrites the content, a secret, and frees */
void buf_reset(struct buf *b); /* empties, keeps the memory */
void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list ap)
    __attribute__((format(printf, 2, 0)));
void buf_consume(struct buf *b, size_t len);  /* drops len bytes from the front */
void *buf_reserve(struct buf *b, size_t len); /* room for len more bytes, or NULL */
void buf_commit(struct buf *b, size_t len);   /* len bytes of the room are used */

/* 0, or the negative errno of the first failed append. */
static inline int buf_error(const struct buf *b) {
    int r = -b->error;
    assert(r <= 0);
    return r;
}

/* The content as a C string, never NULL. */
static inline const char *buf_str(const struct buf *b) {
    return b->data ? b->data : "";
}

#define _cleanup_buf_ _cleanup_(buf_done)
#define _cleanup_wipe_ _cleanup_(buf_wipe)

#ifdef __cplusplus
}
#endif
