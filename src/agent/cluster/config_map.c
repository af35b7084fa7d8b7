/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/config_map.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "kube/api/reflector.h"

#define EMPTY_TEXT "version: v1\n"

struct config_map {
    struct config_map_options options;
    struct kube_reflector *reflector;
    char *names[CONFIG_MAP_ENTRIES_MAX], *texts[CONFIG_MAP_ENTRIES_MAX];
    size_t n;
    bool exists, seen; /* seen: by the list that is under way */
    bool listed;       /* a list has ended: what exists is known */
    bool node_known;
    char label[128];
};

static void clear(struct config_map *m) {
    for (size_t i = 0; i < m->n; i++) {
        free(m->names[i]);
        free(m->texts[i]);
    }
    m->n = 0;
}

static void choose(struct config_map *m) {
    struct err err;
    int i = CONFIG_CHOICE_EMPTY;

    if (!m->listed || !m->node_known)
        return;
    if (!m->exists) {
        (void) err_set(&err, ENOENT, "there is no ConfigMap %s/%s", m->options.namespace,
                       m->options.name);
        m->options.on_trouble(err.text, m->options.userdata);
    } else if (config_choose(&m->options.choice, m->label, (const char *const *) m->names, m->n, &i,
                             &err) < 0) {
        (void) err_wrap(&err, "ConfigMap %s/%s", m->options.namespace, m->options.name);
        m->options.on_trouble(err.text, m->options.userdata);
    } else if (i == CONFIG_CHOICE_EMPTY) {
        m->options.on_text("empty", EMPTY_TEXT, m->options.userdata);
    } else {
        m->options.on_text(m->names[i], m->texts[i], m->options.userdata);
    }
}

/* What is left out for lack of memory is missing, as if it were not in the ConfigMap. */
static void read_entries(struct config_map *m, struct json data) {
    struct json_iter it = json_iter(data);
    struct json value;
    const char *name;

    clear(m);
    while (m->n < CONFIG_MAP_ENTRIES_MAX && json_next(&it, &name, &value)) {
        const char *text = json_string(value);

        if (!name || !text)
            continue;
        m->names[m->n] = strdup(name);
        m->texts[m->n] = strdup(text);
        m->n++;
        if (m->names[m->n - 1] && m->texts[m->n - 1])
            continue;
        m->n--;
        free(m->names[m->n]);
        free(m->texts[m->n]);
    }
}

static void on_sync_begin(void *userdata) {
    struct config_map *m = userdata;

    m->seen = false;
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    struct config_map *m = userdata;

    m->exists = m->seen = event != KUBE_DELETED;
    if (m->exists)
        read_entries(m, json_get(object, "data"));
    else
        clear(m);
    choose(m);
}

static void on_sync_end(void *userdata) {
    struct config_map *m = userdata;

    m->listed = true;
    m->exists = m->seen;
    if (!m->exists)
        clear(m);
    choose(m);
}

int config_map_start(struct kube_client *client, const struct config_map_options *options,
                     struct config_map **ret, struct err *err) {
    static const struct kube_reflector_handlers events = {
        .on_sync_begin = on_sync_begin, .on_object = on_object, .on_sync_end = on_sync_end};
    struct config_map *m = calloc(1, sizeof(*m));
    char path[192], query[320];
    const struct kube_reflector_options reflector = {.path = path, .query = query};
    int r;

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    m->options = *options;
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/configmaps", options->namespace);
    (void) snprintf(query, sizeof(query), "fieldSelector=metadata.name%%3D%.253s", options->name);
    r = kube_reflector_start(client, &reflector, &events, m, &m->reflector, err);
    if (r < 0) {
        free(m);
        return r;
    }
    *ret = m;
    return 0;
}

void config_map_see_node(struct config_map *m, struct json node) {
    const char *label = json_string_or(JSON_PATH(node, "metadata", "labels", m->options.label), "");

    if (m->node_known && strcmp(m->label, label) == 0)
        return;
    m->node_known = true;
    text_copy(m->label, sizeof(m->label), label);
    choose(m);
}

void config_map_stop(struct config_map *m) {
    if (!m)
        return;
    kube_reflector_stop(m->reflector);
    clear(m);
    free(m);
}
