/* SPDX-License-Identifier: Apache-2.0 */

/* Such pods hold no share: only the API server has to know. */

#include "scheduler/extender/bind_plain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "wire/http_status.h"

#define BODY_MAX ((size_t) 16 << 10)

struct plain {
    const struct api *api;
    bind_done done;
    void *request;
    struct bind_target to;
};

static void end_plain(struct plain *p, const char *error) {
    p->done(error, p->request);
    free(p);
}

static void end_plain_err(struct plain *p, const char *what, const char *why) {
    struct err err;
    err_set(&err, EIO, "%s: %s", what, why);
    end_plain(p, err.text);
}

static int request_pod(struct plain *p, const char *method, const char *subresource,
                       const struct buf *body, kube_response_cb on_response, struct err *err) {
    char path[BINDING_PATH_MAX];
    binding_path(&p->to, subresource, path);
    return p->api->request(p->api->context, method, path, NULL, body ? body->data : NULL,
                           body ? body->len : 0, BINDING_TIMEOUT_MS, on_response, p, err);
}

static void on_bound(const struct kube_response *response, void *userdata) {
    struct plain *p = userdata;
    bool bound = http_is_success(response->status);
    if (bound)
        end_plain(p, "");
    else
        end_plain_err(p, "cannot bind", response->text);
}

static void post_binding(struct plain *p) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct err err;
    binding_encode(&p->to, "", &body);
    if (buf_error(&body) < 0)
        end_plain(p, "cannot build the Binding");
    else if (request_pod(p, "POST", "/binding", &body, on_bound, &err) < 0)
        end_plain_err(p, "cannot bind", err.text);
}

static void bind_if_pending(struct plain *p, const struct pod *pod) {
    if (strcmp(pod->uid, p->to.uid) != 0)
        end_plain(p, "the pod is gone, another one has its name");
    else if (pod->node[0] != '\0')
        end_plain(p, strcmp(pod->node, p->to.node) == 0 ? "" : "the pod is bound to another node");
    else if (pod->request.n > 0 || pod->problem != REQUEST_OK)
        end_plain(p, "the pod has not been seen yet; trying again");
    else
        post_binding(p);
}

static void on_pod(const struct kube_response *response, void *userdata) {
    struct plain *p = userdata;
    struct pod pod;
    struct err err;
    if (response->status == 404)
        end_plain(p, "the pod is gone");
    else if (response->status != 200 || !json_valid(response->body))
        end_plain_err(p, "cannot read the pod", response->text);
    else if (pod_parse(response->body, &pod, &err) < 0)
        end_plain_err(p, "cannot read the pod", err.text);
    else {
        bind_if_pending(p, &pod);
        pod_done(&pod);
    }
}

void bind_plain(const struct api *api, const struct bind_target *target, bind_done done,
                void *request) {
    struct plain *p = calloc(1, sizeof(*p));
    struct err err;
    if (!p) {
        done("out of memory", request);
        return;
    }
    *p = (struct plain){api, done, request, *target};
    if (request_pod(p, "GET", "", NULL, on_pod, &err) < 0)
        end_plain_err(p, "cannot read the pod", err.text);
}
