/* SPDX-License-Identifier: Apache-2.0 */

/* PreStartContainer. kubelet says only a set of IDs. Its checkpoint says which containers have
 * exactly that set (an init container and an app container with equal requests share one) and what
 * we answered to Allocate for each: the name of its own slot. Every one of them is filled before
 * kubelet is told to go on; so no order, count or size is guessed, and no slot is ever shared. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/agent.h"
#include "agent/cluster/keys.h"
#include "agent/kubelet/checkpoint.h"
#include "agent/shares/cdi.h"
#include "agent/shares/driver_limit.h"
#include "agent/shares/gputime.h"
#include "agent/shares/grant.h"
#include "agent/shares/mps.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "kube/objects/dialect_export.h"
#include "model/scaling.h"
#include "wire/grpc_server.h"

#define WAIT_MAX_MS                                                                                \
    20000 /* kubelet's own deadline is 30 s; an error costs the pod 10 s, waiting does not */
#define DEADLINE_MARGIN_MS 2000
#define LOOK_MS 250 /* how often to look again when no event said so */
#define ENTRIES_MAX 64

/* A container that has the set of IDs. */
struct candidate {
    char pod_uid[KUBE_UID_MAX];
    char container[KUBE_LABEL_MAX];
    char nonce[NONCE_LEN + 1];
    size_t rank;    /* of its resource in the table */
    bool companion; /* another resource of ours carries this container's share */
    bool granted;
};

struct prestart {
    struct agent *agent;
    struct grpc_call *call;
    const struct resource *resource;
    const char **ids; /* copies, sorted */
    size_t nids;
    struct candidate *candidates;
    size_t ncandidates;
    uint64_t began, until; /* loop time */
    uv_timer_t timer;
    bool over;
    struct err why; /* what it waits for */
    struct prestart *prev, *next;
};

/* ---- which containers? ---- */

struct lookup {
    struct prestart *p;
    struct candidate *list; /* all containers with any of our resources */
    size_t n, cap;
    bool failed;
};

static bool lookup_wanted(const char *resource, void *userdata) {
    (void) userdata;
    return resource_find(resource) != NULL;
}

static void lookup_add(const struct checkpoint_entry *e, void *userdata) {
    struct lookup *l = userdata;
    const struct resource *r = resource_find(e->resource);
    struct candidate *c;

    if (!nonce_valid(e->nonce) || strlen(e->pod_uid) >= sizeof(c->pod_uid) ||
        strlen(e->container) >= sizeof(c->container))
        return;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct candidate *grown = realloc(l->list, cap * sizeof(*grown));

        l->failed = l->failed || !grown;
        if (!grown)
            return;
        l->list = grown;
        l->cap = cap;
    }
    c = &l->list[l->n++];
    *c = (struct candidate){.rank = (size_t) (r - resources)};
    text_copy(c->pod_uid, sizeof(c->pod_uid), e->pod_uid);
    text_copy(c->container, sizeof(c->container), e->container);
    text_copy(c->nonce, sizeof(c->nonce), e->nonce);
    /* For now this marks the ones that this call is about. */
    c->granted = r == l->p->resource && id_sets_equal(e->ids, e->nids, l->p->ids, l->p->nids);
}

static bool has_carrier(const struct lookup *l, const struct candidate *c) {
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].rank < c->rank && strcmp(l->list[i].pod_uid, c->pod_uid) == 0 &&
            strcmp(l->list[i].container, c->container) == 0)
            return true;
    return false;
}

static int find_candidates(struct prestart *p, struct err *err) {
    struct lookup l = {.p = p};
    size_t n = 0;
    int r = checkpoint_read(kubelet_checkpoint_path(p->agent->kubelet), lookup_wanted, lookup_add,
                            &l, err);

    if (r == 0 && l.failed)
        r = err_set(err, ENOMEM, "out of memory");
    for (size_t i = 0; i < l.n; i++)
        l.list[i].companion = has_carrier(&l, &l.list[i]);
    for (size_t i = 0; i < l.n && n < ENTRIES_MAX; i++) {
        if (!l.list[i].granted)
            continue;
        l.list[n] = l.list[i];
        l.list[n++].granted = false;
    }
    if (r == 0 && n > 0) {
        p->candidates = l.list;
        p->ncandidates = n;
        return 0;
    }
    free(l.list);
    return r < 0 ? r : err_set(err, EAGAIN, "kubelet's checkpoint has no container with these IDs");
}

/* ---- what do they get? ---- */

static int put_variable(const char *variable, void *userdata) {
    return gpu_edits_add(userdata, GPU_EDIT_ENV, "", variable);
}

/* What programs that know another project look for. */
static int foreign_edits(const struct slot_grant *g, const struct gpu_device *const *devices,
                         uint32_t scaling, struct gpu_edits *edits) {
    struct foreign_part parts[GPU_MAX];

    for (uint32_t i = 0; i < g->ndevices && i < GPU_MAX; i++)
        parts[i] =
            (struct foreign_part){.index = g->devices[i].index,
                                  .core = g->devices[i].core,
                                  .memory = g->devices[i].memory,
                                  .pod_memory = g->devices[i].pod_memory,
                                  .card_memory = scaling_capacity(devices[i]->memory, scaling)};
    return foreign_env((enum foreign_kind) g->foreign, parts, g->ndevices, put_variable, edits);
}

/* Everything that is put into the container. */
static int collect_edits(struct agent *a, const struct slot *slot, struct gpu_edits *edits,
                         struct err *err) {
    const struct slot_grant *g = &slot->grant;
    const struct gpu_device *devices[GPU_MAX];
    char share[384];
    size_t n = 0;
    int r = 0;

    for (uint32_t i = 0; i < g->ndevices && n < GPU_MAX; i++) {
        devices[n] = gpu_find(gpu_monitor_snapshot(a->monitor), g->devices[i].uuid);
        if (!devices[n++])
            return err_set(err, ENODEV, "GPU %s is not on this node", g->devices[i].uuid);
    }
    if (n > 0 && !a->driver)
        return err_set(err, ENODEV, "no GPU driver was found on this node");
    if (n > 0)
        r = gpu_driver_edits(a->driver, &a->places, devices, n, g->driver, a->library.shadow, edits,
                             err);
    if (r < 0)
        return r;
    slot_dir(&a->slots, slot->nonce, share);
    if (n > 0 && library_note(&a->library, share, err) < 0)
        return -err->code;
    if (n > 0)
        r = library_edits(&a->library, share, edits);
    if (r == 0)
        r = mps_edits(a->config.mps_dir, a->config.host_root, g, edits);
    if (r == 0)
        r = foreign_edits(g, devices, a->config.memory_scaling, edits);
    if (r == 0 && n > 0)
        r = ldcache_edits(a, edits);
    if (r == 0 && n > 0 && wall_edits(a, edits, err) < 0)
        return -err->code;
    /* Nothing but ours may add cards: where NVIDIA's runtime hook is installed it keeps out. */
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_ENV, "", "NVIDIA_VISIBLE_DEVICES=void");
    return r < 0 ? err_set(err, -r, "too many files for one container") : 0;
}

static int write_cdi(struct agent *a, const struct slot *slot, struct err *err) {
    struct gpu_edits *edits = calloc(1, sizeof(*edits)); /* 256 KB: not for the stack */
    int r = edits ? collect_edits(a, slot, edits, err) : err_set(err, ENOMEM, "out of memory");

    if (r == 0)
        r = cdi_write(a->config.cdi_dir, slot->nonce, edits, err);
    free(edits);
    return r;
}

/* A container that is started again: what it holds stands in our own record. */
static bool grant_again(const struct candidate *c, const struct slot *slot) {
    return slot && !slot->releasing && strcmp(slot->grant.pod_uid, c->pod_uid) == 0 &&
           strcmp(slot->grant.container, c->container) == 0;
}

static enum verdict judge(struct prestart *p, const struct candidate *c, struct slot_grant *ret,
                          struct err *why) {
    struct agent *a = p->agent;
    struct grant_world world = {
        .node = a->config.node_name,
        .pod = pods_find(a->pods, c->pod_uid),
        .keys = keys_verifier(a->keys),
        .snapshot = gpu_monitor_snapshot(a->monitor),
        .slots = &a->slots,
    };
    enum verdict v = grant_judge(&world, c->pod_uid, c->container, ret, why);

    if (v == VERDICT_GRANT && c->companion)
        ret->ndevices = 0;
    /* The scheduler's keys may be newer than ours: a refusal counts only against keys read since
     * kubelet called. */
    if (v == VERDICT_FORGED && keys_read_at(a->keys) <= p->began) {
        keys_refresh(a->keys);
        v = VERDICT_WAIT;
    }
    return v;
}

static void log_grant(const struct slot *slot) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
        const struct slot_device *d = &slot->grant.devices[i];
        char size[24];

        log_info("granted %s/%s container %s: GPU %u %s, core %u, memory %s (slot %s)",
                 slot->grant.namespace, slot->grant.pod, slot->grant.container, d->index, d->uuid,
                 d->core, num_format_bytes(d->memory, size), slot->nonce);
    }
}

static enum verdict fill(struct prestart *p, struct candidate *c, struct err *why) {
    struct agent *a = p->agent;
    struct slot *slot = slot_find(&a->slots, c->nonce);
    struct slot_grant grant = {0};
    bool again = grant_again(c, slot);

    if (!again) {
        enum verdict v = judge(p, c, &grant, why);

        if (v != VERDICT_GRANT)
            return v;
        (void) slot_grant_contexts(&grant, gpu_monitor_snapshot(a->monitor));
        gputime_terms(a, &pods_find(a->pods, c->pod_uid)->pod, &grant);
        if (slot_fill(&a->slots, c->nonce, &grant, &slot, why) < 0)
            return VERDICT_DENY;
        gputime_join(a);
        log_grant(slot);
    }
    if (again &&
        (slot_mend_ledger(&a->slots, slot, why) < 0 || slot_mend_account(&a->slots, slot, why) < 0))
        return VERDICT_DENY;
    if (again)
        gputime_join(a);
    if (write_cdi(a, slot, why) < 0)
        return why->code == ENODEV ? VERDICT_WAIT : VERDICT_DENY;
    c->granted = true;
    return VERDICT_GRANT;
}

/* ---- the end of a call ---- */

static void on_timer_closed(uv_handle_t *handle) {
    struct prestart *p = handle->data;

    for (size_t i = 0; i < p->nids; i++)
        free((char *) (uintptr_t) p->ids[i]);
    free(p->ids);
    free(p->candidates);
    free(p);
}

static void end(struct prestart *p, enum grpc_status status, const char *text) {
    struct agent *a = p->agent;

    p->over = true;
    DL_DELETE(a->prestarts, p);
    if (status == GRPC_OK) {
        a->prestart_granted++;
        grpc_call_reply(p->call, (const uint8_t *) "", 0);
        usage_sweep(a);
    } else {
        a->prestart_refused++;
        if (grpc_call_is_live(p->call))
            log_warn("a container does not start: %s", text);
        grpc_call_finish(p->call, status, text);
    }
    uv_close((uv_handle_t *) &p->timer, on_timer_closed);
}

/* Goes as far as it can go now. */
static void advance(struct prestart *p) {
    bool waiting = false, denied = false, granted = false, late;

    if (!p->candidates && find_candidates(p, &p->why) < 0)
        waiting = true;
    for (size_t i = 0; i < p->ncandidates; i++) {
        struct candidate *c = &p->candidates[i];
        enum verdict v = c->granted ? VERDICT_GRANT : fill(p, c, &p->why);

        granted = granted || v == VERDICT_GRANT;
        waiting = waiting || v == VERDICT_WAIT;
        denied = denied || v == VERDICT_DENY || v == VERDICT_FORGED;
    }
    late = uv_now(p->agent->loop) >= p->until;
    /* A container that was not granted has no CDI file and does not start, whatever the others get.
     */
    if (granted && (!waiting || late))
        end(p, GRPC_OK, NULL);
    else if (late || (denied && !granted))
        end(p, GRPC_FAILED_PRECONDITION, p->why.text);
}

static void on_timer(uv_timer_t *timer) {
    struct prestart *p = timer->data;

    if (!grpc_call_is_live(p->call))
        end(p, GRPC_CANCELLED, "kubelet went away");
    else
        advance(p);
}

static void on_wake(uv_idle_t *idle) {
    struct agent *a = idle->data;
    struct prestart *p, *next;

    (void) uv_idle_stop(idle);
    DL_FOREACH_SAFE(a->prestarts, p, next)
        on_timer(&p->timer);
}

void prestart_wake(struct agent *a) {
    if (a->prestarts)
        (void) uv_idle_start(&a->wake, on_wake);
}

/* ---- the beginning ---- */

static bool copy_ids(struct prestart *p, const char *const *ids, size_t nids) {
    p->ids = calloc(nids + 1, sizeof(*p->ids));
    while (p->ids && p->nids < nids) {
        p->ids[p->nids] = strdup(ids[p->nids]);
        if (!p->ids[p->nids])
            return false;
        p->nids++;
    }
    return p->ids != NULL;
}

void prestart_begin(struct agent *a, struct grpc_call *call, const struct resource *resource,
                    const char *const *ids, size_t nids) {
    struct prestart *p = calloc(1, sizeof(*p));
    uint64_t left = grpc_call_time_left(call);

    if (!p) {
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    left = left > DEADLINE_MARGIN_MS ? left - DEADLINE_MARGIN_MS : 0;
    p->agent = a;
    p->call = call;
    p->resource = resource;
    p->began = uv_now(a->loop);
    p->until = p->began + (left < WAIT_MAX_MS ? left : WAIT_MAX_MS);
    (void) uv_timer_init(a->loop, &p->timer);
    p->timer.data = p;
    (void) uv_timer_start(&p->timer, on_timer, LOOK_MS, LOOK_MS);
    DL_APPEND(a->prestarts, p);
    if (!copy_ids(p, ids, nids))
        end(p, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    else
        advance(p);
}

void prestart_stop(struct agent *a) {
    struct prestart *p, *next;

    DL_FOREACH_SAFE(a->prestarts, p, next)
        end(p, GRPC_UNAVAILABLE, "the agent stops; kubelet will ask again");
}

size_t prestart_waiting(const struct agent *a) {
    const struct prestart *p;
    size_t n = 0;

    DL_COUNT(a->prestarts, p, n);
    return n;
}
