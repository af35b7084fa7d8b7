/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mig/node_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "wire/json_write.h"

#define RETRY_MIN_MS 500
#define RETRY_MAX_MS 30000
#define TIMEOUT_MS 10000
#define CALM_MS 60000 /* after this time without a write the next repair is at once */
#define TEXT_MAX (MIG_CONFIG_NAME_MAX + MIG_REASON_MAX + 4)

/* What the Node has, or shall have. */
struct texts {
    char state[16], reason[TEXT_MAX];
};

struct mig_node_status {
    struct kube_client *client;
    char path[320];
    struct texts have, want, sent;
    bool known, decided; /* the Node was read; a status was set */
    struct kube_call *call;
    uv_timer_t timer;
    unsigned retry_ms;
    uint64_t written_at; /* loop time of the last request; 0: the next one is at once */
    char trouble[320];
};

static void write_it(struct mig_node_status *s);

static void on_timer(uv_timer_t *timer) {
    write_it(timer->data);
}

static void take(struct mig_node_status *s, struct json node) {
    struct json metadata = json_get(node, "metadata");
    const char *state = json_string(JSON_PATH(metadata, "labels", MIG_STATE_LABEL));
    const char *reason = json_string(JSON_PATH(metadata, "annotations", MIG_ANNOTATION));

    if (!json_valid(metadata))
        return;
    s->known = true;
    text_copy(s->have.state, sizeof(s->have.state), state ? state : "");
    text_copy(s->have.reason, sizeof(s->have.reason), reason ? reason : "");
}

static void try_later(struct mig_node_status *s) {
    if (!uv_is_active((const uv_handle_t *) &s->timer))
        (void) uv_timer_start(&s->timer, on_timer, s->retry_ms, 0);
}

static bool is_same(const struct texts *a, const struct texts *b) {
    return strcmp(a->state, b->state) == 0 && strcmp(a->reason, b->reason) == 0;
}

static void fail(struct mig_node_status *s, const char *cause) {
    (void) snprintf(s->trouble, sizeof(s->trouble), "cannot set the node's label %s: %.200s",
                    MIG_STATE_LABEL, cause);
    log_warn("%s; trying again in %u ms", s->trouble, s->retry_ms);
    try_later(s);
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct mig_node_status *s = userdata;

    s->call = NULL;
    if (response->status < 200 || response->status >= 300) {
        fail(s, response->text);
        return;
    }
    take(s, response->body);
    if (!is_same(&s->have, &s->sent)) {
        fail(s, "the API server returns another text, as with an admission webhook that changes "
                "nodes");
        return;
    }
    s->trouble[0] = 0;
    write_it(s); /* another status was set meanwhile */
}

static bool is_written(const struct mig_node_status *s) {
    return (!s->want.state[0] && !s->have.reason[0]) || is_same(&s->have, &s->want);
}

/* With each repair and each failure in a row the next one waits longer. */
static void note_write(struct mig_node_status *s) {
    uint64_t now = uv_now(s->timer.loop);

    if (s->written_at == 0 || now - s->written_at >= CALM_MS)
        s->retry_ms = RETRY_MIN_MS;
    else
        s->retry_ms = s->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : s->retry_ms * 2;
    s->written_at = now;
    s->sent = s->want;
}

static void put_text(struct json_writer *w, const char *object, const char *key,
                     const char *value) {
    json_object_begin(w, object);
    if (value[0])
        json_put_string(w, key, value);
    else
        json_put_null(w, key);
    json_object_end(w);
}

static void write_it(struct mig_node_status *s) {
    _cleanup_buf_ struct buf body = BUF_INIT((size_t) 4 * TEXT_MAX);
    struct json_writer w = {.out = &body};

    if (!s->known || !s->decided || s->call || is_written(s))
        return;
    (void) uv_timer_stop(&s->timer);
    note_write(s);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    put_text(&w, "labels", MIG_STATE_LABEL, s->want.state);
    put_text(&w, "annotations", MIG_ANNOTATION, s->want.reason);
    json_object_end(&w);
    json_object_end(&w);
    if (buf_error(&body) < 0 ||
        kube_request(s->client, "PATCH", s->path, KUBE_MERGE_PATCH, body.data, body.len, TIMEOUT_MS,
                     on_response, s, &s->call, NULL) < 0)
        try_later(s);
}

void mig_node_status_see(struct mig_node_status *s, struct json node) {
    take(s, node);
    if (s->written_at > 0 && !s->call && !is_written(s) &&
        uv_now(s->timer.loop) - s->written_at < CALM_MS)
        try_later(s);
    else
        write_it(s);
}

void mig_node_status_set(struct mig_node_status *s, const struct mig_status *status) {
    s->decided = true;
    s->written_at = 0;
    text_copy(s->want.state, sizeof(s->want.state), mig_state_name(status->state));
    s->want.reason[0] = 0;
    if (status->state != MIG_STATE_NONE)
        (void) snprintf(s->want.reason, sizeof(s->want.reason), "%s%s%s", status->config,
                        status->reason[0] ? ": " : "", status->reason);
    write_it(s);
}

const char *mig_node_status_trouble(const struct mig_node_status *s) {
    return s->trouble;
}

int mig_node_status_new(struct kube_client *client, const char *node,
                        struct mig_node_status **ret) {
    struct mig_node_status *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->client = client;
    s->retry_ms = RETRY_MIN_MS;
    (void) snprintf(s->path, sizeof(s->path), "/api/v1/nodes/%.253s/status", node);
    (void) uv_timer_init(kube_client_loop(client), &s->timer);
    s->timer.data = s;
    *ret = s;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    free(handle->data);
}

void mig_node_status_stop(struct mig_node_status *s) {
    kube_call_cancel(s->call);
    s->call = NULL;
    uv_close((uv_handle_t *) &s->timer, on_timer_closed);
}
