/* SPDX-License-Identifier: Apache-2.0 */

/* Requests for which what is gone is no error. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/uninstall/kinds.h"
#include "cli/uninstall/uninstall.h"

void removal_say(const char *step, const char *format, ...) {
    va_list ap;

    printf("%-12s ", step);
    va_start(ap, format);
    (void) vprintf(format, ap); /* NOLINT: va_start() is above */
    va_end(ap);
    (void) putchar('\n');
    (void) fflush(stdout);
}

/* ---- paths ---- */

static int put_path(const struct removal_objects *o, struct buf *path, struct err *err) {
    kind_put_path(o->kind, o->namespace, o->name, path);
    kind_put_parameter(path, "labelSelector", o->labels);
    kind_put_parameter(path, "fieldSelector", o->fields);
    return buf_error(path) < 0 ? err_errno(err, ENOMEM, "cannot ask for %s", o->kind) : 0;
}

/* ---- reading ---- */

int removal_get(const struct removal_objects *o, struct json_parser **ret_parser, struct json *ret,
                struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    int r = put_path(o, &path, err);

    *ret = (struct json){0};
    return r < 0 ? r : removal_if_there(api_read(buf_str(&path), ret_parser, ret, err));
}

/* ---- writing ---- */

static int delete_at(const struct removal_objects *o, struct buf *ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    int r = put_path(o, &path, err);

    if (r < 0)
        return r;
    /* As kubectl: the API server's default leaves the pods of a Job. */
    kind_put_parameter(&path, "propagationPolicy", "Background");
    if (buf_error(&path) < 0)
        return err_errno(err, ENOMEM, "cannot delete %s", o->kind);
    return api_delete(buf_str(&path), ret, err);
}

/* With a selector one by one, so that no right to all of the kind is needed. */
static int delete_selected(const struct removal_objects *o, unsigned *count, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, object;
    int r = removal_get(o, &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    while (r == 0 && json_next(&it, NULL, &object))
        r = removal_delete(
            &(struct removal_objects){.kind = o->kind,
                                      .namespace =
                                          json_string(JSON_PATH(object, "metadata", "namespace")),
                                      .name = json_string(JSON_PATH(object, "metadata", "name"))},
            count, err);
    return r;
}

/* The answer is the list of what there was. */
static int delete_all(const struct removal_objects *o, unsigned *count, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json list;
    int r = delete_at(o, &text, err);

    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &list, err);
    if (r == 0)
        *count += (unsigned) json_size(json_get(list, "items"));
    return removal_if_there(r);
}

int removal_delete(const struct removal_objects *o, unsigned *count, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r;

    if (o->labels || o->fields)
        return delete_selected(o, count, err);
    if (!o->name)
        return delete_all(o, count, err);
    r = delete_at(o, &text, err);
    *count += r == 0;
    return removal_if_there(r);
}

int removal_patch(const struct removal_objects *o, const char *type, const char *patch,
                  struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    int r = put_path(o, &path, err);

    if (o->subresource)
        buf_printf(&path, "/%s", o->subresource);
    if (r == 0 && buf_error(&path) < 0)
        r = err_errno(err, ENOMEM, "cannot change %s %s", o->kind, o->name);
    return r < 0 ? r : api_patch(buf_str(&path), type, patch, err);
}

int removal_create(const struct removal_objects *o, const char *object, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    struct json made;
    int r = put_path(o, &path, err);

    return r < 0 ? r : api_create(buf_str(&path), object, &parser, &made, err);
}

/* ---- waiting ---- */

int removal_await_pods(const struct removal *r, const char *step, const char *name,
                       struct err *err) {
    const struct timespec pause = {.tv_nsec = 500000000};
    time_t end = time(NULL) + r->limit_s;
    char label[96];
    const struct removal_objects pods = {.kind = "pods", .namespace = r->system, .labels = label};
    size_t left = 0;

    (void) snprintf(label, sizeof(label), "app.kubernetes.io/name=%s", name);
    do {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json list;
        int e = removal_get(&pods, &parser, &list, err);

        if (e < 0)
            return e;
        left = json_size(json_get(list, "items"));
        if (left == 0)
            return 0;
        (void) nanosleep(&pause, NULL);
    } while (time(NULL) < end);
    removal_say(step, "%zu pods of %s have not ended within %u s; going on without them", left,
                name, r->limit_s);
    return 0;
}
