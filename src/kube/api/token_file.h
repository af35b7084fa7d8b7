/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A bearer token in a file that is replaced while it is used: kubelet does so with those of service
 * accounts long before they expire. One thread. */

#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* All zero but `path`: not read yet. */
struct token_file {
    const char *path; /* borrowed; NULL: there is no token */
    struct stat read; /* of the file that `header` is from */
    struct buf header;
};

/* Reads the file if it is not the one that was read. 0 as long as there is a token, new or former,
 * or no path; otherwise a negative errno. */
int token_file_refresh(struct token_file *file, struct err *err);

/* Of the last refresh that read one, valid until the next; NULL: none. "Bearer TOKEN", and the
 * token alone. */
const char *token_file_header(const struct token_file *file);
const char *token_file_token(const struct token_file *file);

void token_file_done(struct token_file *file);
