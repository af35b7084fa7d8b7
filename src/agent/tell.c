/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tell.h"

#include "agent/agent.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/client.h"
#include "kube/event.h"

#define PER_SECOND 10
#define TIMEOUT_MS 10000

static uint64_t mix(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (unsigned char) *text) * 1099511628211u;
    return hash * 31;
}

static bool told(struct teller *t, uint64_t hash) {
    for (unsigned i = 0; i < TOLD_MAX; i++)
        if (t->told[i] == hash)
            return true;
    t->told[t->next++ % TOLD_MAX] = hash;
    return false;
}

static bool may_write(struct teller *t, uint64_t second) {
    if (t->second != second)
        t->in_second = 0;
    t->second = second;
    return t->in_second++ < PER_SECOND;
}

static void on_written(const struct kube_response *response, void *userdata) {
    (void) userdata;
    if (response->status < 200 || response->status >= 300)
        log_debug("an Event was not written: %s", response->text);
}

void tell_pod(struct agent *a, const char *namespace, const char *pod, const char *uid,
              const char *reason, const char *message) {
    const struct event event = {"aliquot-agent", namespace, pod, uid, reason, message};
    _cleanup_buf_ struct buf body = BUF_INIT(16 << 10);
    char path[128];
    struct err err;

    if (told(&a->teller, mix(mix(14695981039346656037u, uid), message)))
        return;
    log_warn("%s/%s: %s", namespace, pod, message);
    if (!a->client || a->closing || !may_write(&a->teller, uv_now(a->loop) / 1000))
        return;
    event_encode(&event, &body);
    event_path(namespace, path);
    if (buf_error(&body) < 0 || kube_request(a->client, "POST", path, NULL, body.data, body.len,
                                             TIMEOUT_MS, on_written, NULL, NULL, &err) < 0)
        log_debug("an Event was not written");
}
