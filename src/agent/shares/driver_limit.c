/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/driver_limit.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/os/cgroup.h"
#include "agent/shares/shares.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text.h"

#define FIRST_BRANCH 615 /* of the driver, with limits of control groups */
#define NO_LIMIT UINT64_MAX
#define CHECK_MS 5000   /* interval between checks that the limit is unchanged */
#define REFUSED_MS 5000 /* until a refused one is asked for again, where use has not fallen */

struct driver_limit_card {
    char uuid[GPU_UUID_MAX];
    bool pending;      /* asked, and not answered */
    bool refused;      /* the last answer */
    uint64_t wanted;   /* bytes that were asked for last; 0: never asked */
    uint64_t set;      /* bytes that the driver has confirmed; 0: none */
    uint64_t use;      /* what the container held when the limit was refused */
    uint64_t asked_ms; /* loop time */
    char why[ERR_TEXT_MAX];
};

/* One container. */
struct driver_limit {
    struct shares *shares;
    char nonce[NONCE_LEN + 1];
    char container[65];
    char directory[512]; /* of its control group, in the agent's view */
    bool ending;         /* its group is empty: the limits are taken away */
    bool watched;
    uv_fs_event_t events; /* of cgroup.events; its data is the driver_limit */
    struct driver_limit *prev, *next;
    uint32_t ncards;
    struct driver_limit_card cards[];
};

static void report_progress(struct shares *s) {
    if (s->driver_limits.on_progress)
        s->driver_limits.on_progress(s);
}

static struct driver_limit *find_limit(const struct shares *s, const struct slot *slot) {
    struct driver_limit *w;

    DL_FOREACH(s->driver_limits.list, w)
        if (!w->ending && strcmp(w->nonce, slot->nonce) == 0)
            return w;
    return NULL;
}

bool driver_limit_possible(const struct shares *s) {
    const char *version = gpu_monitor_snapshot(s->monitor)->driver_version;
    char branch[4] = "";
    uint64_t n;

    (void) snprintf(branch, sizeof(branch), "%.*s", (int) strcspn(version, "."), version);
    return s->options.driver_limits != DRIVER_LIMIT_OFF &&
           s->driver_limits.driver != DRIVER_LIMIT_NONE && num_parse_u64(branch, 999, &n) == 0 &&
           n >= FIRST_BRANCH;
}

/* ---- the note for the next agent ---- */

static void note_path(const struct shares *s, const char *nonce, char ret[static 384]) {
    slot_path(&s->slots, nonce, "group", ret);
}

static void write_note(const struct driver_limit *w) {
    char path[384];
    struct err err;

    note_path(w->shares, w->nonce, path);
    if (file_replace(path, w->directory, strlen(w->directory), 0600, &err) < 0)
        log_warn("a restarted agent will not know this container's control group: %s", err.text);
}

static void remove_note(const struct driver_limit *w) {
    char path[384];

    note_path(w->shares, w->nonce, path);
    (void) unlink(path);
}

/* ---- the end of a group ---- */

static void on_events_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void driver_limit_free(struct driver_limit *w) {
    DL_DELETE(w->shares->driver_limits.list, w);
    if (w->watched)
        uv_close((uv_handle_t *) &w->events, on_events_closed);
    else
        free(w);
}

/* False when the group is gone or empty; true when it cannot be read for another reason, such as a
 * lack of descriptors. */
static bool is_populated(const struct driver_limit *w) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    char path[544];
    int r;

    (void) snprintf(path, sizeof(path), "%s/cgroup.events", w->directory);
    r = file_read(path, 4000, &text, NULL);
    return r < 0 ? r != -ENOENT && r != -ENODEV : !strstr(buf_str(&text), "populated 0");
}

static void request_limit(struct driver_limit *w, struct driver_limit_card *c, uint64_t bytes) {
    struct shares *s = w->shares;

    if (gpu_monitor_limit(s->monitor, c->uuid, w->directory, bytes) < 0)
        return;
    c->pending = true;
    c->wanted = bytes;
    c->asked_ms = uv_now(s->loop);
}

/* With the group the limit is out of reach. */
static void leave(const struct driver_limit *w, struct driver_limit_card *c) {
    log_warn("the limit of %s on GPU %s was not taken away before the group was: where the driver "
             "keeps limits itself, a later control group may be held to it",
             w->directory, c->uuid);
    c->set = 0;
    w->shares->driver_limits.left++;
}

/* Takes the limits away as long as the group is there. */
static void go_on_ending(struct driver_limit *w) {
    bool there = access(w->directory, F_OK) == 0, more = false;

    for (uint32_t i = 0; i < w->ncards; i++) {
        struct driver_limit_card *c = &w->cards[i];

        /* A request that is under way may have been in time. */
        if (c->set > 0 && !c->pending && there)
            request_limit(w, c, NO_LIMIT);
        else if (c->set > 0 && !c->pending)
            leave(w, c);
        more |= c->set > 0;
    }
    if (!more)
        driver_limit_free(w);
}

static void begin_ending(struct driver_limit *w) {
    if (w->ending)
        return;
    w->ending = true;
    remove_note(w);
    for (uint32_t i = 0; i < w->ncards; i++) {
        struct driver_limit_card *c = &w->cards[i];

        /* What was never asked for may be an earlier agent's. Requests keep their order: the answer
         * to one that is under way counts no more. */
        if (c->pending || c->wanted == 0)
            c->set = NO_LIMIT;
        c->pending = false;
        c->wanted = NO_LIMIT;
    }
    go_on_ending(w);
}

static void on_events(uv_fs_event_t *handle, const char *name, int events, int status) {
    struct driver_limit *w = handle->data;

    (void) name, (void) events, (void) status;
    if (!is_populated(w))
        begin_ending(w);
}

static void watch_cgroup(struct driver_limit *w) {
    char path[544];

    (void) snprintf(path, sizeof(path), "%s/cgroup.events", w->directory);
    w->watched = access(path, F_OK) == 0 && uv_fs_event_init(w->shares->loop, &w->events) == 0;
    w->events.data = w;
    if (w->watched && uv_fs_event_start(&w->events, on_events, path, 0) < 0)
        log_warn("the end of %s will not be seen", w->directory);
}

/* ---- the beginning ---- */

static struct driver_limit *driver_limit_new(struct shares *s, const struct slot *slot,
                                             const char *container, const char *directory) {
    uint32_t n = slot->grant.ndevices;
    struct driver_limit *w = calloc(1, sizeof(*w) + n * sizeof(w->cards[0]));

    if (!w)
        return NULL;
    w->shares = s;
    w->ncards = n;
    text_copy(w->nonce, sizeof(w->nonce), slot->nonce);
    text_copy(w->container, sizeof(w->container), container);
    text_copy(w->directory, sizeof(w->directory), directory);
    for (uint32_t i = 0; i < n; i++)
        text_copy(w->cards[i].uuid, sizeof(w->cards[i].uuid), slot->grant.devices[i].uuid);
    DL_APPEND(s->driver_limits.list, w);
    watch_cgroup(w);
    return w;
}

/* Our own limit is to be met first, since it is refused without a trace, and the driver takes a
 * little for itself before we know. A whole card is limited, too: without a limit of its own the
 * group may find one that was another's. */
static uint64_t wanted(const struct shares *s, const struct slot *slot, uint32_t at) {
    const struct slot_device *d = &slot->grant.devices[at];
    const struct gpu_device *card = gpu_find_card(gpu_monitor_snapshot(s->monitor), d->uuid);
    uint64_t limit = slot_memory_now(&slot->grant, at);

    if (d->physical < limit)
        limit = d->physical;
    limit += AUDIT_MEMORY_SLACK;
    return card && limit > card->memory ? card->memory : limit;
}

static bool is_due(const struct shares *s, const struct driver_limit_card *c,
                   const struct slot_device *d, uint64_t bytes) {
    uint64_t age = uv_now(s->loop) - c->asked_ms;

    if (c->pending)
        return false;
    if (c->wanted != bytes)
        return true;
    return c->refused ? d->driver_memory < c->use || age >= REFUSED_MS : age >= CHECK_MS;
}

/* The driver limits no control group on a card in MIG mode. */
static bool is_instance(const struct shares *s, const char *uuid) {
    const struct gpu_device *d = gpu_find(gpu_monitor_snapshot(s->monitor), uuid);

    return d && gpu_is_part(d);
}

static void bring_up_to_date(struct driver_limit *w, const struct slot *slot) {
    for (uint32_t i = 0; i < w->ncards && i < slot->grant.ndevices; i++) {
        uint64_t bytes = wanted(w->shares, slot, i);

        if (!is_instance(w->shares, w->cards[i].uuid) &&
            is_due(w->shares, &w->cards[i], &slot->grant.devices[i], bytes))
            request_limit(w, &w->cards[i], bytes);
    }
}

int driver_limit_begin(struct shares *s, struct slot *slot, int pid, struct err *err) {
    struct driver_limit *w = find_limit(s, slot);
    struct cgroup_id id;
    char directory[512];

    if (slot->grant.claim)
        return err_set(err, EOPNOTSUPP, "the share of a ResourceClaim has no limit of the driver");
    if (cgroup_of_pid(pid, &id) != 1 || strcmp(id.pod_uid, slot->grant.pod_uid) != 0 ||
        !id.container_id[0])
        return err_set(err, EPERM,
                       "process %d is in no container of pod %s/%s (is the agent in "
                       "the host's PID namespace?)",
                       pid, slot->grant.namespace, slot->grant.pod);
    if (w && strcmp(w->container, id.container_id) == 0)
        return 0;
    if (cgroup_directory(pid, &id, s->options.host_root, directory, sizeof(directory)) < 0)
        return err_set(err, ENOENT, "the container has no control group of the second version");
    if (w)
        begin_ending(w);
    w = driver_limit_new(s, slot, id.container_id, directory);
    if (!w)
        return err_set(err, ENOMEM, "out of memory");
    write_note(w);
    bring_up_to_date(w, slot);
    return 0;
}

void driver_limit_end(struct shares *s, const struct slot *slot) {
    struct driver_limit *w = find_limit(s, slot);

    if (w)
        begin_ending(w);
}

/* ---- what there is ---- */

enum driver_limit_progress driver_limit_progress(const struct shares *s, const struct slot *slot,
                                                 struct err *why) {
    const struct driver_limit *w = find_limit(s, slot);
    enum driver_limit_progress progress = DRIVER_LIMIT_SET;

    if (s->driver_limits.driver == DRIVER_LIMIT_NONE || !w) {
        (void) err_set(why, ENOTSUP, "the driver has no limits for control groups");
        return DRIVER_LIMIT_REFUSED;
    }
    for (uint32_t i = 0; i < w->ncards; i++) {
        const struct driver_limit_card *c = &w->cards[i];

        if (c->pending || c->wanted == 0) {
            progress = DRIVER_LIMIT_ASKED;
        } else if (c->refused) {
            (void) err_set(why, EIO, "GPU %s: %s", c->uuid, c->why);
            return DRIVER_LIMIT_REFUSED;
        }
    }
    return progress;
}

uint64_t driver_limit_bytes(const struct shares *s, const struct slot *slot, uint32_t at) {
    const struct driver_limit *w = find_limit(s, slot);

    return w && at < w->ncards ? w->cards[at].set : 0;
}

/* ---- the driver ---- */

/* Requests without an answer were dropped: all limits are requested again. */
static void forget_requests(struct shares *s) {
    struct driver_limit *w;

    DL_FOREACH(s->driver_limits.list, w)
        for (uint32_t i = 0; i < w->ncards; i++) {
            w->cards[i].pending = false;
            if (w->ending)
                continue;
            w->cards[i].wanted = 0;
        }
}

/* Perhaps another driver version: no limit is known to be set. */
static void forget_driver(struct shares *s) {
    struct driver_limit *w;

    s->driver_limits.driver = DRIVER_LIMIT_UNKNOWN;
    forget_requests(s);
    DL_FOREACH(s->driver_limits.list, w)
        for (uint32_t i = 0; !w->ending && i < w->ncards; i++)
            w->cards[i].set = 0;
}

void driver_limit_update(struct shares *s) {
    struct gpu_monitor_status status;
    struct driver_limit *w, *next;

    gpu_monitor_status(s->monitor, &status);
    if (status.restarts != s->driver_limits.restarts)
        forget_driver(s);
    else if (status.limit_generation != s->driver_limits.generation)
        forget_requests(s);
    s->driver_limits.restarts = status.restarts;
    s->driver_limits.generation = status.limit_generation;
    DL_FOREACH_SAFE(s->driver_limits.list, w, next)
        if (w->ending)
            go_on_ending(w);
    if (!driver_limit_possible(s)) {
        report_progress(s);
        return;
    }
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        if (slot->grant.newer)
            continue;
        w = find_limit(s, slot);
        if (w && (slot->grant.claim || !is_populated(w)))
            begin_ending(w);
        else if (w)
            bring_up_to_date(w, slot);
        for (uint32_t i = 0; !w && i < slot->grant.ndevices; i++)
            if (slot->grant.devices[i].worst_pid > 0 &&
                driver_limit_begin(s, slot, (int) slot->grant.devices[i].worst_pid, NULL) == 0)
                break;
    }
    report_progress(s);
}

static struct driver_limit_card *find_card(struct shares *s, const struct gpu_limit_answer *answer,
                                           struct driver_limit **ret) {
    struct driver_limit *w;

    DL_FOREACH(s->driver_limits.list, w)
        for (uint32_t i = 0; strcmp(w->directory, answer->cgroup) == 0 && i < w->ncards; i++)
            if (strcmp(w->cards[i].uuid, answer->uuid) == 0 &&
                w->cards[i].wanted == answer->bytes) {
                *ret = w;
                return &w->cards[i];
            }
    return NULL;
}

static void take_answer(struct shares *s, struct driver_limit *w, struct driver_limit_card *c,
                        const struct gpu_limit_answer *answer) {
    char had[24], set[24];

    c->pending = false;
    if (w->ending) {
        if (answer->result == GPU_LIMIT_SET)
            c->set = 0;
        else
            leave(w, c);
        go_on_ending(w);
        return;
    }
    if (answer->result == GPU_LIMIT_SET) {
        if (c->set == answer->bytes && answer->before != answer->bytes)
            log_warn("another program had limited %s to %s of GPU %s; it is %s again", w->directory,
                     num_format_bytes(answer->before, had), c->uuid,
                     num_format_bytes(answer->bytes, set));
        c->set = answer->bytes;
        c->refused = false;
        return;
    }
    if (!c->refused && answer->result == GPU_LIMIT_REFUSED)
        log_warn("the driver does not limit %s to %s of GPU %s: %s", w->directory,
                 num_format_bytes(answer->bytes, set), c->uuid, answer->text);
    c->refused = true;
    text_copy(c->why, sizeof(c->why), answer->text);
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; strcmp(slot->nonce, w->nonce) == 0 && i < slot->grant.ndevices; i++)
            if (strcmp(slot->grant.devices[i].uuid, c->uuid) == 0)
                c->use = slot->grant.devices[i].driver_memory;
}

void driver_limit_answer(struct shares *s, const struct gpu_limit_answer *answer) {
    struct driver_limit *w;
    struct driver_limit_card *c = find_card(s, answer, &w);

    if (answer->result == GPU_LIMIT_UNSUPPORTED && s->driver_limits.driver != DRIVER_LIMIT_NONE) {
        log_info("the driver does not limit control groups (that takes version 615, cgroup v2 and "
                 "no MIG): the library's limits stand alone");
        s->driver_limits.driver = DRIVER_LIMIT_NONE;
    } else if (answer->result == GPU_LIMIT_SET && s->driver_limits.driver != DRIVER_LIMIT_BUILT) {
        log_info("the driver limits control groups: its own limits stand behind ours");
        s->driver_limits.driver = DRIVER_LIMIT_BUILT;
    }
    if (c)
        take_answer(s, w, c, answer);
    report_progress(s);
}

/* ---- start and end ---- */

/* The container that an earlier agent has limited. */
static void restore(struct shares *s, const struct slot *slot) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    char path[384], line[520];
    struct cgroup_id id;
    struct driver_limit *w;

    note_path(s, slot->nonce, path);
    if (file_read(path, 500, &text, NULL) < 0)
        return;
    (void) snprintf(line, sizeof(line), "0::%s", buf_str(&text));
    if (cgroup_parse(line, strlen(line), &id) != 1)
        return;
    w = driver_limit_new(s, slot, id.container_id, buf_str(&text));
    if (w && (s->options.driver_limits == DRIVER_LIMIT_OFF || !is_populated(w)))
        begin_ending(w);
}

void driver_limit_restore(struct shares *s) {
    for (const struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        restore(s, slot);
}

void driver_limit_forget(struct shares *s) {
    struct driver_limit *w, *next;

    DL_FOREACH_SAFE(s->driver_limits.list, w, next)
        driver_limit_free(w);
}
