/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/workload_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "kube/api/object_write.h"
#include "place/workload/workload_model.h"
#include "wire/http_status.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define KEY_WORKLOAD "workload"
#define KEY_SINCE "since" /* pods created before are in it: seconds since 1970 */
#define TEXT_MAX ((size_t) 256 << 10)
#define TIMEOUT_MS 10000
#define PATH_LEN 256

int workload_store_init(struct workload_store *w) {
    w->model = place_model_new();
    return w->model ? 0 : -ENOMEM;
}

void workload_store_done(struct workload_store *w) {
    place_model_free(w->model);
    w->model = NULL;
}

/* Once for each way to fail, not for each time. */
static void log_failure(struct workload_store *w, const char *doing,
                        const struct kube_response *response) {
    w->failed++;
    if (w->reported != response->status + 1)
        log_warn("cannot %s ConfigMap " WORKLOAD_STORE_NAME ": %s", doing, response->text);
    w->reported = response->status + 1;
}

/* ---- reading ---- */

static const char *name_of(void *self, uint32_t model) {
    const struct state *s = self;
    return model > 0 && model <= s->nmodels ? s->models[model] : NULL;
}

static bool find_model(void *self, const char *name, uint32_t *ret_model) {
    *ret_model = state_model_id(self, name);
    return *ret_model != 0;
}

static void take_over(struct workload_store *w, struct json data) {
    const struct workload_names names = {w->state, name_of, find_model};
    const char *text = json_string(json_get(data, KEY_WORKLOAD));
    const char *since = json_string(json_get(data, KEY_SINCE));
    uint64_t seconds = 0;
    bool usable = text && since && num_parse_u64(since, INT64_MAX, &seconds) == 0;
    if (usable && place_model_read(w->model, &names, text, strlen(text)) < 0)
        usable = false;
    if (text && !usable)
        log_warn("ConfigMap " WORKLOAD_STORE_NAME " makes no sense; learning anew");
    state_learn_from(w->state, w->model, usable ? (int64_t) seconds : 0);
    w->arrived = w->state->arrived;
}

static void on_read(const struct kube_response *response, void *userdata) {
    struct workload_store *w = userdata;
    w->reading = false;
    if (response->status != 200 && response->status != 404) {
        log_failure(w, "read", response);
        return; /* asked again in a second; until then pods are placed without it */
    }
    take_over(w, response->status == 200 ? json_get(response->body, "data") : (struct json){0});
}

static void read_store(struct workload_store *w) {
    char path[PATH_LEN];
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/configmaps/" WORKLOAD_STORE_NAME,
             w->name_space);
    w->reading = w->api.request(w->api.context, "GET", path, NULL, NULL, 0, TIMEOUT_MS, on_read, w,
                                NULL) >= 0;
    w->reads++;
}

/* ---- writing ---- */

static void on_written(const struct kube_response *response, void *userdata) {
    struct workload_store *w = userdata;
    w->writing = false;
    if (http_is_success(response->status)) {
        w->arrived = w->writes_until;
        w->reported = 0;
        return;
    }
    log_failure(w, "write", response); /* written again at the next turn, whatever pods arrive */
}

static int encode(const struct workload_store *w, struct buf *out) {
    const struct workload_names names = {w->state, name_of, find_model};
    _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
    struct json_writer j = {.out = out};
    place_model_write(w->model, &names, &text);
    object_begin(&j, "v1", "ConfigMap", WORKLOAD_STORE_NAME, NULL);
    json_object_end(&j);
    json_object_begin(&j, "data");
    json_put_string(&j, KEY_WORKLOAD, buf_str(&text));
    json_put_stringf(&j, KEY_SINCE, "%" PRId64, w->state->arrived_until);
    json_object_end(&j);
    json_object_end(&j);
    return buf_error(&text) < 0 ? buf_error(&text) : buf_error(out);
}

static void write_store(struct workload_store *w, uint64_t now_ms) {
    _cleanup_buf_ struct buf body = BUF_INIT(2 * TEXT_MAX);
    char path[PATH_LEN];
    snprintf(path, sizeof(path),
             "/api/v1/namespaces/%s/configmaps/" WORKLOAD_STORE_NAME
             "?fieldManager=aliquot-scheduler&force=true",
             w->name_space);
    w->written_ms = now_ms;
    if (encode(w, &body) < 0 ||
        w->api.request(w->api.context, "PATCH", path, KUBE_APPLY_PATCH, body.data, body.len,
                       TIMEOUT_MS, on_written, w, NULL) < 0) {
        w->failed++;
        return;
    }
    w->writing = true;
    w->writes++;
    w->writes_until = w->state->arrived;
}

void workload_store_run(struct workload_store *w, uint64_t now_ms, bool leads) {
    if (!w->state->model) {
        if (!w->reading)
            read_store(w);
        return;
    }
    if (leads && !w->writing && w->arrived != w->state->arrived &&
        (w->written_ms == 0 || now_ms - w->written_ms >= WORKLOAD_STORE_INTERVAL_MS))
        write_store(w, now_ms);
}
