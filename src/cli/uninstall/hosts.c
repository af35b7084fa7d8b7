/* SPDX-License-Identifier: Apache-2.0 */

/* The files on the nodes. The agents' DaemonSet is made to clean them: its pods end, and in place
 * of each comes one that removes what agents have left and is ready when that is done. It has
 * image, nodes and directories of the agents, however they were installed. */

#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "cli/cluster/pod_ready.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"
#include "wire/json_write.h"

#define CLEAN "--clean"
#define HEALTH "/run/aliquot-agent"
#define READY_PROBE                                                                                \
    "{\"httpGet\":null,\"periodSeconds\":1,\"exec\":{\"command\":["                                \
    "\"/usr/local/bin/aliquot-agent\",\"--probe=" HEALTH "/ready\"]}}"

/* ---- the DaemonSet ---- */

/* Its directories on the host are reached below /host, where they can be removed; mounted beside
 * that, kubelet would make them again. */
static void put_mounts(struct json_writer *w, struct json mounts) {
    struct json_iter it = json_iter(mounts);
    struct json mount;

    json_array_begin(w, "volumeMounts");
    while (json_next(&it, NULL, &mount)) {
        const char *path = json_string_or(json_get(mount, "mountPath"), "");
        bool host = strcmp(path, "/host") == 0;

        if (strcmp(path, HEALTH) == 0)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "mountPath", path);
        if (host) {
            json_put_bool(w, "readOnly", false);
            json_put_string(w, "mountPropagation", "Bidirectional");
        } else {
            json_put_string(w, "$patch", "delete");
        }
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_args(struct json_writer *w, struct json args) {
    struct json_iter it = json_iter(args);
    struct json arg;

    json_array_begin(w, "args");
    while (json_next(&it, NULL, &arg))
        if (!json_is_string(arg, CLEAN))
            json_put_string(w, NULL, json_string_or(arg, ""));
    json_put_string(w, NULL, CLEAN);
    json_array_end(w);
}

static int order_cleaning(const struct removal *r, const char *name, struct json agent,
                          struct err *err) {
    static const char begin[] =
        "{\"spec\":{\"updateStrategy\":{\"type\":\"RollingUpdate\",\"rollingUpdate\":"
        "{\"maxUnavailable\":\"100%\",\"maxSurge\":0}},\"template\":{\"spec\":"
        "{\"containers\":[{\"name\":\"agent\",\"livenessProbe\":null,"
        "\"readinessProbe\":" READY_PROBE ",";
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    struct json_writer w = {
        .out = &patch,
    };

    buf_puts(&patch, begin);
    put_args(&w, json_get(agent, "args"));
    put_mounts(&w, json_get(agent, "volumeMounts"));
    if (r->image)
        json_put_string(&w, "image", r->image);
    buf_puts(&patch, "}]}}}}");
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot change the agents");
    return removal_if_there(
        removal_patch(OBJECTS(.kind = "daemonsets", .namespace = r->system, .name = name),
                      KUBE_STRATEGIC_PATCH, buf_str(&patch), err));
}

/* ---- where it is gone ---- */

#define SPARE "aliquot-uninstall"
#define SPARE_NAMESPACE "kube-system"
#define SPARE_LABELS "{\"app.kubernetes.io/name\":\"" SPARE "\"}"

/* It assumes the directories that deploy/ uses. In a namespace that is there on every cluster and
 * takes privileged pods. */
static const char spare[] =
    "{\"apiVersion\":\"apps/v1\",\"kind\":\"DaemonSet\",\"metadata\":{\"name\":\"" SPARE "\"},"
    "\"spec\":{\"selector\":{\"matchLabels\":" SPARE_LABELS "},\"template\":{\"metadata\":"
    "{\"labels\":" SPARE_LABELS "},\"spec\":{\"automountServiceAccountToken\":false,"
    "\"hostPID\":true,\"tolerations\":[{\"operator\":\"Exists\"}],\"nodeSelector\":"
    "{\"kubernetes.io/os\":\"linux\"},\"terminationGracePeriodSeconds\":1,\"volumes\":["
    "{\"name\":\"host\",\"hostPath\":{\"path\":\"/\"}},"
    "{\"name\":\"health\",\"emptyDir\":{\"medium\":\"Memory\"}}],"
    "\"containers\":[{\"name\":\"agent\",\"imagePullPolicy\":\"IfNotPresent\","
    "\"securityContext\":{\"privileged\":true},\"args\":[\"--node-name=any\",\"--host-root=/host\","
    "\"--health=" HEALTH "\",\"--hook-dir=/var/lib/aliquot\",\"" CLEAN "\"],\"volumeMounts\":["
    "{\"name\":\"host\",\"mountPath\":\"/host\",\"mountPropagation\":\"Bidirectional\"},"
    "{\"name\":\"health\",\"mountPath\":\"" HEALTH "\"}],\"readinessProbe\":" READY_PROBE
    ",\"image\":";

/* One that an earlier call has left may have an image that is nowhere. */
static int correct_spare(const struct removal *r, struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    struct json_writer w = {.out = &patch};

    buf_puts(&patch, "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"agent\","
                     "\"image\":");
    json_put_string(&w, NULL, r->image);
    buf_puts(&patch, "}]}}}}");
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot change the DaemonSet that cleans the nodes");
    return removal_if_there(
        removal_patch(OBJECTS(.kind = "daemonsets", .namespace = SPARE_NAMESPACE, .name = SPARE),
                      KUBE_STRATEGIC_PATCH, buf_str(&patch), err));
}

static int make_spare(const struct removal *r, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};
    int e;

    buf_puts(&text, spare);
    json_put_string(&w, NULL, r->image);
    buf_puts(&text, "}]}}}}");
    if (buf_error(&text) < 0)
        return err_errno(err, ENOMEM, "cannot write the DaemonSet that cleans the nodes");
    e = removal_create(OBJECTS(.kind = "daemonsets", .namespace = SPARE_NAMESPACE), buf_str(&text),
                       err);
    return e == -EEXIST ? correct_spare(r, err) : e;
}

/* ---- waiting ---- */

struct pass {
    const char *namespace, *name;
    char label[96];
};

static uint64_t number(struct json status, const char *key) {
    uint64_t n = 0;

    (void) json_u64(json_get(status, key), &n);
    return n;
}

static bool is_done(struct json daemons) {
    struct json status = json_get(daemons, "status");
    uint64_t wanted = number(status, "desiredNumberScheduled");

    return number(status, "observedGeneration") >=
               number(json_get(daemons, "metadata"), "generation") &&
           number(status, "updatedNumberScheduled") == wanted &&
           number(status, "numberReady") == wanted;
}

/* What is left there is for the next agent, or for the node's next boot. */
static int name_missing(const struct removal *r, const struct pass *p, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf nodes = BUF_INIT(0);
    struct json pods, pod;
    int e = removal_get(OBJECTS(.kind = "pods", .namespace = p->namespace, .labels = p->label),
                        &parser, &pods, err);
    struct json_iter it = json_iter(json_get(pods, "items"));

    while (e == 0 && json_next(&it, NULL, &pod))
        if (!pod_is_ready(pod) || json_valid(JSON_PATH(pod, "metadata", "deletionTimestamp")))
            buf_printf(&nodes, " %s", json_string_or(JSON_PATH(pod, "spec", "nodeName"), "?"));
    if (e == 0)
        removal_say("hosts",
                    "not cleaned within %u s (--timeout):%s; a later call with --agent-image "
                    "cleans them, or remove /run/aliquot, /var/lib/aliquot, "
                    "/var/run/cdi/elasticgpu.io-share-*.json, and gpu.elasticgpu.io* in plugins "
                    "and plugins_registry of kubelet's directory there by hand",
                    r->limit_s, buf_str(&nodes));
    return e < 0 ? e : 1;
}

static int say_cleaned(const struct removal *r, struct json daemons) {
    removal_say("hosts", "%llu nodes cleaned%s",
                (unsigned long long) number(json_get(daemons, "status"), "numberReady"),
                r->force ? "; where containers with shares run, what they use stays" : "");
    return 0;
}

static int await(const struct removal *r, const struct pass *p, struct err *err) {
    const struct timespec pause = {.tv_nsec = 500000000};
    time_t end = time(NULL) + r->limit_s;

    for (;;) {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json daemons;
        int e =
            removal_get(OBJECTS(.kind = "daemonsets", .namespace = p->namespace, .name = p->name),
                        &parser, &daemons, err);

        if (e < 0)
            return e;
        if (!json_valid(daemons)) {
            removal_say("hosts",
                        "DaemonSet %s is gone, nodes may have their files; give "
                        "--agent-image",
                        p->name);
            return 1;
        }
        if (!json_has_string(json_get(removal_agent_of(daemons), "args"), CLEAN))
            return err_set(err, EBUSY,
                           "DaemonSet %s has been changed back while it cleans the nodes: suspend "
                           "what manages it (Argo CD, Flux), and run this command again",
                           p->name);
        if (is_done(daemons))
            return say_cleaned(r, daemons);
        if (time(NULL) >= end)
            return name_missing(r, p, err);
        (void) nanosleep(&pause, NULL);
    }
}

/* ---- the step ---- */

static int clean_by_agents(const struct removal *r, struct json daemons, struct err *err) {
    struct pass p = {.namespace = r->system,
                     .name = json_string_or(JSON_PATH(daemons, "metadata", "name"), ""),
                     .label = AGENT_LABEL};
    struct json agent = removal_agent_of(daemons);
    bool ordered = json_has_string(json_get(agent, "args"), CLEAN) &&
                   (!r->image || json_is_string(json_get(agent, "image"), r->image));
    int e = ordered ? 0 : order_cleaning(r, p.name, agent, err);

    return e < 0 ? e : await(r, &p, err);
}

static int clean_by_spare(const struct removal *r, struct err *err) {
    struct pass p = {
        .namespace = SPARE_NAMESPACE, .name = SPARE, .label = "app.kubernetes.io/name=" SPARE};
    int e = make_spare(r, err);

    return e < 0 ? e : await(r, &p, err);
}

int removal_of_host_files(const struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, daemons;
    unsigned count = 0;
    struct json_iter it;
    bool left;
    int e = removal_get(AGENTS(r), &parser, &list, err);

    it = json_iter(json_get(list, "items"));
    if (e == 0 && json_next(&it, NULL, &daemons))
        e = clean_by_agents(r, daemons, err);
    else if (e == 0 && r->image)
        e = clean_by_spare(r, err);
    else if (e == 0)
        removal_say("hosts", "no agents; where nodes still have their files, give --agent-image");
    if (e < 0)
        return e;
    left = e > 0;
    if (r->caller == REMOVAL_BY_HELM) /* none is made by it */
        return left;
    e = removal_delete(OBJECTS(.kind = "daemonsets", .namespace = SPARE_NAMESPACE, .name = SPARE),
                       &count, err);
    return e < 0 ? e : left;
}
