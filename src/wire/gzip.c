/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/gzip.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>

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

struct gzip_job {
    uv_work_t work;
    struct buf content;
    int result;
    void (*on_done)(struct buf *b, int result, void *userdata); /* NULL: forgotten */
    void *userdata;
};

static void compress(uv_work_t *work) {
    struct gzip_job *job = work->data;

    job->result = gzip_buf(&job->content);
}

static void on_compressed(uv_work_t *work, int status) {
    struct gzip_job *job = work->data;

    (void) status; /* it is never cancelled */
    if (job->on_done)
        job->on_done(&job->content, job->result, job->userdata);
    buf_done(&job->content);
    free(job);
}

int gzip_start(uv_loop_t *loop, struct buf *b,
               void (*on_done)(struct buf *b, int result, void *userdata), void *userdata,
               struct gzip_job **ret) {
    struct gzip_job *job = calloc(1, sizeof(*job));
    int r;

    if (!job)
        return -ENOMEM;
    *job = (struct gzip_job){.content = *b, .on_done = on_done, .userdata = userdata};
    job->work.data = job;
    r = uv_queue_work(loop, &job->work, compress, on_compressed);
    if (r < 0) {
        free(job);
        return r;
    }
    *b = BUF_INIT(b->max);
    *ret = job;
    return 0;
}

void gzip_forget(struct gzip_job *job) {
    job->on_done = NULL;
}
