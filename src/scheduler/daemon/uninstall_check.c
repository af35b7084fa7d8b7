/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/uninstall_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/client.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/share_holder.h"
#include "scheduler/daemon/scheduler.h"

#define PAGE 500
#define CONTINUE_MAX 4096

struct check {
    struct kube_client *client;
    size_t list; /* of `lists`, which is read */
    unsigned holders, claims;
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

/* ---- what is in the lists ---- */

static void see_pod(struct check *c, struct json pod) {
    if (!pod_holds_share(pod))
        return;
    c->holders++;
    printf("%s/%s on node %s holds a share\n", text_of(pod, "metadata", "namespace"),
           text_of(pod, "metadata", "name"), text_of(pod, "spec", "nodeName"));
}

static void see_claim(struct check *c, struct json claim) {
    struct json_iter it = json_iter(JSON_PATH(claim, "status", "reservedFor"));
    struct json user;

    if (!claim_holds_share(claim))
        return;
    c->claims++;
    while (json_next(&it, NULL, &user))
        printf("%s/%s holds a share by ResourceClaim %s\n", text_of(claim, "metadata", "namespace"),
               json_string_or(json_get(user, "name"), ""), text_of(claim, "metadata", "name"));
}

static const struct {
    const char *path, *name;
    void (*see)(struct check *c, struct json object);
    bool may_be_absent; /* the API server may not have the kind */
} lists[] = {
    {"/api/v1/pods", "pods", see_pod, false},
    {RESOURCE_CLAIMS_PATH, "ResourceClaims", see_claim, true},
};

/* ---- reading ---- */

static void next_list(struct check *c) {
    if (++c->list < sizeof(lists) / sizeof(lists[0]))
        ask(c, NULL);
    else
        end(c);
}

static void on_page(const struct kube_response *response, void *userdata) {
    struct check *c = userdata;
    struct json items = json_get(response->body, "items");
    struct json_iter it = json_iter(items);
    const char *next = json_string_or(JSON_PATH(response->body, "metadata", "continue"), "");
    struct json object;

    if (response->status == 404 && lists[c->list].may_be_absent) {
        next_list(c);
        return;
    }
    if (response->status != 200) {
        c->failed = err_set(&c->err, EREMOTEIO, "cannot list the %s: %s", lists[c->list].name,
                            response->text) < 0;
        end(c);
        return;
    }
    /* No list is not an empty one. */
    if (json_type(items) != JSON_ARRAY) {
        c->failed =
            err_set(&c->err, EBADMSG, "cannot list the %s: the API server's answer is no list",
                    lists[c->list].name) < 0;
        end(c);
        return;
    }
    while (json_next(&it, NULL, &object))
        lists[c->list].see(c, object);
    if (next[0])
        ask(c, next);
    else
        next_list(c);
}

/* `from`: where the list goes on, characters that a query may have; NULL: at its beginning. */
static void ask(struct check *c, const char *from) {
    char path[CONTINUE_MAX + 96];
    int n = snprintf(path, sizeof(path), "%s?limit=%d%s%s", lists[c->list].path, PAGE,
                     from ? "&continue=" : "", from ? from : "");

    if (n >= (int) sizeof(path))
        c->failed = err_set(&c->err, EMSGSIZE, "the list of %s cannot be continued",
                            lists[c->list].name) < 0;
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
    if (c.claims > 0)
        return err_set(err, EBUSY,
                       "%u pods hold shares, and pods use %u ResourceClaims: delete these pods, or "
                       "see `aliquot uninstall --force`",
                       c.holders, c.claims);
    return c.holders == 0
               ? 0
               : err_set(err, EBUSY,
                         "%u pods hold shares: delete them, or see `aliquot uninstall --force`",
                         c.holders);
}
