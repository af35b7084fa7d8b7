/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/gpu_manager.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "gpu/device.h"
#include "kube/api/client.h"
#include "model/scaling.h"
#include "wire/json.h"

#define CONFIG_PATH "/api/v1/namespaces/kube-system/configmaps/gpu-manager-config"
#define RETRY_MS 1000

struct gpu_manager {
    struct kube_client *client;
    char node[256];
    struct kube_call *call;
    uv_timer_t timer;
    void (*on_read)(const struct gpu_manager_config *config, void *userdata);
    void *userdata;
    struct on_closed on_closed;
};

/* ---- the text ---- */

static const char *copy_string(struct json value, char *to, size_t size) {
    const char *text = json_string(value);

    text_copy(to, size, text ? text : "");
    return to;
}

static int read_entry(struct json entry, char strings[static 512], struct gpu_manager_config *ret,
                      struct err *err) {
    struct json scaling = json_get(entry, "deviceMemoryScaling");
    double factor = 0;

    if (json_valid(scaling) && json_type(scaling) != JSON_NULL &&
        (!json_double(scaling, &factor) || !(factor >= 1.0 / SCALING_ONE) ||
         factor * SCALING_ONE > SCALING_MAX))
        return err_set(err, EINVAL, "deviceMemoryScaling is not a number above 0, up to %u",
                       SCALING_MAX / SCALING_ONE);
    ret->scaling = (uint32_t) (factor * SCALING_ONE + 0.5);
    ret->cgroup = copy_string(json_get(entry, "cgroupDriver"), strings, 64);
    ret->endpoint =
        copy_string(json_get(entry, "containerRuntimeEndpoint"), strings + 64, 512 - 64);
    ret->found = true;
    return 0;
}

int gpu_manager_parse(const char *text, size_t len, const char *node, char strings[static 512],
                      struct gpu_manager_config *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct gpu_manager_config config = {.cgroup = "", .endpoint = ""};
    struct json root, entry;
    int r = json_open(text, len, &parser, &root, err);

    if (r < 0)
        return r;
    if (json_type(json_get(root, "nodeConfig")) != JSON_ARRAY)
        return err_set(err, EINVAL, "nodeConfig is not a list");
    struct json_iter it = json_iter(json_get(root, "nodeConfig"));
    while (r == 0 && !config.found && json_next(&it, NULL, &entry)) {
        const char *name = json_string(json_get(entry, "name"));

        if (name && strcmp(name, node) == 0)
            r = read_entry(entry, strings, &config, err);
    }
    if (r == 0)
        *ret = config;
    return r;
}

uint32_t gpu_manager_scaling(uint32_t option, const struct gpu_manager_config *config) {
    if (option > 0)
        return option;
    return config->found && config->scaling > 0 ? config->scaling : SCALING_ONE;
}

/* ---- the ConfigMap ---- */

static void request_config(struct gpu_manager *m);

static void on_timer(uv_timer_t *timer) {
    request_config(timer->data);
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct gpu_manager *m = userdata;
    struct gpu_manager_config config = {.cgroup = "", .endpoint = ""};
    char strings[512];
    struct err err;

    m->call = NULL;
    if (response->status == 0 || response->status >= 500 || response->status == 429) {
        (void) uv_timer_start(&m->timer, on_timer, RETRY_MS, 0);
        return;
    }
    const char *text = response->status == 200
                           ? json_string(JSON_PATH(response->body, "data", "config.json"))
                           : NULL;
    if (response->status != 200 && response->status != 404)
        log_warn("ConfigMap kube-system/gpu-manager-config cannot be read: %s", response->text);
    if (text && gpu_manager_parse(text, strlen(text), m->node, strings, &config, &err) < 0)
        log_warn("ConfigMap kube-system/gpu-manager-config cannot be used: config.json: %s",
                 err.text);
    m->on_read(&config, m->userdata);
}

static void request_config(struct gpu_manager *m) {
    if (kube_request(m->client, "GET", CONFIG_PATH, NULL, NULL, 0, 10000, on_response, m, &m->call,
                     NULL) < 0)
        (void) uv_timer_start(&m->timer, on_timer, RETRY_MS, 0);
}

int gpu_manager_start(struct kube_client *client, const char *node,
                      void (*on_read)(const struct gpu_manager_config *config, void *userdata),
                      void *userdata, struct gpu_manager **ret, struct err *err) {
    struct gpu_manager *m = calloc(1, sizeof(*m));

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    *m = (struct gpu_manager){.client = client, .on_read = on_read, .userdata = userdata};
    text_copy(m->node, sizeof(m->node), node);
    (void) uv_timer_init(kube_client_loop(client), &m->timer);
    m->timer.data = m;
    request_config(m);
    *ret = m;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct gpu_manager *m = handle->data;

    on_closed_free(&m->on_closed, m);
}

void gpu_manager_stop(struct gpu_manager *m, void (*on_closed)(void *userdata), void *userdata) {
    kube_call_cancel(m->call);
    m->on_closed = (struct on_closed){on_closed, userdata};
    uv_close((uv_handle_t *) &m->timer, on_handle_closed);
}
