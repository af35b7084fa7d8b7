/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/config_map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/map_watch.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"

#define EMPTY_TEXT "version: v1\n"

struct config_map {
    struct config_map_options options;
    struct map_watch *watch;
    bool node_known;
    char label[128];
};

static void choose(struct config_map *m, const struct map_entries *e) {
    const char *map = map_watch_name(m->watch);
    struct err err;
    int i = CONFIG_CHOICE_EMPTY;

    if (!e) {
        (void) err_set(&err, ENOENT, "there is no ConfigMap %s", map);
        m->options.on_trouble(err.text, m->options.userdata);
    } else if (config_choose(&m->options.choice, m->label, (const char *const *) e->names, e->n, &i,
                             &err) < 0) {
        (void) err_wrap(&err, "ConfigMap %s", map);
        m->options.on_trouble(err.text, m->options.userdata);
    } else if (i == CONFIG_CHOICE_EMPTY) {
        m->options.on_text("empty", EMPTY_TEXT, m->options.userdata);
    } else {
        m->options.on_text(e->names[i], e->texts[i], m->options.userdata);
    }
}

static void on_change(void *userdata) {
    struct config_map *m = userdata;

    if (map_watch_is_known(m->watch) && m->node_known)
        choose(m, map_watch_entries(m->watch));
}

int config_map_start(struct kube_client *client, const struct config_map_options *options,
                     struct config_map **ret, struct err *err) {
    _cleanup_free_ struct config_map *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    m->options = *options;
    r = map_watch_start(client, options->namespace, options->name, on_change, m, &m->watch, err);
    if (r == 0)
        *ret = take_ptr(m);
    return r;
}

void config_map_see_node(struct config_map *m, struct json node) {
    const char *label = json_string_or(JSON_PATH(node, "metadata", "labels", m->options.label), "");

    if (m->node_known && strcmp(m->label, label) == 0)
        return;
    m->node_known = true;
    text_copy(m->label, sizeof(m->label), label);
    on_change(m);
}

void config_map_stop(struct config_map *m) {
    if (!m)
        return;
    map_watch_stop(m->watch);
    free(m);
}
