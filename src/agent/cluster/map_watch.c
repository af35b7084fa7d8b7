/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/map_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "kube/api/reflector.h"

struct map_watch {
    void (*on_change)(void *userdata);
    void *userdata;
    struct kube_reflector *reflector;
    struct map_entries entries;
    bool exists, seen; /* seen: by the list that is under way */
    bool listed;       /* a list has ended: what exists is known */
    char trouble[256];
    char name[320];
};

static void clear(struct map_watch *w) {
    for (size_t i = 0; i < w->entries.n; i++) {
        free(w->entries.names[i]);
        free(w->entries.texts[i]);
    }
    w->entries.n = 0;
}

static void change(struct map_watch *w) {
    if (w->listed)
        w->on_change(w->userdata);
}

/* What is left out for lack of memory is missing, as if it were not in the ConfigMap. */
static void read_entries(struct map_watch *w, struct json data) {
    struct map_entries *e = &w->entries;
    struct json_iter it = json_iter(data);
    struct json value;
    const char *name;

    clear(w);
    while (e->n < MAP_ENTRIES_MAX && json_next(&it, &name, &value)) {
        const char *text = json_string(value);

        if (!name || !text)
            continue;
        e->names[e->n] = strdup(name);
        e->texts[e->n] = strdup(text);
        e->n++;
        if (e->names[e->n - 1] && e->texts[e->n - 1])
            continue;
        e->n--;
        free(e->names[e->n]);
        free(e->texts[e->n]);
    }
}

static void on_sync_begin(void *userdata) {
    struct map_watch *w = userdata;

    w->seen = false;
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    struct map_watch *w = userdata;

    w->exists = w->seen = event != KUBE_DELETED;
    if (w->exists)
        read_entries(w, json_get(object, "data"));
    else
        clear(w);
    change(w);
}

static void on_sync_end(void *userdata) {
    struct map_watch *w = userdata;

    w->listed = true;
    w->exists = w->seen;
    if (!w->exists)
        clear(w);
    change(w);
}

/* What is known stays so while the API server is away. */
static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    struct map_watch *w = userdata;

    (void) retry_ms;
    if (w->listed || strncmp(w->trouble, text, sizeof(w->trouble) - 1) == 0)
        return;
    text_copy(w->trouble, sizeof(w->trouble), text);
    w->on_change(w->userdata);
}

int map_watch_start(struct kube_client *client, const char *namespace, const char *name,
                    void (*on_change)(void *userdata), void *userdata, struct map_watch **ret,
                    struct err *err) {
    static const struct kube_reflector_handlers events = {.on_sync_begin = on_sync_begin,
                                                          .on_object = on_object,
                                                          .on_sync_end = on_sync_end,
                                                          .on_trouble = on_trouble};
    _cleanup_free_ struct map_watch *w = calloc(1, sizeof(*w));
    char path[192], query[320];
    const struct kube_reflector_options reflector = {.path = path, .query = query};
    int r;

    if (!w)
        return err_set(err, ENOMEM, "out of memory");
    w->on_change = on_change;
    w->userdata = userdata;
    (void) snprintf(w->name, sizeof(w->name), "%.63s/%.253s", namespace, name);
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/configmaps", namespace);
    (void) snprintf(query, sizeof(query), "fieldSelector=metadata.name%%3D%.253s", name);
    r = kube_reflector_start(client, &reflector, &events, w, &w->reflector, err);
    if (r == 0)
        *ret = take_ptr(w);
    return r;
}

const char *map_watch_name(const struct map_watch *w) {
    return w->name;
}

bool map_watch_is_known(const struct map_watch *w) {
    return w->listed;
}

const char *map_watch_trouble(const struct map_watch *w) {
    return w->listed ? "" : w->trouble;
}

bool map_watch_is_refused(const struct map_watch *w) {
    return !w->listed && kube_reflector_is_refused(w->reflector);
}

const struct map_entries *map_watch_entries(const struct map_watch *w) {
    return w->listed && w->exists ? &w->entries : NULL;
}

const char *map_entries_text(const struct map_entries *entries, const char *name) {
    for (size_t i = 0; i < entries->n; i++)
        if (strcmp(entries->names[i], name) == 0)
            return entries->texts[i];
    return NULL;
}

void map_watch_stop(struct map_watch *w) {
    if (!w)
        return;
    kube_reflector_stop(w->reflector);
    clear(w);
    free(w);
}
