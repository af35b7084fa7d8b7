/* SPDX-License-Identifier: Apache-2.0 */

/*
 * aliquot-kubectl: what `aliquot doctor` and `aliquot uninstall` use of kubectl, by the
 * ServiceAccount of a pod, for the images, which have no room for kubectl. `aliquot` runs it in
 * kubectl's place where KUBECTL names it. Forwarding a port is not among it.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/in_pod/deletion.h"
#include "cli/in_pod/kinds.h"
#include "cli/in_pod/relay.h"
#include "cli/in_pod/request.h"
#include "kube/api/client.h"
#include "wire/json.h"

#define PATH_LEN 2048
#define WORDS_MAX 24
#define FILE_MAX ((size_t) 1 << 20)

static const char *arg_namespace = "default", *arg_selector, *arg_fields, *arg_output;
static const char *arg_address, *arg_socket;
static const char *arg_raw, *arg_file, *arg_type, *arg_patch, *arg_subresource, *arg_wait;
static bool arg_everywhere, arg_all, arg_ignore, arg_managed, arg_server_path;

static const struct opt options[] = {
    {"namespace", 'n', "NAME", "the namespace", opt_string, &arg_namespace},
    {"all-namespaces", 'A', NULL, "objects of all namespaces", opt_flag, &arg_everywhere},
    {"selector", 'l', "SELECTOR", "objects with these labels", opt_string, &arg_selector},
    {"field-selector", 0, "SELECTOR", "objects with these fields", opt_string, &arg_fields},
    {"output", 'o', "json|name", "taken; `get` prints JSON, `delete` names", opt_string,
     &arg_output},
    {"show-managed-fields", 0, NULL, "taken: `get` prints all fields", opt_flag, &arg_managed},
    {"raw", 0, "PATH", "what the API server has there", opt_string, &arg_raw},
    {"filename", 'f', "FILE", "the object to create, as JSON", opt_string, &arg_file},
    {"type", 0, "merge|strategic", "of the patch", opt_string, &arg_type},
    {"patch", 'p', "JSON", "the patch", opt_string, &arg_patch},
    {"subresource", 0, "status", "what of the object is changed", opt_string, &arg_subresource},
    {"all", 0, NULL, "delete all objects of the kind", opt_flag, &arg_all},
    {"ignore-not-found", 0, NULL, "taken: what is gone is no error of `delete`", opt_flag,
     &arg_ignore},
    {"wait", 0, "false", "taken: nothing is waited for", opt_string, &arg_wait},
    {"address", 0, "ADDRESS", "of port-forward, which only kubectl can do", opt_string,
     &arg_address},
    {"unix-socket", 0, "FILE", "where `proxy` serves", opt_string, &arg_socket},
    {"append-server-path", 0, NULL, "taken: in a pod the API server has no path", opt_flag,
     &arg_server_path},
    OPT_END,
};

static const struct opt_word commands[] = {
    {"proxy", NULL, "passes requests on to the API server, until a signal ends it", false},
    {"get", "KIND [NAME]", "a list of objects, an object, or what is at --raw", false},
    {"create", NULL, "an object, from -f", false},
    {"patch", "KIND NAME", "changes an object", false},
    {"delete", "KIND[,KIND ...] [NAME ...]", "objects by name, by -l, or --all", false},
    {0},
};

static const struct opt_usage usage = {
    .synopsis = "aliquot-kubectl COMMAND [options]",
    .purpose = "What `aliquot` uses of kubectl, by the ServiceAccount of the pod that it runs in.",
    .title = "Commands",
    .words = commands,
};

/* ---- reading ---- */

static int ask(const char *path, struct buf *out, struct err *err) {
    return request_send(&(struct request){.method = "GET", .path = path}, out, err);
}

/* Of a list: NULL as its name. */
static int get(const struct kind *kind, const char *name, struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);

    kind_put_path(kind, arg_everywhere ? NULL : arg_namespace, name, &path);
    if (!name) {
        kind_put_parameter(&path, "labelSelector", arg_selector);
        kind_put_parameter(&path, "fieldSelector", arg_fields);
    }
    if (buf_error(&path) < 0)
        return err_set(err, ENAMETOOLONG, "the selectors are too long");
    return ask(buf_str(&path), out, err);
}

/* ---- writing ---- */

static int delete_objects(const char *kinds, const char *const *names, int n, struct buf *out,
                          struct err *err) {
    const struct deletion d = {.kinds = kinds,
                               .names = names,
                               .n = n,
                               .namespace = arg_namespace,
                               .selector = arg_selector,
                               .all = arg_all};

    if (arg_everywhere || arg_fields)
        return err_set(err, EINVAL, "delete: neither -A nor --field-selector");
    return deletion_run(&d, out, err);
}

static int patch(const struct kind *kind, const char *name, struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);
    bool merge = arg_type && strcmp(arg_type, "merge") == 0;

    if (!arg_patch || (!merge && (!arg_type || strcmp(arg_type, "strategic") != 0)))
        return err_set(err, EINVAL, "patch: give -p and --type=merge or --type=strategic");
    kind_put_path(kind, arg_namespace, name, &path);
    if (arg_subresource)
        buf_printf(&path, "/%s", arg_subresource);
    if (buf_error(&path) < 0)
        return err_set(err, ENAMETOOLONG, "the name %s is too long", name);
    return request_send(
        &(struct request){.method = "PATCH",
                          .path = buf_str(&path),
                          .content_type = merge ? KUBE_MERGE_PATCH : KUBE_STRATEGIC_PATCH,
                          .body = arg_patch},
        out, err);
}

/* The kind's name is that of the object with an "s", in small letters. */
static int create(struct buf *out, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);
    char plural[64];
    const struct kind *kind;
    struct json object;
    int r = arg_file ? file_read(arg_file, FILE_MAX, &text, err)
                     : err_set(err, EINVAL, "create: give -f FILE");

    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &object, err);
    if (r < 0)
        return r;
    (void) snprintf(plural, sizeof(plural), "%ss", json_string_or(json_get(object, "kind"), ""));
    for (char *c = plural; *c; c++)
        *c = (char) tolower((unsigned char) *c);
    r = kind_find(plural, strlen(plural), &kind, err);
    if (r < 0)
        return r;
    kind_put_path(kind, arg_namespace, NULL, &path);
    if (buf_error(&path) < 0)
        return err_set(err, ENAMETOOLONG, "the namespace's name is too long");
    return request_send(
        &(struct request){.method = "POST", .path = buf_str(&path), .body = buf_str(&text)}, out,
        err);
}

/* ---- the proxy ---- */

/* Returns only where it cannot serve. */
static int serve(struct err *err) {
    struct kube_transport *transport = NULL;
    struct kube_config config = {0};
    struct relay *relay = NULL;
    uv_loop_t loop;
    int r = kube_config_load(NULL, NULL, NULL, &config, err);

    if (r == 0 && !arg_socket)
        r = err_set(err, EINVAL, "proxy: give --unix-socket");
    if (r < 0)
        return r;
    (void) uv_loop_init(&loop);
    r = kube_transport_new(&loop, &config, &transport, err);
    if (r == 0)
        r = relay_start(&loop, arg_socket, transport, &relay, err);
    if (r < 0)
        return r;
    printf("Starting to serve on %s\n", arg_socket);
    (void) fflush(stdout);
    return uv_run(&loop, UV_RUN_DEFAULT);
}

/* ---- the command ---- */

static int obey(const char *const *words, int n, struct buf *out, struct err *err) {
    const char *verb = n > 0 ? words[0] : "";
    const struct kind *kind = NULL;

    if (n == 1 && strcmp(verb, "proxy") == 0)
        return serve(err);
    if (n == 1 && strcmp(verb, "get") == 0 && arg_raw)
        return ask(arg_raw, out, err);
    if (n == 1 && strcmp(verb, "create") == 0)
        return create(out, err);
    if (n >= 2 && strcmp(verb, "delete") == 0)
        return delete_objects(words[1], words + 2, n - 2, out, err);
    if ((n == 2 || n == 3) && strcmp(verb, "get") == 0) {
        int r = kind_find(words[1], strlen(words[1]), &kind, err);
        return r < 0 ? r : get(kind, n == 3 ? words[2] : NULL, out, err);
    }
    if (n == 3 && strcmp(verb, "patch") == 0) {
        int r = kind_find(words[1], strlen(words[1]), &kind, err);
        return r < 0 ? r : patch(kind, words[2], out, err);
    }
    return err_set(err, EINVAL,
                   "inside a pod there is no kubectl %s, only proxy, get, create, patch and delete",
                   verb);
}

int main(int argc, char **argv) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    const char *words[WORDS_MAX];
    struct err err;
    int n = args_parse(options, &usage, argc, argv, words, WORDS_MAX, &err);

    if (n == -ECANCELED)
        return EXIT_SUCCESS;
    if (n >= 0 && obey(words, n, &out, &err) == 0) {
        (void) fwrite(out.data, 1, out.len, stdout);
        return EXIT_SUCCESS;
    }
    fprintf(stderr, "%s\n", err.text);
    return EXIT_FAILURE;
}
