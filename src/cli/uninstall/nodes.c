/* SPDX-License-Identifier: Apache-2.0 */

/* What agents and kubelet have written to Nodes: labels, annotations, conditions, capacities. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"
#include "kube/objects/node.h"
#include "model/dialect.h"
#include "model/gpu_model.h"
#include "model/mig_strategy.h"
#include "wire/json_write.h"

#define WAIT_S 420 /* kubelet takes 5 minutes, and some seconds until it reports */
#define QUIET_S 40 /* kubelet writes what is missing of a plugin within 10 */
#define PAUSE_S 5

#define LABELS_OWNED "elasticgpu.io/feature-labels"
#define CAPACITY_OWNED "elasticgpu.io/capacity"
#define MIG_REASON "elasticgpu.io/mig-config"

/* Of agents, and orders to them, which the next ones would follow. */
static const char *const annotations[] = {
    LABELS_OWNED,    CAPACITY_OWNED, MIG_REASON,      NODE_CPUS_ANNOTATION,
    GPU_MAINTENANCE, GPU_RESET,      GPU_SET_HEALTHY,
};

/* What agents write into the Node, and what their plugins serve in every case. The names of other
 * projects are theirs on a node that has no agent. */
static const struct {
    const char *name;
    bool by_kubelet, shared;
} resources[] = {
    {RESOURCE_MEMORY, false, false},     {"tke.cloud.tencent.com/qgpu-memory", false, true},
    {"aliyun.com/gpu-mem", false, true}, {"aliyun.com/gpu-count", false, true},
    {RESOURCE_CORE, true, false},        {RESOURCE_SLOT, true, false},
    {RESOURCE_QGPU_CORE, true, true},
};

static const char *const conditions[] = {NODE_AGENT_CONDITION, "GPUHealthy"};

/* A patch of one Node. */
struct node_patch {
    struct buf text;
    struct json_writer w;
    unsigned changes;
    unsigned held; /* resources that kubelet may hold for a plugin that has ended */
};

static void put_null(struct node_patch *p, const char *key) {
    json_put_null(&p->w, key);
    p->changes++;
}

static void put_labels(struct node_patch *p, struct json meta) {
    struct json notes = json_get(meta, "annotations");
    const char *owned = json_string(json_get(notes, LABELS_OWNED));
    struct json_iter it = json_iter(json_get(meta, "labels"));
    const char *key;
    struct json value;

    json_object_begin(&p->w, "labels");
    while (json_next(&it, &key, &value))
        if (key && ((owned &&
                     (text_has_item(owned, key) || strcmp(key, "nvidia.com/gfd.timestamp") == 0)) ||
                    (json_valid(json_get(notes, MIG_REASON)) &&
                     strcmp(key, "nvidia.com/mig.config.state") == 0)))
            put_null(p, key);
    json_object_end(&p->w);
}

static void put_annotations(struct node_patch *p, struct json meta) {
    json_object_begin(&p->w, "annotations");
    for (size_t i = 0; i < sizeof(annotations) / sizeof(annotations[0]); i++)
        if (json_valid(JSON_PATH(meta, "annotations", annotations[i])))
            put_null(p, annotations[i]);
    json_object_end(&p->w);
}

static bool is_zero(struct json amount) {
    return !json_valid(amount) || json_is_string(amount, "0");
}

static bool is_ours(const char *name) {
    return dialect_knows(name) ||
           strncmp(name, MIG_RESOURCE_PREFIX, strlen(MIG_RESOURCE_PREFIX)) == 0;
}

static bool has_condition(struct json status, const char *type) {
    return json_valid(json_find(json_get(status, "conditions"), "type", type));
}

/* Whether an agent has been there. */
static bool has_trace(struct json meta, struct json status) {
    for (size_t i = 0; i < sizeof(annotations) / sizeof(annotations[0]); i++)
        if (json_valid(JSON_PATH(meta, "annotations", annotations[i])))
            return true;
    return has_condition(status, NODE_AGENT_CONDITION) ||
           json_valid(JSON_PATH(status, "capacity", RESOURCE_MEMORY));
}

struct written {
    bool here;         /* has_trace() */
    const char *owned; /* the names of CAPACITY_OWNED */
};

/* Whether an agent wrote it, by itself or by its plugins; ret_held: by these. */
static bool is_written(const char *name, const struct written *by, bool *ret_held) {
    *ret_held = false;
    for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++)
        if (strcmp(resources[i].name, name) == 0 && (by->here || !resources[i].shared)) {
            *ret_held = resources[i].by_kubelet;
            return true;
        }
    return text_has_item(by->owned, name);
}

/* Of another plugin that runs, some is allocatable. kubelet holds what a plugin has offered for 5
 * minutes after its end, allocatable as 0, and shows 0 after that until it is removed. */
static void put_resources(struct node_patch *p, struct json status, const struct written *by,
                          const char *list) {
    struct json_iter it = json_iter(json_get(status, list));
    const char *name;
    struct json amount;

    json_object_begin(&p->w, list);
    while (json_next(&it, &name, &amount)) {
        bool zero, held;

        if (!name || !is_ours(name))
            continue;
        zero = is_zero(JSON_PATH(status, "capacity", name));
        if (!is_written(name, by, &held)) {
            if (!zero && !is_zero(JSON_PATH(status, "allocatable", name)))
                continue;
            held = true;
        }
        p->held += held && !zero && strcmp(list, "capacity") == 0;
        put_null(p, name);
    }
    json_object_end(&p->w);
}

static void put_conditions(struct node_patch *p, struct json status) {
    json_array_begin(&p->w, "conditions");
    for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++) {
        if (!has_condition(status, conditions[i]))
            continue;
        json_object_begin(&p->w, NULL);
        json_put_string(&p->w, "$patch", "delete");
        json_put_string(&p->w, "type", conditions[i]);
        json_object_end(&p->w);
        p->changes++;
    }
    json_array_end(&p->w);
}

static void make_patch(struct node_patch *p, struct json node) {
    struct json meta = json_get(node, "metadata"), status = json_get(node, "status");
    const struct written by = {
        .here = has_trace(meta, status),
        .owned = json_string(JSON_PATH(meta, "annotations", CAPACITY_OWNED)),
    };

    p->w = (struct json_writer){.out = &p->text};
    json_object_begin(&p->w, NULL);
    json_object_begin(&p->w, "metadata");
    put_labels(p, meta);
    put_annotations(p, meta);
    json_object_end(&p->w);
    json_object_begin(&p->w, "status");
    put_resources(p, status, &by, "capacity");
    put_resources(p, status, &by, "allocatable");
    put_conditions(p, status);
    json_object_end(&p->w);
    json_object_end(&p->w);
}

/* Whether kubelet reports it, so that what it holds comes to an end. */
static bool is_ready(struct json node) {
    struct json all = JSON_PATH(node, "status", "conditions");

    return json_is_string(json_get(json_find(all, "type", "Ready"), "status"), "True");
}

struct sweep {
    unsigned changed;   /* Nodes */
    unsigned held;      /* resources, of Nodes that are ready */
    struct buf waiting; /* names of those Nodes */
    struct buf away;    /* of the others */
};

static int sweep_node(struct sweep *s, struct json node, struct err *err) {
    struct node_patch p = {.text = BUF_INIT(0)};
    const char *name = json_string_or(JSON_PATH(node, "metadata", "name"), "");
    int e = 0;

    make_patch(&p, node);
    if (buf_error(&p.text) < 0)
        e = err_errno(err, ENOMEM, "cannot write to node %s", name);
    else if (p.changes > 0)
        e = removal_if_there(
            removal_patch(OBJECTS(.kind = "nodes", .name = name, .subresource = "status"),
                          KUBE_STRATEGIC_PATCH, buf_str(&p.text), err));
    s->changed += e == 0 && p.changes > 0;
    if (p.held > 0)
        buf_printf(is_ready(node) ? &s->waiting : &s->away, " %s", name);
    s->held += is_ready(node) ? p.held : 0;
    buf_done(&p.text);
    return e;
}

static void sweep_done(struct sweep *s) {
    buf_done(&s->waiting);
    buf_done(&s->away);
}

static int sweep_nodes(struct sweep *s, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, node;
    int e = removal_get(OBJECTS(.kind = "nodes"), &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    s->changed = s->held = 0;
    buf_reset(&s->waiting);
    buf_reset(&s->away);
    while (e == 0 && json_next(&it, NULL, &node))
        e = sweep_node(s, node, err);
    return e;
}

/* Until kubelet has not written any of it again for a while. What it has not written yet, shortly
 * after an earlier sweep, does not show on the Nodes. 1: Aliquot has been installed meanwhile,
 * whose entries are not to be removed. */
static int await_kubelets(const struct removal *r, struct sweep *s, struct err *err) {
    const struct timespec pause = {.tv_sec = PAUSE_S};
    time_t begin = time(NULL), last = begin;
    int e = 0;

    while (e == 0 && time(NULL) < last + QUIET_S) {
        if (time(NULL) > begin + WAIT_S)
            return err_set(err, ETIMEDOUT,
                           "entries of Aliquot still come back on Nodes after %d s; does a plugin "
                           "of these names, or an agent, run on the nodes?%s",
                           WAIT_S, buf_str(&s->waiting));
        (void) nanosleep(&pause, NULL);
        e = r->caller == REMOVAL_AFTERWARDS ? removal_is_installed(err) : 0;
        if (e == 0)
            e = sweep_nodes(s, err);
        if (s->changed > 0)
            last = time(NULL);
    }
    return e;
}

static const char *advice(const struct removal *r) {
    if (r->wait)
        return ", waiting";
    return r->caller == REMOVAL_BY_HELM ? "" : "; run this command again then, or with --wait";
}

static int await_end(const struct removal *r, struct sweep *s, struct err *err) {
    int e = await_kubelets(r, s, err);

    if (e == 0)
        removal_say("nodes", "kubelet shows no resources of plugins any more");
    if (e > 0)
        removal_say("nodes", "Aliquot is installed again");
    /* A Job would begin again, for ever. */
    if (e == -ETIMEDOUT && r->caller == REMOVAL_AFTERWARDS) {
        removal_say("nodes", "%s", err->text);
        e = 0;
    }
    return e < 0 ? e : 0;
}

int removal_of_node_entries(const struct removal *r, struct err *err) {
    _cleanup_(sweep_done) struct sweep s = {.waiting = BUF_INIT(0), .away = BUF_INIT(0)};
    int e = r->caller == REMOVAL_AFTERWARDS ? removal_is_installed(err) : 0;

    if (e == 0)
        e = sweep_nodes(&s, err);
    if (e != 0)
        return e < 0 ? e : 0;
    removal_say("nodes", "%u changed", s.changed);
    if (s.held > 0)
        removal_say("nodes",
                    "kubelet may show %u resources of plugins again for 5 minutes after their "
                    "end%s:%s",
                    s.held, advice(r), buf_str(&s.waiting));
    if (s.away.len > 0)
        removal_say("nodes", "not ready, so kubelet may show some again when it is back:%s",
                    buf_str(&s.away));
    return r->wait ? await_end(r, &s, err) : 0;
}
