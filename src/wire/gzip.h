/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <uv.h>

#include "base/buf.h"

/* Replaces the content by its gzip form (RFC 1952). -ENOMEM, and the content is as it was. */
int gzip_buf(struct buf *b);

/* gzip_buf() in a thread of libuv's pool. */
struct gzip_job;

/* Takes the content over. on_done gets it back on the loop's thread, and the result of gzip_buf();
 * it takes it over and the job is gone. Negative errno: nothing is taken and nothing called. */
int gzip_start(uv_loop_t *loop, struct buf *b,
               void (*on_done)(struct buf *b, int result, void *userdata), void *userdata,
               struct gzip_job **ret);

/* on_done is not called: the content is freed when the thread has done with it. */
void gzip_forget(struct gzip_job *job);
