/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/kubelet.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "agent/backends/backend.h"
#include "agent/kubelet/checkpoint.h"
#include "agent/kubelet/plugin_messages.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/step.h"
#include "gpu/device.h"

#define CHECK_MS 1000   /* for changes that inotify does not report */
#define SERVE_NS 100000 /* between two readings of kubelet's calls below other work */
#define SEARCH_MS 20    /* while the directory is not there */
#define DIR_MAX 64      /* leaves room for our sockets' names in the 107 bytes of a socket's path */

struct kubelet {
    uv_loop_t *loop;
    struct kubelet_options options;
    char dir[80]; /* <kubelet>/device-plugins */
    char checkpoint[128];
    uv_fs_event_t watch;
    bool watching;
    ino_t watched; /* inode of the directory that is watched */
    uv_timer_t timer;
    uv_prepare_t prepare;
    struct prom_histogram waits;
    uint64_t served_ns; /* CPU time at which its calls were read last */
    struct plugin *plugins[KUBELET_PLUGINS_MAX];
    size_t nplugins;
    uint64_t socket;  /* identity of kubelet's socket, 0: not there */
    uint64_t devices; /* hash of what kubelet should have */
    bool unsaid;      /* not yet sent by every plugin */
    bool held_anew;   /* what containers have can have changed since */
    unsigned closing;
    struct on_closed on_closed;
};

static void check_plugins(struct kubelet *k);

/* ---- IDs ---- */

struct held {
    const struct kubelet *kubelet;
    const struct resource *resource;
    const struct gpu_snapshot *devices;
    bool *ids, *of_unhealthy; /* the latter: those of them that are of unhealthy devices */
    uint32_t count;
};

static bool held_wanted(const char *resource, void *userdata) {
    const struct held *h = userdata;

    return strcmp(h->resource->name, resource) == 0;
}

static void held_mark(const struct checkpoint_entry *e, void *userdata) {
    struct held *h = userdata;
    const struct kubelet_options *options = &h->kubelet->options;
    uint32_t percent = options->handlers->unhealthy_percent
                           ? options->handlers->unhealthy_percent(e, options->userdata)
                           : 0;
    size_t unhealthy = (e->nids * percent + 99) / 100;

    if (options->handlers->has_ended && options->handlers->has_ended(e, options->userdata))
        return;
    /* An init container's IDs are those of its pod's containers, too: each counts once. */
    for (size_t i = 0; i < e->nids; i++) {
        uint32_t n = h->resource->backend->number(h->resource, h->devices, e->ids[i]);

        if (n >= h->count)
            continue;
        h->ids[n] = true;
        h->of_unhealthy[n] |= i < unhealthy;
    }
}

static uint32_t count_true(const bool *list, uint32_t count) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += list[i];
    return n;
}

static int set_list(struct kubelet *k, struct plugin *p, const struct gpu_snapshot *s, bool sick) {
    const struct resource *r = plugin_resource(p);
    struct held h = {.kubelet = k, .resource = r, .devices = s, .count = r->backend->list(r, s)};
    _cleanup_buf_ struct buf list = BUF_INIT(RESOURCE_MESSAGE_MAX);
    _cleanup_free_ bool *lists = NULL;
    bool *unhealthy = NULL;

    if (sick) {
        h.ids = lists = calloc((size_t) h.count + 1, 3 * sizeof(bool));
        if (!lists)
            return -ENOMEM;
        h.of_unhealthy = h.ids + h.count;
        unhealthy = h.of_unhealthy + h.count;
        (void) checkpoint_read(k->checkpoint, held_wanted, held_mark, &h, NULL);
        r->backend->health(
            r, s, &(struct backend_held){h.count, h.ids, count_true(h.of_unhealthy, h.count)},
            unhealthy);
    }
    message_list(r, s, h.count, unhealthy, &list);
    return buf_error(&list) < 0 ? buf_error(&list) : plugin_set_list(p, h.count, &list);
}

static uint64_t hash_of(const struct gpu_snapshot *s, bool known) {
    uint64_t hash = hash_bytes(HASH_START, &known, sizeof(known));

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        bool takes = gpu_takes_pods(d);

        hash = hash_bytes(hash, d->uuid, strlen(d->uuid) + 1);
        hash = hash_bytes(hash, d->parent, strlen(d->parent) + 1);
        hash = hash_bytes(hash, d->mig.profile, strlen(d->mig.profile) + 1);
        hash = hash_bytes(hash, &d->mig.gi_slices, sizeof(d->mig.gi_slices));
        hash = hash_bytes(hash, &d->mig.ci_slices, sizeof(d->mig.ci_slices));
        hash = hash_bytes(hash, &d->kind, sizeof(d->kind));
        hash = hash_bytes(hash, &d->links.known, sizeof(d->links.known));
        hash = hash_bytes(hash, &d->links.numa, sizeof(d->links.numa));
        hash = hash_bytes(hash, &d->divided, sizeof(d->divided));
        hash = hash_bytes(hash, &d->offer, sizeof(d->offer));
        hash = hash_bytes(hash, &takes, sizeof(takes));
    }
    return hash;
}

void kubelet_held_changed(struct kubelet *k) {
    k->held_anew = true;
}

void kubelet_update(struct kubelet *k, bool known) {
    const struct gpu_snapshot *s = kubelet_devices(k);
    uint64_t hash = hash_of(s, known);
    uint32_t sick = 0;
    int r;

    for (uint32_t i = 0; i < s->ndevices && known; i++)
        sick += !gpu_takes_pods(&s->devices[i]);
    /* While a device is unhealthy the list depends on what containers have, too. */
    if (k->devices == hash && !k->unsaid && !(sick > 0 && k->held_anew))
        return;
    k->devices = hash;
    k->unsaid = k->held_anew = false;
    for (size_t i = 0; i < k->nplugins; i++) {
        step_end();
        r = set_list(k, k->plugins[i], s, sick > 0);
        if (r >= 0)
            continue;
        k->unsaid = true;
        log_warn("the list of %s is not sent to kubelet (%u devices, %u of them unhealthy), it is "
                 "tried again at the next poll: %s",
                 plugin_resource(k->plugins[i])->name, s->ndevices, sick, strerror(-r));
    }
    check_plugins(k);
}

/* ---- the directory ---- */

/* A restarted kubelet creates a new socket; its creation time distinguishes it from one with the
 * same inode. */
static uint64_t socket_identity(const struct kubelet *k) {
    char path[128];
    struct stat st;

    (void) snprintf(path, sizeof(path), "%s/kubelet.sock", k->dir);
    if (stat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return 0;
    return ((uint64_t) st.st_ino << 32 ^ (uint64_t) st.st_ctim.tv_sec * 1000000000u ^
            (uint64_t) st.st_ctim.tv_nsec) |
           1;
}

static void on_event(uv_fs_event_t *watch, const char *name, int events, int status) {
    struct kubelet *k = watch->data;

    (void) events;
    (void) status;
    if (name && strcmp(name, CHECKPOINT_FILE) == 0) {
        k->held_anew = true;
        k->options.handlers->on_checkpoint(k->options.userdata);
    } else {
        check_plugins(k);
    }
}

static void unwatch(struct kubelet *k) {
    if (k->watching)
        (void) uv_fs_event_stop(&k->watch);
    k->watching = false;
}

/* Sockets that a former agent left behind when it was killed: no process listens on them. */
static void remove_stale(const char *dir) {
    _cleanup_closedir_ DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -1;
        int n;

        if (strncmp(e->d_name, "aliquot-", 8) != 0)
            continue;
        n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir, e->d_name);
        if (n < 0 || (size_t) n >= sizeof(address.sun_path))
            continue;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0 &&
            errno == ECONNREFUSED)
            (void) unlink(address.sun_path);
    }
}

/* True when the directory is there and watched. Another directory of the same name needs another
 * watch. */
static bool ensure_watch(struct kubelet *k) {
    struct stat st;

    if (stat(k->dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
        unwatch(k);
        return false;
    }
    if (st.st_nlink == 0) {
        unwatch(k);
        k->options.handlers->on_detached(k->options.userdata);
        return false;
    }
    if (k->watching && st.st_ino == k->watched)
        return true;
    unwatch(k);
    remove_stale(k->dir);
    if (uv_fs_event_start(&k->watch, on_event, k->dir, 0) < 0)
        return false;
    k->watching = true;
    k->watched = st.st_ino;
    return true;
}

static void on_timer(uv_timer_t *timer) {
    check_plugins(timer->data);
}

static void check_plugins(struct kubelet *k) {
    unsigned next = CHECK_MS;
    bool there = ensure_watch(k);

    k->socket = there ? socket_identity(k) : 0;
    for (size_t i = 0; i < k->nplugins; i++)
        plugin_note_stream(k->plugins[i]);
    for (size_t i = 0; i < k->nplugins && there; i++) {
        unsigned wait = plugin_check(k->plugins[i], k->socket);

        if (wait > 0 && wait < next)
            next = wait;
    }
    (void) uv_timer_start(&k->timer, on_timer, there ? next : SEARCH_MS, 0);
}

/* ---- between the steps of other work ---- */

static void note_wait(struct kubelet *k) {
    uint64_t now = clock_ns(CLOCK_THREAD_CPUTIME_ID);

    prom_observe(&k->waits, now - k->served_ns);
    k->served_ns = now;
}

/* The loop reads all sockets next. */
static void on_prepare(uv_prepare_t *prepare) {
    note_wait(prepare->data);
}

static void serve(void *userdata) {
    struct kubelet *k = userdata;

    note_wait(k);
    for (size_t i = 0; i < k->nplugins; i++)
        plugin_serve(k->plugins[i]);
}

static void start_serving(struct kubelet *k) {
    (void) uv_prepare_init(k->loop, &k->prepare);
    k->prepare.data = k;
    k->served_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    (void) uv_prepare_start(&k->prepare, on_prepare);
    step_set_urgent(serve, k, SERVE_NS);
}

const struct prom_histogram *kubelet_waits(const struct kubelet *k) {
    return &k->waits;
}

/* ---- life ---- */

static void on_plugin_due(struct plugin *p, void *userdata) {
    struct kubelet *k = userdata;

    (void) p;
    if (k->closing == 0)
        (void) uv_timer_start(&k->timer, on_timer, 1, 0);
}

static void on_plugin_state(struct plugin *p, bool registered, const char *why, void *userdata) {
    struct kubelet *k = userdata;

    k->options.handlers->on_state(plugin_resource(p), registered, why, k->options.userdata);
    /* A stream that ended wants a new registration; not from inside the server's callback. */
    if (!registered)
        on_plugin_due(p, k);
}

static void on_allocated(const char *const *ids, size_t nids, void *userdata) {
    const struct kubelet *k = userdata;

    if (k->options.handlers->on_allocated)
        k->options.handlers->on_allocated(ids, nids, k->options.userdata);
}

static void on_prestart(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata) {
    struct kubelet *k = userdata;

    k->options.handlers->on_prestart(call, resource, ids, nids, k->options.userdata);
}

const struct gpu_snapshot *kubelet_devices(const struct kubelet *k) {
    return k->options.handlers->devices(k->options.userdata);
}

static const struct gpu_snapshot *devices(void *userdata) {
    return kubelet_devices(userdata);
}

int kubelet_add(struct kubelet *k, const struct resource *r) {
    struct plugin_options options = {
        .resource = r,
        .dir = k->dir,
        .guard = k->options.guard,
        .devices = devices,
        .on_allocated = on_allocated,
        .on_prestart = on_prestart,
        .on_state = on_plugin_state,
        .on_due = on_plugin_due,
        .userdata = k,
    };
    int result;

    if (!backend_is_whole(r))
        return -EINVAL;
    for (size_t i = 0; i < k->nplugins; i++)
        if (strcmp(plugin_resource(k->plugins[i])->name, r->name) == 0 ||
            strcmp(plugin_resource(k->plugins[i])->socket, r->socket) == 0)
            return -EEXIST;
    if (k->nplugins == KUBELET_PLUGINS_MAX)
        return -ENOSPC;
    result = plugin_new(k->loop, &options, &k->plugins[k->nplugins]);
    if (result < 0)
        return result;
    k->nplugins++;
    k->unsaid = true; /* of its list */
    return 0;
}

void kubelet_rows_changed(struct kubelet *k) {
    k->unsaid = true;
}

static int add_table(struct kubelet *k) {
    int r = 0;

    for (size_t i = 0; i < resources_count && r == 0; i++)
        r = kubelet_add(k, &resources[i]);
    return r;
}

int kubelet_start(uv_loop_t *loop, const struct kubelet_options *options, struct kubelet **ret,
                  struct err *err) {
    struct kubelet *k = calloc(1, sizeof(*k));
    int r;

    if (!k)
        return err_set(err, ENOMEM, "out of memory");
    k->loop = loop;
    k->options = *options;
    if (snprintf(k->dir, sizeof(k->dir), "%s/device-plugins", options->dir) > DIR_MAX) {
        free(k);
        return err_set(err, ENAMETOOLONG,
                       "kubelet's directory %s: sockets below it would exceed 107 bytes",
                       options->dir);
    }
    (void) snprintf(k->checkpoint, sizeof(k->checkpoint), "%s/" CHECKPOINT_FILE, k->dir);
    r = add_table(k);
    if (r < 0) {
        for (size_t i = 0; i < k->nplugins; i++)
            free(k->plugins[i]);
        free(k);
        return err_set(err, -r, "cannot make the device plugins");
    }
    (void) uv_fs_event_init(loop, &k->watch);
    (void) uv_timer_init(loop, &k->timer);
    k->watch.data = k;
    k->timer.data = k;
    start_serving(k);
    check_plugins(k);
    *ret = k;
    return 0;
}

static void on_part_closed(void *userdata) {
    struct kubelet *k = userdata;

    if (--k->closing == 0)
        on_closed_free(&k->on_closed, k);
}

static void on_handle_closed(uv_handle_t *handle) {
    on_part_closed(handle->data);
}

void kubelet_close(struct kubelet *k, void (*on_closed)(void *userdata), void *userdata) {
    k->on_closed = (struct on_closed){on_closed, userdata};
    k->closing = (unsigned) k->nplugins + 3;
    step_set_urgent(NULL, NULL, 0);
    uv_close((uv_handle_t *) &k->prepare, on_handle_closed);
    uv_close((uv_handle_t *) &k->watch, on_handle_closed);
    uv_close((uv_handle_t *) &k->timer, on_handle_closed);
    for (size_t i = 0; i < k->nplugins; i++)
        plugin_close(k->plugins[i], on_part_closed, k);
}

const char *kubelet_checkpoint_path(const struct kubelet *k) {
    return k->checkpoint;
}

/* A resource without devices is not offered, so kubelet does not have to take it. */
bool kubelet_is_served(const struct kubelet *k) {
    struct plugin_stats stats;
    bool served = false;

    for (size_t i = 0; i < k->nplugins; i++) {
        plugin_stats(k->plugins[i], &stats);
        if (stats.ids == 0)
            continue;
        if (!plugin_is_served(k->plugins[i]))
            return false;
        served = true;
    }
    return served && !k->unsaid;
}

bool kubelet_is_there(const struct kubelet *k) {
    return k->socket != 0;
}

const struct plugin *kubelet_plugin(const struct kubelet *k, size_t i) {
    return i < k->nplugins ? k->plugins[i] : NULL;
}

size_t kubelet_find(const struct kubelet *k, const char *resource) {
    size_t i = 0;

    while (i < k->nplugins && strcmp(plugin_resource(k->plugins[i])->name, resource) != 0)
        i++;
    return i;
}
