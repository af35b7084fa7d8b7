/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration of the node takes effect: at the start, and whenever its file has changed. An
 * option of the agent and a variable of its environment take precedence over the file. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/cluster/config_map.h"
#include "agent/cluster/gpu_manager.h"
#include "agent/cluster/pod_events.h"
#include "agent/config/node_config.h"
#include "agent/report/publish.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/driver/extra_nodes.h"
#include "model/scaling.h"

#define SAVED_FILE "config.yaml"

/* ---- oversubscription ---- */

bool reconfigure_is_known(const struct agent *a) {
    return !a->config_file || config_file_is_known(a->config_file);
}

/* That of all cards; 0: the configuration has none. */
static uint32_t file_scaling(const struct node_config *c) {
    for (size_t i = 0; i < c->ncards; i++)
        if (!c->cards[i].devices && c->cards[i].memory_scaling > 0)
            return c->cards[i].memory_scaling;
    return c->memory_scaling;
}

void reconfigure_scaling(struct agent *a) {
    uint32_t option = a->config.shares.memory_scaling, file = file_scaling(a->node_config);

    a->shares.options.memory_scaling = option > 0                   ? option
                                       : file > 0                   ? file
                                       : a->gpu_manager_scaling > 0 ? a->gpu_manager_scaling
                                                                    : SCALING_ONE;
    a->report.capacity_known = a->gpu_manager_known && reconfigure_is_known(a);
    a->prestarts.blocker = a->claims.blocker =
        reconfigure_is_known(a) ? NULL : "the node's ConfigMap has not been read yet";
}

/* ---- the driver ---- */

/* Returns whether it is another one. `text` keeps that of the file. */
static bool set_root(const char **root, const char *option, const char *file,
                     char text[static 256]) {
    if (option || strcmp(*root ? *root : "", file ? file : "") == 0)
        return false;
    text_copy(text, 256, file ? file : "");
    *root = file ? text : NULL;
    return true;
}

/* Containers that run keep the files that they have. */
static void set_roots(struct agent *a) {
    static char driver[256], dev[256];
    const struct node_config *c = a->node_config;
    struct gpu_driver_places *p = &a->shares.places;
    bool other = set_root(&p->driver_root, a->config.driver_root, c->driver_root, driver);

    other |= set_root(&p->dev_root, a->config.dev_root, c->dev_root, dev);
    if (other && a->shares.monitor)
        gpu_monitor_reload(a->shares.monitor);
}

static unsigned int extras_of(const struct node_config *c) {
    return (c->gds ? GPU_EXTRA_GDS : 0u) | (c->mofed ? GPU_EXTRA_MOFED : 0u) |
           (c->gdrcopy ? GPU_EXTRA_GDRCOPY : 0u) | (c->imex ? GPU_EXTRA_IMEX : 0u) |
           (c->imex && c->imex_required ? GPU_EXTRA_IMEX_REQUIRED : 0u);
}

/* ---- names of resources ---- */

static const char *name_of_profile(const char *profile, void *userdata) {
    const struct agent *a = userdata;

    return node_config_name(a->node_config->migs, a->node_config->nmigs, profile);
}

/* ---- events of the file ---- */

static void log_notes(const struct node_config *c) {
    const char *line = buf_str(&c->notes), *end;

    for (; (end = strchr(line, '\n')); line = end + 1)
        log_warn("configuration: %.*s", (int) (end - line), line);
}

static void on_config(struct node_config *config, void *userdata) {
    struct agent *a = userdata;
    struct node_config *old = a->node_config;

    a->node_config = config;
    a->whole_rows.config = config;
    a->whole_rows.named = name_of_profile;
    a->whole_rows.userdata = a;
    a->whole_rows.strategy = (enum mig_strategy) config->mig_strategy;
    a->report.labels.config = config;
    a->health.options.rules = &config->health;
    a->audit.options.interval_ms = config->health.interval_ms;
    if (a->shares.monitor) {
        gpu_monitor_set_deadline(a->shares.monitor, config->health.deadline_ms);
        (void) gpu_monitor_poll(a->shares.monitor); /* which takes the new interval */
    }
    reconfigure_scaling(a);
    set_roots(a);
    a->shares.extras = extras_of(config);
    log_notes(config);
    (void) node_config_free(old);
    if (!old)
        return;
    log_info("the configuration of the node has changed");
    a->on_configured(a);
}

static void on_trouble(const char *why, void *userdata) {
    struct agent *a = userdata;

    text_copy(a->report.config_trouble, sizeof(a->report.config_trouble), why);
    if (!why[0]) {
        log_info("the file of the configuration can be used again");
        return;
    }
    log_error("the configuration does not change: %s", why);
    pod_events_node(&a->shares.events, a->shares.options.node_name, "ConfigurationInvalid", why);
}

/* ---- start and stop ---- */

static int start_file(struct agent *a, struct err *err) {
    static char saved[512];
    const struct config_file_options options = {.path = a->config.config_file,
                                                .saved = saved,
                                                .node = a->config.shares.node_name,
                                                .overrides = &a->config.overrides,
                                                .on_config = on_config,
                                                .on_trouble = on_trouble,
                                                .userdata = a};
    int r = dir_make(a->config.shares.state_dir, 0755, err);

    (void) snprintf(saved, sizeof(saved), "%s/" SAVED_FILE, a->config.shares.state_dir);
    return r < 0 ? r : config_file_start(a->loop, &options, &a->config_file, err);
}

int reconfigure_start(struct agent *a, struct err *err) {
    struct node_config *c;

    if (a->config.config_file || a->config.config_map)
        return start_file(a, err);
    c = node_config_new();
    if (!c)
        return err_set(err, ENOMEM, "out of memory");
    /* The overrides were checked with the options. */
    (void) node_config_override(c, &a->config.overrides, NULL);
    on_config(c, a);
    return 0;
}

/* What waits for the configuration goes on, with the defaults if the ConfigMap cannot be used. */
static void become_known(struct agent *a, bool known) {
    if (known)
        return;
    reconfigure_scaling(a);
    a->on_configured(a);
}

static void on_text(const char *entry, const char *text, void *userdata) {
    struct agent *a = userdata;
    bool known = reconfigure_is_known(a);
    char source[512];

    (void) snprintf(source, sizeof(source), "ConfigMap %s/%s, entry %s", a->config.namespace,
                    a->config.config_map, entry);
    config_file_offer(a->config_file, source, text);
    become_known(a, known);
}

static void on_map_trouble(const char *why, void *userdata) {
    struct agent *a = userdata;
    bool known = reconfigure_is_known(a);

    config_file_refuse(a->config_file, why);
    become_known(a, known);
}

void reconfigure_see_node(struct agent *a, struct json node) {
    if (a->config_map)
        config_map_see_node(a->config_map, node);
}

int reconfigure_follow(struct agent *a, struct err *err) {
    const struct config_map_options options = {.namespace = a->config.namespace,
                                               .name = a->config.config_map,
                                               .label = a->config.config_label,
                                               .choice = a->config.config_choice,
                                               .on_text = on_text,
                                               .on_trouble = on_map_trouble,
                                               .userdata = a};

    reconfigure_scaling(a);
    if (!a->config.config_map)
        return 0;
    return config_map_start(a->client, &options, &a->config_map, err);
}

void reconfigure_stop(struct agent *a, void (*on_closed)(void *userdata)) {
    config_map_stop(a->config_map);
    a->config_map = NULL;
    config_file_stop(a->config_file, on_closed, a);
    a->config_file = NULL;
}
