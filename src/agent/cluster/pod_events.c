/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/pod_events.h"

#include <errno.h>

#include "base/err.h"
#include "base/log.h"
#include "kube/api/client.h"
#include "kube/api/event_writer.h"

/* A node has some hundreds; twice as many, for those that end. */
#define POD_EVENTS_PODS_MAX 1024

static int request(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err) {
    const struct pod_events *p = context;
    struct err ignored;

    if (!p->client || p->closing)
        return -ECANCELED;
    return kube_request(p->client, method, path, content_type, body, size, timeout_ms, on_response,
                        userdata, NULL, err ? err : &ignored);
}

static void on_write(const struct event *e, uint64_t count, void *userdata) {
    (void) userdata;
    log_write(e->normal ? LOG_INFO : LOG_WARN, "%s/%s: %s: %s (noted %llu times)", e->namespace,
              e->name, e->reason, e->message, (unsigned long long) count);
}

void pod_events_start(struct pod_events *p, uv_loop_t *loop) {
    const struct event_writer_options options = {.component = "aliquot-agent",
                                                 .request = request,
                                                 .context = p,
                                                 .on_write = on_write,
                                                 .objects_max = POD_EVENTS_PODS_MAX};

    p->loop = loop;
    p->writer = event_writer_new(&options);
}

static void note(struct pod_events *p, const struct event *e) {
    if (p->writer)
        event_writer_note(p->writer, e, 0, false, uv_now(p->loop));
    else
        log_warn("%s/%s: %s: %s", e->namespace, e->name, e->reason, e->message);
}

void pod_events_container(struct pod_events *p, const char *namespace, const char *pod,
                          const char *uid, const char *container, const char *reason,
                          const char *message) {
    struct event e = event_on_pod(namespace, pod, uid, reason, message);

    e.container = container;
    note(p, &e);
}

/* Objects in no namespace have their Events in "default". */
static struct event event_of_cluster(const char *api_version, const char *kind, const char *name,
                                     const char *uid, const char *reason, const char *message) {
    struct event e = event_on_pod("default", name, uid, reason, message);

    e.api_version = api_version;
    e.kind = kind;
    e.cluster_scoped = true;
    return e;
}

void pod_events_card(struct pod_events *p, const char *name, const char *uid, const char *reason,
                     const char *message) {
    const struct event e =
        event_of_cluster("elasticgpu.io/v1alpha1", "GPU", name, uid, reason, message);

    note(p, &e);
}

void pod_events_node(struct pod_events *p, const char *node, const char *reason,
                     const char *message) {
    const struct event e = event_of_cluster("v1", "Node", node, node, reason, message);

    note(p, &e);
}

void pod_events_node_well(struct pod_events *p, const char *node, const char *reason,
                          const char *message) {
    struct event e = event_of_cluster("v1", "Node", node, node, reason, message);

    e.normal = true;
    note(p, &e);
}

void pod_events_pod(struct pod_events *p, const char *namespace, const char *pod, const char *uid,
                    const char *reason, const char *message) {
    pod_events_container(p, namespace, pod, uid, NULL, reason, message);
}
