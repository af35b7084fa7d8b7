/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/config/config_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/config/node_config.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "wire/yaml.h"

#define CHECK_MS 1000

struct config_file {
    struct config_file_options options;
    uv_timer_t timer;
    uint64_t identity; /* of the file that was read last; 0: it could not be read */
    uint64_t text;     /* hash of the text that applies; 0: none does */
    char trouble[ERR_TEXT_MAX];
    struct on_closed on_closed;
};

/* A ConfigMap's new version is another inode behind the same path. */
static uint64_t identity_of(const char *path) {
    uint64_t hash = HASH_START;
    struct stat st;

    if (stat(path, &st) < 0)
        return 0;
    hash = hash_bytes(hash, &st.st_dev, sizeof(st.st_dev));
    hash = hash_bytes(hash, &st.st_ino, sizeof(st.st_ino));
    hash = hash_bytes(hash, &st.st_size, sizeof(st.st_size));
    hash = hash_bytes(hash, &st.st_mtim, sizeof(st.st_mtim));
    return hash_bytes(hash, &st.st_ctim, sizeof(st.st_ctim)) | 1;
}

static void set_trouble(struct config_file *f, const char *why) {
    if (strcmp(f->trouble, why) == 0)
        return;
    text_copy(f->trouble, sizeof(f->trouble), why);
    f->options.on_trouble(f->trouble, f->options.userdata);
}

static int parse(const struct config_file *f, const struct buf *text, struct node_config **ret,
                 struct err *err) {
    _cleanup_(node_config_freep) struct node_config *c = NULL;
    int r = node_config_parse(buf_str(text), text->len, f->options.node, &c, err);

    if (r == 0)
        r = node_config_override(c, f->options.overrides, err);
    if (r == 0)
        *ret = take_ptr(c);
    return r;
}

static int read_and_parse(const struct config_file *f, const char *path, struct buf *text,
                          struct node_config **ret, struct err *err) {
    int r = file_read(path, YAML_SIZE_MAX, text, err);

    if (r == 0)
        r = parse(f, text, ret, err);
    return r < 0 ? err_wrap(err, "%s", path) : 0;
}

static void adopt(struct config_file *f, const struct buf *text, struct node_config *c) {
    uint64_t hash = hash_bytes(HASH_START, buf_str(text), text->len);
    struct err err;

    set_trouble(f, "");
    if (hash == f->text) {
        (void) node_config_free(c);
        return;
    }
    f->text = hash;
    if (file_replace(f->options.saved, buf_str(text), text->len, 0600, &err) < 0)
        log_warn("the configuration is not kept for a restart: %s", err.text);
    f->options.on_config(c, f->options.userdata);
}

static void check(struct config_file *f) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    uint64_t identity = identity_of(f->options.path);
    struct node_config *c = NULL;
    struct err err;

    if (identity == f->identity && identity != 0)
        return;
    /* A file that changes while it is read has another identity at the next check. */
    f->identity = identity;
    if (read_and_parse(f, f->options.path, &text, &c, &err) < 0)
        set_trouble(f, err.text);
    else
        adopt(f, &text, c);
}

void config_file_offer(struct config_file *f, const char *source, const char *text) {
    _cleanup_buf_ struct buf copy = BUF_INIT(0);
    struct node_config *c = NULL;
    struct err err;
    int r;

    buf_puts(&copy, text);
    r = buf_error(&copy) < 0 ? err_set(&err, ENOMEM, "out of memory") : parse(f, &copy, &c, &err);
    if (r < 0) {
        (void) err_wrap(&err, "%s", source);
        set_trouble(f, err.text);
    } else {
        adopt(f, &copy, c);
    }
}

void config_file_refuse(struct config_file *f, const char *why) {
    set_trouble(f, why);
}

bool config_file_is_known(const struct config_file *f) {
    return f->text != 0 || f->trouble[0];
}

static void on_timer(uv_timer_t *timer) {
    check(timer->data);
}

/* What an agent starts with whose file cannot be used. */
static int use_saved(struct config_file *f, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct node_config *c = NULL;
    struct err why;

    if (read_and_parse(f, f->options.saved, &text, &c, &why) == 0) {
        log_warn("the node has the configuration from before the restart (%s)", f->options.saved);
        f->text = hash_bytes(HASH_START, buf_str(&text), text.len);
    } else {
        c = node_config_new();
        if (!c)
            return err_set(err, ENOMEM, "out of memory");
        log_warn("the node has the default configuration");
        (void) node_config_override(c, f->options.overrides, NULL);
    }
    f->options.on_config(c, f->options.userdata);
    return 0;
}

int config_file_start(uv_loop_t *loop, const struct config_file_options *options,
                      struct config_file **ret, struct err *err) {
    struct config_file *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return err_set(err, ENOMEM, "out of memory");
    f->options = *options;
    if (options->path)
        check(f);
    r = !options->path || f->trouble[0] ? use_saved(f, err) : 0;
    if (r < 0) {
        free(f);
        return r;
    }
    (void) uv_timer_init(loop, &f->timer);
    f->timer.data = f;
    if (options->path)
        (void) uv_timer_start(&f->timer, on_timer, CHECK_MS, CHECK_MS);
    *ret = f;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct config_file *f = handle->data;

    on_closed_free(&f->on_closed, f);
}

void config_file_stop(struct config_file *f, void (*on_closed)(void *userdata), void *userdata) {
    if (!f) {
        on_closed(userdata);
        return;
    }
    f->on_closed = (struct on_closed){on_closed, userdata};
    uv_close((uv_handle_t *) &f->timer, on_handle_closed);
}
