/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/in_pod/deletion.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/in_pod/kinds.h"
#include "cli/in_pod/request.h"
#include "wire/json.h"

#define PATH_LEN 2048

static int delete_at(struct buf *path, struct buf *ret, struct err *err) {
    /* As kubectl: the API server's default leaves the pods of a Job. */
    kind_put_parameter(path, "propagationPolicy", "Background");
    if (buf_error(path) < 0)
        return err_set(err, ENAMETOOLONG, "the name is too long");
    return request_send(&(struct request){.method = "DELETE", .path = buf_str(path)}, ret, err);
}

static int delete_one(const struct kind *kind, const char *namespace, const char *name,
                      struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);
    _cleanup_buf_ struct buf answer = BUF_INIT(0);
    int r;

    kind_put_path(kind, namespace, name, &path);
    r = delete_at(&path, &answer, err);
    if (r == 0)
        buf_printf(out, "%s/%s\n", kind_name(kind), name);
    return r < 0 && strstr(err->text, "(NotFound)") ? 0 : r;
}

static int list(const struct deletion *d, const struct kind *kind, struct buf *ret,
                struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);

    kind_put_path(kind, d->namespace, NULL, &path);
    kind_put_parameter(&path, "labelSelector", d->selector);
    if (buf_error(&path) < 0)
        return err_set(err, ENAMETOOLONG, "the selector is too long");
    return request_send(&(struct request){.method = "GET", .path = buf_str(&path)}, ret, err);
}

/* The answer is the list of what there was. */
static int delete_collection(const struct deletion *d, const struct kind *kind, struct buf *ret,
                             struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);

    kind_put_path(kind, d->namespace, NULL, &path);
    return delete_at(&path, ret, err);
}

static int delete_many(const struct deletion *d, const struct kind *kind, struct buf *out,
                       struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json listed, object;
    struct json_iter it;
    bool at_once = d->all && !d->selector;
    int r = at_once ? delete_collection(d, kind, &text, err) : list(d, kind, &text, err);

    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &listed, err);
    if (r < 0)
        return r;
    it = json_iter(json_get(listed, "items"));
    while (r == 0 && json_next(&it, NULL, &object)) {
        struct json meta = json_get(object, "metadata");
        const char *name = json_string_or(json_get(meta, "name"), "");

        if (at_once)
            buf_printf(out, "%s/%s\n", kind_name(kind), name);
        else
            r = delete_one(kind, json_string(json_get(meta, "namespace")), name, out, err);
    }
    return r;
}

int deletion_run(const struct deletion *d, struct buf *out, struct err *err) {
    int r = 0;

    if (d->n == 0 && !d->selector && !d->all)
        return err_set(err, EINVAL, "delete: neither names, nor -l or --all");
    for (const char *at = d->kinds; r == 0 && at[0]; at += strspn(at, ",")) {
        size_t len = strcspn(at, ",");
        const struct kind *kind;

        r = kind_find(at, len, &kind, err);
        if (r == 0 && d->n == 0)
            r = delete_many(d, kind, out, err);
        for (int i = 0; r == 0 && i < d->n; i++)
            r = delete_one(kind, d->namespace, d->names[i], out, err);
        at += len;
    }
    return r;
}
