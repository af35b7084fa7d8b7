/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/metrics_apis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "kube/objects/agent_certificate.h"
#include "scheduler/cluster/peers.h"
#include "scheduler/daemon/agent_tls.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/metrics_api/metrics_api.h"

#define AGENT_PODS "labelSelector=app.kubernetes.io%2Fname%3Daliquot-agent"
#define REPLICAS "labelSelector=app.kubernetes.io%2Fname%3Daliquot-scheduler"
#define AUTHENTICATION "/api/v1/namespaces/kube-system/configmaps"
#define AUTHENTICATION_ONE "fieldSelector=metadata.name%3Dextension-apiserver-authentication"

struct metrics_apis {
    const struct scheduler *scheduler;
    struct peers *peers;
    struct kube_reflector *replicas;
    struct metrics_api *api;
    struct agents *agents;
    struct kube_reflector *pods, *authentication;
    bool authentication_listed; /* in the list that is being read */
};

#define LIST_HANDLERS(kind, owner)                                                                 \
    static void on_##kind##_begin(void *userdata) {                                                \
        owner##_sync_begin(((const struct metrics_apis *) userdata)->owner);                       \
    }                                                                                              \
    static void on_##kind##_end(void *userdata) {                                                  \
        owner##_sync_end(((const struct metrics_apis *) userdata)->owner);                         \
    }
LIST_HANDLERS(pods, agents)
LIST_HANDLERS(replicas, peers)

/* ---- the agents' pods ---- */

static void on_pod(enum kube_event event, struct json object, void *userdata) {
    const struct metrics_apis *m = userdata;
    const char *uid = json_string(JSON_PATH(object, "metadata", "uid"));
    const char *node = json_string(JSON_PATH(object, "spec", "nodeName"));
    const char *address = json_string_or(JSON_PATH(object, "status", "podIP"), "");
    struct json annotations = JSON_PATH(object, "metadata", "annotations");
    bool tls = json_is_string(json_get(annotations, AGENT_SCHEME_ANNOTATION), AGENT_SCHEME_TLS);
    if (uid && event == KUBE_DELETED)
        agents_gone(m->agents, uid);
    else if (uid && node && agents_see(m->agents, uid, node, address, tls) < 0)
        log_warn("the agent of node %s is not asked for figures: there are too many, or memory is "
                 "short",
                 node);
}

static void on_pods_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    log_warn("metrics API: the agents' pods: %s; trying again in %u ms", text, retry_ms);
}

/* ---- the replicas ---- */

static void on_replica(enum kube_event event, struct json object, void *userdata) {
    const struct metrics_apis *m = userdata;
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    const char *node = json_string(JSON_PATH(object, "spec", "nodeName"));
    const char *address = json_string_or(JSON_PATH(object, "status", "podIP"), "");
    struct json ready = json_find(JSON_PATH(object, "status", "conditions"), "type", "Ready");
    bool is_ready = json_is_string(json_get(ready, "status"), "True") &&
                    !json_valid(JSON_PATH(object, "metadata", "deletionTimestamp"));
    if (name && event == KUBE_DELETED)
        peers_gone(m->peers, name);
    else if (name && node && peers_see(m->peers, name, node, address, is_ready) < 0)
        log_warn("replica %s is not watched: out of memory", name);
}

static void on_replicas_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    log_warn("metrics API: the replicas' pods: %s; trying again in %u ms", text, retry_ms);
}

void metrics_apis_tick(struct metrics_apis *m) {
    if (m && scheduler_is_ready(m->scheduler))
        peers_tick(m->peers, scheduler_now(m->scheduler));
}

/* ---- how the API server shows itself ---- */

static void on_authentication_begin(void *userdata) {
    struct metrics_apis *m = userdata;
    m->authentication_listed = false;
}

static void on_authentication_end(void *userdata) {
    const struct metrics_apis *m = userdata;
    if (!m->authentication_listed)
        metrics_api_trust(m->api, (struct json){0});
}

static void on_authentication(enum kube_event event, struct json object, void *userdata) {
    struct metrics_apis *m = userdata;
    struct json data = {0};
    if (event != KUBE_DELETED)
        data = json_get(object, "data");
    m->authentication_listed = true;
    metrics_api_trust(m->api, data);
}

static void on_authentication_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    log_warn("metrics API: ConfigMap kube-system/extension-apiserver-authentication: %s; trying "
             "again in %u ms",
             text, retry_ms);
}

/* ---- life ---- */

/* Also while it ends: requests come until all API servers have seen that. */
static bool is_ready(void *userdata) {
    return scheduler_knows_cluster(userdata);
}

static int watch_all(struct scheduler *s, struct metrics_apis *m, struct err *err) {
    static const struct kube_reflector_handlers pods = {on_pods_begin, on_pod, on_pods_end,
                                                        on_pods_trouble};
    static const struct kube_reflector_handlers replicas = {on_replicas_begin, on_replica,
                                                            on_replicas_end, on_replicas_trouble};
    static const struct kube_reflector_handlers authentication = {
        on_authentication_begin, on_authentication, on_authentication_end,
        on_authentication_trouble};
    char path[512];
    const struct kube_reflector_options of_pods = {.path = path, .query = AGENT_PODS};
    const struct kube_reflector_options of_replicas = {.path = path, .query = REPLICAS};
    const struct kube_reflector_options of_authentication = {.path = AUTHENTICATION,
                                                             .query = AUTHENTICATION_ONE};
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods", s->options.name_space);
    int r = kube_reflector_start(s->client, &of_pods, &pods, m, &m->pods, err);
    if (r == 0)
        r = kube_reflector_start(s->client, &of_replicas, &replicas, m, &m->replicas, err);
    return r < 0 ? r
                 : kube_reflector_start(s->client, &of_authentication, &authentication, m,
                                        &m->authentication, err);
}

int metrics_apis_start(struct scheduler *s, struct metrics_apis **ret, struct err *err) {
    const struct agents_options of_agents = {.loop = s->loop,
                                             .port = AGENTS_PORT,
                                             .token_file = s->options.agent_token,
                                             .credentials =
                                                 s->agent_tls ? agent_tls_credentials : NULL,
                                             .userdata = s->agent_tls};
    struct metrics_apis *m = calloc(1, sizeof(*m));
    if (!m)
        return err_errno(err, ENOMEM, "cannot start the metrics APIs");
    *ret = m;
    m->scheduler = s;
    const char *port = strrchr(s->options.metrics_api_listen, ':');
    uint64_t number = 0;
    if (!port || num_parse_u64(port + 1, UINT16_MAX, &number) < 0)
        return err_set(err, EINVAL, "cannot listen on '%s': want ADDRESS:PORT",
                       s->options.metrics_api_listen);
    const struct peers_options of_peers = {.loop = s->loop,
                                           .api = s->requeue.api,
                                           .name_space = s->options.name_space,
                                           .own = s->options.identity,
                                           .port = (unsigned) number};
    m->peers = peers_new(&of_peers);
    m->agents = agents_new(&of_agents);
    const struct metrics_api_options options = {.api = s->requeue.api,
                                                .state = s->state,
                                                .quotas = &s->govern.quotas,
                                                .agents = m->agents,
                                                .ready = is_ready,
                                                .userdata = s};
    m->api = m->agents && m->peers ? metrics_api_new(&options) : NULL;
    if (!m->api)
        return err_errno(err, ENOMEM, "cannot start the metrics APIs");
    return watch_all(s, m, err);
}

void *metrics_apis_userdata(struct metrics_apis *m) {
    return m->api;
}

void metrics_apis_stop(struct metrics_apis *m) {
    if (!m)
        return;
    kube_reflector_stop(m->pods);
    kube_reflector_stop(m->replicas);
    kube_reflector_stop(m->authentication);
    agents_close(take_ptr(m->agents));
    peers_close(take_ptr(m->peers));
}

void metrics_apis_done(struct metrics_apis *m) {
    if (!m)
        return;
    m->api = metrics_api_free(m->api);
    free(m);
}
