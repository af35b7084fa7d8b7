/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/lines.h"

#include <errno.h>
#include <string.h>

/* After a longer line its memory is given back. */
#define KEEP 65536u

void line_splitter_init(struct line_splitter *s, size_t max_line) {
    *s = (struct line_splitter){.part = BUF_INIT(max_line)};
}

void line_splitter_reset(struct line_splitter *s) {
    if (s->part.cap > KEEP)
        buf_done(&s->part);
    buf_reset(&s->part);
}

void line_splitter_done(struct line_splitter *s) {
    buf_done(&s->part);
}

int line_splitter_feed(struct line_splitter *s, const char *data, size_t size,
                       int (*on_line)(const char *line, size_t size, void *user), void *user) {
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t n = end ? (size_t) (end - data) : size;
        int r = 0;
        if (!end || s->part.len > 0) {
            buf_append(&s->part, data, n);
            if (s->part.error)
                return buf_error(&s->part);
        } else if (n > s->part.max) {
            return -EMSGSIZE;
        }
        if (!end)
            return 0;
        r = s->part.len > 0 ? on_line(s->part.data, s->part.len, user) : on_line(data, n, user);
        line_splitter_reset(s);
        if (r < 0)
            return r;
        data = end + 1;
        size -= n + 1;
    }
    return 0;
}
