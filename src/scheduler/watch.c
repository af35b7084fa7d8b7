/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/log.h"
#include "kube/field.h"
#include "scheduler/scheduler.h"

#define PROJECT_DELAY_MS 20
#define STATUS_MAX ((size_t) 1 << 20)

static void on_project(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    projection_run(&s->projection, s->parser);
    if (scheduler_is_ready(s))
        wake_run(&s->wake, scheduler_now(s));
}

/* Several events that come together are projected together. */
static void changed(struct scheduler *s) {
    if (!uv_is_active((uv_handle_t *) &s->project))
        uv_timer_start(&s->project, on_project, PROJECT_DELAY_MS, 0);
}

/* An object that cannot be read leaves the state as it was; the API server does not send such. */
static void refuse(struct scheduler *s, const char *why) {
    s->objects_refused++;
    log_warn("watch: %s", why);
}

static void out_of_memory(struct scheduler *s) {
    refuse(s, "out of memory, an object is not accounted for");
}

static void on_pod(enum kube_event event, struct json object, void *userdata) {
    struct scheduler *s = userdata;
    struct pod pod;
    struct err err;
    if (pod_parse(object, &pod, &err) < 0) {
        refuse(s, err.text);
        return;
    }
    if (event == KUBE_DELETED)
        state_pod_gone(s->state, pod.uid);
    else if (state_pod_seen(s->state, &pod, scheduler_now(s)) < 0)
        out_of_memory(s);
    pod_done(&pod);
    changed(s);
}

static void on_node(enum kube_event event, struct json object, void *userdata) {
    struct scheduler *s = userdata;
    struct node_object node;
    struct err err;
    if (node_object_parse(object, &node, &err) < 0)
        refuse(s, err.text);
    else if (event == KUBE_DELETED)
        state_node_gone(s->state, node.name);
    else if (state_node_seen(s->state, node.name) < 0)
        out_of_memory(s);
}

static void on_gpu(enum kube_event event, struct json object, void *userdata) {
    struct scheduler *s = userdata;
    struct gpu_object gpu;
    struct err err;
    _cleanup_buf_ struct buf observed = BUF_INIT(STATUS_MAX);
    struct json status = json_get(object, "status");
    if (gpu_object_parse(object, &gpu, &err) < 0) {
        char name[KUBE_NAME_MAX];
        refuse(s, err.text);
        /* What cannot be understood must not be given out any more either. */
        if (field_copy(JSON_PATH(object, "metadata", "name"), name, sizeof(name)) == 0)
            state_gpu_gone(s->state, name);
    } else if (event == KUBE_DELETED)
        state_gpu_gone(s->state, gpu.name);
    else {
        projection_observed(status, &observed);
        if (state_gpu_seen(s->state, &gpu, json_valid(status) ? buf_str(&observed) : NULL) < 0)
            out_of_memory(s);
    }
    changed(s);
}

static void sync_begin(struct scheduler *s, enum state_kind kind) {
    state_sync_begin(s->state, kind);
}

static void sync_end(struct scheduler *s, enum state_kind kind) {
    state_sync_end(s->state, kind);
    bool was_ready = scheduler_is_ready(s);
    s->synced[kind] = true;
    s->fresh_ms[kind] = scheduler_now(s);
    if (!was_ready && scheduler_is_ready(s))
        log_info("ready: %u GPUs, %u nodes, %u pods with GPU requests", HASH_COUNT(s->state->cards),
                 HASH_COUNT(s->state->nodes), HASH_COUNT(s->state->pods));
    changed(s);
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    log_warn("watch: %s; trying again in %u ms", text, retry_ms);
}

#define SYNC_HANDLERS(kind)                                                                        \
    static void kind##_begin(void *userdata) {                                                     \
        sync_begin(userdata, STATE_##kind);                                                        \
    }                                                                                              \
    static void kind##_end(void *userdata) {                                                       \
        sync_end(userdata, STATE_##kind);                                                          \
    }
SYNC_HANDLERS(PODS)
SYNC_HANDLERS(NODES)
SYNC_HANDLERS(GPUS)

int scheduler_watch(struct scheduler *s, struct err *err) {
    /* A pod that has ended leaves the selection, which comes as its deletion. */
    static const char running[] =
        "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    const struct kube_reflector_options options[STATE_KINDS] = {
        [STATE_PODS] = {.path = "/api/v1/pods", .query = running, .retry_max_ms = 5000},
        [STATE_NODES] = {.path = "/api/v1/nodes", .retry_max_ms = 5000},
        [STATE_GPUS] = {.path = GPU_OBJECTS_PATH, .retry_max_ms = 5000},
    };
    const struct kube_reflector_handlers handlers[STATE_KINDS] = {
        [STATE_PODS] = {PODS_begin, on_pod, PODS_end, on_trouble},
        [STATE_NODES] = {NODES_begin, on_node, NODES_end, on_trouble},
        [STATE_GPUS] = {GPUS_begin, on_gpu, GPUS_end, on_trouble},
    };
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        int r = kube_reflector_start(s->client, &options[kind], &handlers[kind], s,
                                     &s->reflectors[kind], err);
        if (r < 0)
            return r;
    }
    return 0;
}
