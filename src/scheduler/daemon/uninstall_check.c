/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/uninstall_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/client.h"
#include "kube/objects/share_holder.h"
#include "scheduler/daemon/scheduler.h"

#define PAGE "/api/v1/pods?limit=500"
#define CONTINUE_MAX 4096

struct check {
    struct kube_client *client;
    unsigned holders;
    bool failed;
    struct err err;
};

static void ask(struct check *c, const char *from);

static const char *text_of(struct json pod, const char *part, const char *key) {
    return json_string_or(JSON_PATH(pod, part, key), "");
}

static void end(struct check *c) {
    kube_client_close(c->client, NULL, NULL);
}

static void on_page(const struct kube_response *response, void *userdata) {
    struct check *c = userdata;
    struct json items = json_get(response->body, "items");
    struct json_iter it = json_iter(items);
    const char *next = json_string_or(JSON_PATH(response->body, "metadata", "continue"), "");
    struct json pod;

    if (response->status != 200) {
        c->failed = err_set(&c->err, EREMOTEIO, "cannot list the pods: %s", response->text) < 0;
        end(c);
        return;
    }
    /* No list is not an empty one. */
    if (json_type(items) != JSON_ARRAY) {
        c->failed = err_set(&c->err, EBADMSG,
                            "cannot list the pods: the API server's answer is no list") < 0;
        end(c);
        return;
    }
    while (json_next(&it, NULL, &pod))
        if (pod_holds_share(pod) && ++c->holders > 0)
            printf("%s/%s on node %s holds a share\n", text_of(pod, "metadata", "namespace"),
                   text_of(pod, "metadata", "name"), text_of(pod, "spec", "nodeName"));
    if (next[0])
        ask(c, next);
    else
        end(c);
}

/* `from`: where the list goes on, characters that a query may have; NULL: at its beginning. */
static void ask(struct check *c, const char *from) {
    char path[sizeof(PAGE) + CONTINUE_MAX + 16];
    int n = snprintf(path, sizeof(path), PAGE "%s%s", from ? "&continue=" : "", from ? from : "");

    if (n >= (int) sizeof(path))
        c->failed = err_set(&c->err, EMSGSIZE, "the list of pods cannot be continued") < 0;
    else
        c->failed =
            kube_request(c->client, "GET", path, NULL, NULL, 0, 0, on_page, c, NULL, &c->err) < 0;
    if (c->failed)
        end(c);
}

int uninstall_check(const struct scheduler_options *options, struct err *err) {
    struct kube_config config = {0};
    struct check c = {0};
    int r =
        kube_config_load(options->api_server, options->token_file, options->ca_file, &config, err);

    if (r < 0)
        return r;
    r = kube_client_new(uv_default_loop(), &config, &c.client, err);
    kube_config_done(&config);
    if (r < 0)
        return r;
    ask(&c, NULL);
    (void) uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    (void) fflush(stdout);
    if (c.failed) {
        *err = c.err;
        return -c.err.code;
    }
    return c.holders == 0
               ? 0
               : err_set(err, EBUSY,
                         "%u pods hold shares: delete them, or see `aliquot uninstall --force`",
                         c.holders);
}
