/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/gzip.h"

#include <errno.h>
#include <libdeflate.h>

#define LEVEL 6 /* the next ones take more time than a page of metrics becomes shorter */

int gzip_buf(struct buf *b) {
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(LEVEL);
    struct buf out = BUF_INIT(0);
    size_t room = compressor ? libdeflate_gzip_compress_bound(compressor, b->len) : 0;
    void *to = compressor ? buf_reserve(&out, room) : NULL;
    size_t len = to ? libdeflate_gzip_compress(compressor, buf_str(b), b->len, to, room) : 0;

    libdeflate_free_compressor(compressor);
    if (len == 0) {
        buf_done(&out);
        return -ENOMEM;
    }
    buf_commit(&out, len);
    buf_done(b);
    *b = out;
    return 0;
}
