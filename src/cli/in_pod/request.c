/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/in_pod/request.h"

#include <string.h>
#include <uv.h>

#include "kube/api/client.h"

#define ANSWER_MS 60000 /* for lists of big clusters */

struct answer {
    struct buf text;
    int r;
    struct err err;
};

/* What has no such path, of a kind that the cluster does not have, is no Status. */
static const char *reason_of(const struct kube_response *response) {
    if (response->status == 404)
        return "NotFound";
    return response->reason[0] ? response->reason : "no reason";
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct answer *a = userdata;

    buf_append(&a->text, response->raw ? response->raw : "", response->size);
    a->r = 0;
    if (response->status == 0)
        a->r = err_set(&a->err, EREMOTEIO, "%s", response->text);
    else if (response->status < 200 || response->status > 299)
        a->r = err_set(&a->err, EREMOTEIO, "(%s): %s", reason_of(response), response->text);
    else if (buf_error(&a->text) < 0)
        a->r = err_errno(&a->err, ENOMEM, "cannot keep the answer");
}

int request_send(const struct request *request, struct buf *ret, struct err *err) {
    struct kube_config config = {0};
    struct kube_client *client = NULL;
    struct answer a = {.text = BUF_INIT(0)};
    const char *body = request->body;
    uv_loop_t loop;
    int r = kube_config_load(NULL, NULL, NULL, &config, err);

    if (r < 0)
        return r;
    (void) uv_loop_init(&loop);
    r = kube_client_new(&loop, &config, &client, err);
    kube_config_done(&config);
    if (r == 0)
        r = kube_request(client, request->method, request->path, request->content_type, body,
                         body ? strlen(body) : 0, ANSWER_MS, on_response, &a, NULL, err);
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
