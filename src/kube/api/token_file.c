/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/token_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/file.h"

#define TOKEN_MAX 32768u
#define BEARER "Bearer "

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int read_token(const char *path, struct buf *header, struct err *err) {
    buf_puts(header, BEARER);
    int r = file_read(path, TOKEN_MAX, header, err);
    if (r < 0)
        return r;
    while (header->len > 0 && strchr(" \t\r\n", header->data[header->len - 1]))
        header->data[--header->len] = '\0';
    if (header->len < sizeof(BEARER))
        return err_set(err, EINVAL, "the token file %s is empty", path);
    for (size_t i = strlen(BEARER); i < header->len; i++)
        if (header->data[i] < 0x21 || header->data[i] > 0x7e)
            return err_set(err, EINVAL, "the token file %s does not hold a token", path);
    return 0;
}

int token_file_refresh(struct token_file *file, struct err *err) {
    _cleanup_wipe_ struct buf header = BUF_INIT(TOKEN_MAX + sizeof(BEARER));
    struct stat now;
    if (!file->path)
        return 0;
    if (stat(file->path, &now) < 0)
        return file->header.len > 0
                   ? 0
                   : err_errno(err, errno, "cannot read the token file %s", file->path);
    if (file->header.len > 0 && same_file(&now, &file->read))
        return 0;
    int r = read_token(file->path, &header, err);
    if (r < 0)
        return file->header.len > 0 ? 0 : r;
    buf_wipe(&file->header);
    file->header = header;
    file->read = now;
    header = BUF_INIT(0);
    return 0;
}

const char *token_file_header(const struct token_file *file) {
    return file->header.data;
}

const char *token_file_token(const struct token_file *file) {
    return file->header.data ? file->header.data + strlen(BEARER) : NULL;
}

void token_file_done(struct token_file *file) {
    buf_wipe(&file->header);
}
