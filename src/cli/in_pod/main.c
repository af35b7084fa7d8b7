/* SPDX-License-Identifier: Apache-2.0 */

/*
 * aliquot-kubectl: what `aliquot` uses of kubectl, by the ServiceAccount of a pod, for the images,
 * which have no room for kubectl. `aliquot` runs it in kubectl's place where KUBECTL names it.
 * Forwarding a port is not among it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/args.h"
#include "kube/api/client.h"

#define ANSWER_MS 60000 /* for lists of big clusters */
#define PATH_LEN 2048
#define TRIED_IN                                                                                   \
    "default" /* a namespace like those of tenants, and not the privileged one of Aliquot */

static const char *arg_namespace = "default", *arg_selector, *arg_fields, *arg_output;
static const char *arg_address, *arg_image, *arg_restart, *arg_dry_run, *arg_overrides;
static bool arg_all;

static const struct opt options[] = {
    {"namespace", 'n', "NAME", "the namespace", opt_string, &arg_namespace},
    {"all-namespaces", 'A', NULL, "objects of all namespaces", opt_flag, &arg_all},
    {"selector", 'l', "SELECTOR", "objects with these labels", opt_string, &arg_selector},
    {"field-selector", 0, "SELECTOR", "objects with these fields", opt_string, &arg_fields},
    {"output", 'o', "json", "as kubectl's; nothing else is known", opt_string, &arg_output},
    {"address", 0, "ADDRESS", "of port-forward, which only kubectl can do", opt_string,
     &arg_address},
    {"image", 0, "NAME", "taken, and that of --overrides counts", opt_string, &arg_image},
    {"restart", 0, "Never", "taken, and that of --overrides counts", opt_string, &arg_restart},
    {"dry-run", 0, "server", "nothing else is known", opt_string, &arg_dry_run},
    {"overrides", 0, "JSON", "the pod, but for its name", opt_string, &arg_overrides},
    OPT_END,
};

static const struct opt_word commands[] = {
    {"version", NULL, "the API server's version", false},
    {"get", "KIND", "a list of objects", false},
    {"run", "NAME", "what the API server would make of a pod, in namespace " TRIED_IN, false},
    {0},
};

static const struct opt_usage usage = {
    .synopsis = "aliquot-kubectl COMMAND [options]",
    .purpose = "What `aliquot` uses of kubectl, by the ServiceAccount of the pod that it runs in.",
    .title = "Commands",
    .words = commands,
};

static const struct kind {
    const char *name, *group;
    bool everywhere; /* it has no namespace */
} kinds[] = {
    {"nodes", "/api/v1", true},
    {"pods", "/api/v1", false},
    {"events", "/api/v1", false},
    {"daemonsets", "/apis/apps/v1", false},
    {"leases", "/apis/coordination.k8s.io/v1", false},
};

/* ---- one request ---- */

struct answer {
    struct buf text;
    int r;
    struct err err;
};

static void on_response(const struct kube_response *response, void *userdata) {
    struct answer *a = userdata;

    buf_append(&a->text, response->raw ? response->raw : "", response->size);
    a->r = 0;
    if (response->status < 200 || response->status > 299)
        a->r = err_set(&a->err, EREMOTEIO, "%s", response->text);
    else if (buf_error(&a->text) < 0)
        a->r = err_errno(&a->err, ENOMEM, "cannot keep the answer");
}

/* Appends the answer. */
static int ask(const char *method, const char *path, const struct buf *body, struct buf *ret,
               struct err *err) {
    struct kube_config config = {0};
    struct kube_client *client = NULL;
    struct answer a = {.text = BUF_INIT(0)};
    uv_loop_t loop;
    int r = kube_config_load(NULL, NULL, NULL, &config, err);

    if (r < 0)
        return r;
    (void) uv_loop_init(&loop);
    r = kube_client_new(&loop, &config, &client, err);
    kube_config_done(&config);
    if (r == 0)
        r = kube_request(client, method, path, NULL, body ? body->data : NULL, body ? body->len : 0,
                         ANSWER_MS, on_response, &a, NULL, err);
    a.r = 1; /* until the answer is here */
    while (r == 0 && a.r == 1)
        (void) uv_run(&loop, UV_RUN_ONCE);
    if (client)
        kube_client_close(client, NULL, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&loop);
    if (r == 0 && a.r < 0)
        *err = a.err;
    if (r == 0 && a.r == 0)
        buf_append(ret, a.text.data, a.text.len);
    buf_done(&a.text);
    return r < 0 ? r : a.r;
}

/* ---- the commands ---- */

static int show_version(struct buf *out, struct err *err) {
    buf_puts(out, "{\"serverVersion\":");
    int r = ask("GET", "/version", NULL, out, err);
    buf_puts(out, "}\n");
    return r;
}

/* A parameter of a query; %-escapes what is not plain. */
static void put_parameter(struct buf *path, const char *name, const char *value) {
    if (!value)
        return;
    buf_printf(path, "%s%s=", strchr(buf_str(path), '?') ? "&" : "?", name);
    for (; *value; value++) {
        bool plain = (*value >= 'a' && *value <= 'z') || (*value >= 'A' && *value <= 'Z') ||
                     (*value >= '0' && *value <= '9') || strchr("-._", *value);
        buf_printf(path, plain ? "%c" : "%%%02X", (unsigned char) *value);
    }
}

static const struct kind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

static int get(const char *name, struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_LEN);
    const struct kind *kind = find_kind(name);

    if (!kind)
        return err_set(err, EINVAL, "no kind %s is known to aliquot-kubectl", name);
    buf_puts(&path, kind->group);
    if (!kind->everywhere && !arg_all)
        buf_printf(&path, "/namespaces/%s", arg_namespace);
    buf_printf(&path, "/%s", kind->name);
    put_parameter(&path, "labelSelector", arg_selector);
    put_parameter(&path, "fieldSelector", arg_fields);
    if (buf_error(&path) < 0)
        return err_set(err, ENAMETOOLONG, "the selectors are too long");
    return ask("GET", buf_str(&path), NULL, out, err);
}

static int run_pod(const char *name, struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf pod = BUF_INIT(0);

    if (!arg_dry_run || strcmp(arg_dry_run, "server") != 0)
        return err_set(err, EINVAL, "pods are only tried: --dry-run=server");
    if (!arg_overrides || arg_overrides[0] != '{')
        return err_set(err, EINVAL, "--overrides must have the pod, as a JSON object");
    buf_printf(&pod, "{\"metadata\":{\"name\":\"%s\"},%s", name, arg_overrides + 1);
    if (buf_error(&pod) < 0)
        return err_errno(err, ENOMEM, "cannot write the pod");
    return ask("POST", "/api/v1/namespaces/" TRIED_IN "/pods?dryRun=All", &pod, out, err);
}

static int obey(const char *const *words, int n, struct buf *out, struct err *err) {
    if (n == 1 && strcmp(words[0], "version") == 0)
        return show_version(out, err);
    if (n == 2 && strcmp(words[0], "get") == 0)
        return get(words[1], out, err);
    if (n == 2 && strcmp(words[0], "run") == 0)
        return run_pod(words[1], out, err);
    return err_set(err, EINVAL, "inside a pod there is no kubectl%s%s, only version, get and run",
                   n > 0 ? " " : "", n > 0 ? words[0] : "");
}

int main(int argc, char **argv) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    const char *words[8];
    struct err err;
    int n = args_parse(options, &usage, argc, argv, words, 8, &err);

    if (n == -ECANCELED)
        return EXIT_SUCCESS;
    if (n >= 0 && obey(words, n, &out, &err) == 0) {
        (void) fwrite(out.data, 1, out.len, stdout);
        return EXIT_SUCCESS;
    }
    fprintf(stderr, "%s\n", err.text);
    return EXIT_FAILURE;
}
