/* SPDX-License-Identifier: Apache-2.0 */

/* PreStartContainer. The request of kubelet has only a set of IDs. Its checkpoint shows which
 * containers have exactly that set (an init container and an app container with equal requests
 * share one) and the response to Allocate for each: the name of its own slot. All these slots are
 * filled before the response to kubelet. So no order, count or size is guessed, and no slot is
 * shared. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/backends/backend.h"
#include "agent/kubelet/checkpoint.h"
#include "agent/kubelet/kubelet.h"
#include "agent/kubelet/prestart.h"
#include "agent/shares/shares.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/step.h"
#include "base/text.h"
#include "wire/grpc_server.h"

#define WAIT_MAX_MS                                                                                \
    20000 /* kubelet's own deadline is 30 s; an error costs the pod 10 s, waiting does not */
#define CHECK_MS 250 /* interval of retries when no event triggers one */
#define ENTRIES_MAX 64

/* A container that has the set of IDs. */
struct candidate {
    char pod_uid[KUBE_UID_MAX];
    char container[KUBE_LABEL_MAX];
    char nonce[NONCE_LEN + 1];
    const struct resource *resource;
    size_t rank;                   /* of the resource */
    const struct resource *beside; /* of another back end, which the container has, too */
    bool companion;                /* another resource of ours carries this container's share */
    bool requested;                /* by the IDs of this call, which alone are kept */
    bool granted;
};

struct prestart {
    struct prestarts *all;
    struct grpc_call *call;
    const struct resource *resource;
    const char **ids; /* copies, sorted */
    size_t nids;
    struct candidate *candidates;
    size_t ncandidates;
    uint64_t began, until; /* loop time */
    uv_timer_t timer;
    bool over, polled;
    struct err why; /* what it waits for */
    struct prestart *prev, *next;
};

/* ---- which containers? ---- */

struct lookup {
    struct prestart *p;
    const struct kubelet *kubelet;
    struct candidate *list; /* all containers with any of our resources */
    size_t n, cap;
    bool failed;
};

static bool lookup_wanted(const char *resource, void *userdata) {
    const struct lookup *l = userdata;

    return kubelet_plugin(l->kubelet, kubelet_find(l->kubelet, resource)) != NULL;
}

static void lookup_add(const struct checkpoint_entry *e, void *userdata) {
    struct lookup *l = userdata;
    size_t rank = kubelet_find(l->kubelet, e->resource);
    const struct resource *r = plugin_resource(kubelet_plugin(l->kubelet, rank));
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
    *c = (struct candidate){.resource = r, .rank = rank};
    text_copy(c->pod_uid, sizeof(c->pod_uid), e->pod_uid);
    text_copy(c->container, sizeof(c->container), e->container);
    text_copy(c->nonce, sizeof(c->nonce), e->nonce);
    c->requested = r == l->p->resource && id_sets_equal(e->ids, e->nids, l->p->ids, l->p->nids);
}

/* Each back end gives what its own resources stand for. */
static bool has_carrier(const struct lookup *l, const struct candidate *c) {
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].resource->backend == c->resource->backend && l->list[i].rank < c->rank &&
            strcmp(l->list[i].pod_uid, c->pod_uid) == 0 &&
            strcmp(l->list[i].container, c->container) == 0)
            return true;
    return false;
}

/* A share and a whole device: each comes with its own driver files and environment. */
static const struct resource *find_beside(const struct lookup *l, const struct candidate *c) {
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].resource->backend != c->resource->backend &&
            strcmp(l->list[i].pod_uid, c->pod_uid) == 0 &&
            strcmp(l->list[i].container, c->container) == 0)
            return l->list[i].resource;
    return NULL;
}

static int find_candidates(struct prestart *p, struct err *err) {
    struct lookup l = {.p = p, .kubelet = p->all->kubelet};
    size_t n = 0;
    int r = checkpoint_read(kubelet_checkpoint_path(p->all->kubelet), lookup_wanted, lookup_add, &l,
                            err);

    if (r == 0 && l.failed)
        r = err_set(err, ENOMEM, "out of memory");
    for (size_t i = 0; i < l.n; i++) {
        step_end();
        l.list[i].companion = has_carrier(&l, &l.list[i]);
        l.list[i].beside = find_beside(&l, &l.list[i]);
    }
    for (size_t i = 0; i < l.n && n < ENTRIES_MAX; i++) {
        if (l.list[i].requested)
            l.list[n++] = l.list[i];
    }
    if (r == 0 && n > 0) {
        p->candidates = l.list;
        p->ncandidates = n;
        return 0;
    }
    free(l.list);
    return r < 0 ? r : err_set(err, EAGAIN, "kubelet's checkpoint has no container with these IDs");
}

static enum verdict fill(struct prestart *p, struct candidate *c, struct err *why) {
    const struct provision request = {.nonce = c->nonce,
                                      .pod_uid = c->pod_uid,
                                      .container = c->container,
                                      .companion = c->companion,
                                      .began = p->began,
                                      .polled = &p->polled};
    const struct backend_ids ids = {.resource = c->resource,
                                    .devices = kubelet_devices(p->all->kubelet),
                                    .ids = p->ids,
                                    .n = p->nids};
    enum verdict v;

    if (c->beside) {
        (void) err_set(why, EINVAL,
                       "container %s requests %s and %s: a share and a whole device are not for "
                       "one container; request them in two",
                       c->container, c->resource->name, c->beside->name);
        return VERDICT_DENY;
    }
    v = c->resource->backend->prepare(p->all->shares, &ids, &request, why);
    c->granted = v == VERDICT_GRANT;
    return v;
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
    struct prestarts *all = p->all;

    p->over = true;
    DL_DELETE(all->list, p);
    if (status == GRPC_OK) {
        all->granted++;
        grpc_call_reply(p->call, (const uint8_t *) "", 0);
        all->on_granted(all->userdata);
    } else {
        all->refused++;
        if (grpc_call_is_live(p->call))
            log_warn("a container does not start: %s", text);
        grpc_call_finish(p->call, status, text);
    }
    uv_close((uv_handle_t *) &p->timer, on_timer_closed);
}

/* Goes as far as it can go now. */
static void advance(struct prestart *p) {
    bool waiting = false, denied = false, granted = false, late;

    if (p->all->blocker) {
        (void) err_set(&p->why, EAGAIN, "%s", p->all->blocker);
        waiting = true;
    } else if (!p->candidates && find_candidates(p, &p->why) < 0) {
        waiting = true;
    }
    for (size_t i = 0; i < p->ncandidates; i++) {
        struct candidate *c = &p->candidates[i];
        enum verdict v;

        step_end();
        v = c->granted ? VERDICT_GRANT : fill(p, c, &p->why);

        granted = granted || v == VERDICT_GRANT;
        waiting = waiting || v == VERDICT_WAIT;
        denied = denied || v == VERDICT_DENY || v == VERDICT_FORGED;
    }
    late = uv_now(p->all->shares->loop) >= p->until;
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
    struct prestarts *all = idle->data;
    struct prestart *p, *next;

    (void) uv_idle_stop(idle);
    DL_FOREACH_SAFE(all->list, p, next)
        on_timer(&p->timer);
}

void prestart_init(struct prestarts *all) {
    (void) uv_idle_init(all->shares->loop, &all->wake);
    all->wake.data = all;
}

void prestart_wake(struct prestarts *all) {
    if (all->list)
        (void) uv_idle_start(&all->wake, on_wake);
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

void prestart_begin(struct prestarts *all, struct grpc_call *call, const struct resource *resource,
                    const char *const *ids, size_t nids) {
    struct prestart *p = calloc(1, sizeof(*p));

    if (!p) {
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    p->all = all;
    p->call = call;
    p->resource = resource;
    p->began = uv_now(all->shares->loop);
    p->until = grpc_call_until(call, p->began, WAIT_MAX_MS);
    (void) uv_timer_init(all->shares->loop, &p->timer);
    p->timer.data = p;
    (void) uv_timer_start(&p->timer, on_timer, CHECK_MS, CHECK_MS);
    DL_APPEND(all->list, p);
    if (!copy_ids(p, ids, nids))
        end(p, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    else
        prestart_wake(all); /* not below other work, which may be in the middle of the shares */
}

void prestart_stop(struct prestarts *all) {
    struct prestart *p, *next;

    DL_FOREACH_SAFE(all->list, p, next)
        end(p, GRPC_UNAVAILABLE, "the agent stops; kubelet will ask again");
}

size_t prestart_waiting(const struct prestarts *all) {
    const struct prestart *p;
    size_t n = 0;

    DL_COUNT(all->list, p, n);
    return n;
}
