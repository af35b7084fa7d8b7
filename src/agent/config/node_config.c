/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/config/node_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/sections.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/nearest.h"
#include "model/dialect.h"
#include "wire/yaml.h"

#define LIST_GPU_MANAGER "nodeConfig"
#define LIST_HAMI "nodeconfig"

static int read_version(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) target;
    (void) arg;
    if (v->text && strcmp(v->text, "v1") == 0)
        return 0;
    return yaml_error(v, err, "'%.40s' is not a known version; expected v1",
                      v->text ? v->text : yaml_type_name(v));
}

static const struct yaml_field root_fields[] = {
    {"version", read_version, 0, NULL, true},
    {"flags", config_section, 0, config_flags, false},
    {"resources", config_section, 0, config_resources, false},
    {"sharing", config_section, 0, config_sharing, false},
    {"imex", config_section, 0, config_imex, false},
    {"aliquot", config_section, 0, config_aliquot, false},
    YAML_FIELD_END,
};

/* ---- a list of nodes ---- */

struct node_entry {
    struct node_config *config;
    const char *node;
    const struct yaml_field *fields;
};

/* The entries of other nodes are checked, too: the file is the same on all nodes. */
static int read_entry(const struct yaml *v, void *target, const void *arg, struct err *err) {
    _cleanup_(node_config_freep) struct node_config *other = NULL;
    const struct node_entry *e = target;
    const struct yaml *name = yaml_get(v, "name");
    struct node_config *into = e->config;

    (void) arg;
    if (name && name->text && strcmp(name->text, e->node) == 0)
        return yaml_read(v, e->fields, into, err);
    other = node_config_new();
    return other ? yaml_read(v, e->fields, other, err) : err_set(err, ENOMEM, "out of memory");
}

static int read_list(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_read_each(v, read_entry, target, arg, err);
}

static int read_nodes(const struct yaml *root, bool hami, const char *node, struct node_config *c,
                      struct err *err) {
    struct node_entry entry = {c, node, hami ? config_hami : config_gpu_manager};
    const struct yaml_field list[] = {
        {hami ? LIST_HAMI : LIST_GPU_MANAGER, read_list, 0, NULL, true}, YAML_FIELD_END};

    return yaml_read(root, list, &entry, err);
}

/* ---- the whole ---- */

struct node_config *node_config_new(void) {
    struct node_config *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->health = health_defaults;
    c->mode = -1;
    c->notes = BUF_INIT(CONFIG_NOTES_MAX);
    return c;
}

struct node_config *node_config_free(struct node_config *c) {
    if (!c)
        return NULL;
    (void) yaml_doc_free(c->doc);
    buf_done(&c->notes);
    free(c);
    return NULL;
}

/* What two keys have to agree on. `root` is NULL where the values are not those of a file alone. */
static int check_whole(const struct node_config *c, const struct yaml *root, struct err *err) {
    const struct yaml *health = yaml_get(yaml_get(root, "aliquot"), "health");
    const struct yaml *mps = yaml_get(yaml_get(root, "sharing"), "mps");
    char why[128];

    if (c->health.deadline_ms < c->health.interval_ms) {
        (void) snprintf(why, sizeof(why), "deadline (%u ms) is shorter than interval (%u ms)",
                        c->health.deadline_ms, c->health.interval_ms);
        return health ? yaml_error(health, err, "%s", why) : err_set(err, EINVAL, "%s", why);
    }
    if (c->sharing == CONFIG_MPS && c->mig_strategy != MIG_STRATEGY_NONE)
        return mps ? yaml_error(mps, err, "it needs flags.migStrategy: none")
                   : err_set(err, EINVAL, "sharing.mps needs the MIG strategy none");
    return 0;
}

static int read_root(const struct yaml *root, const char *node, struct node_config *c,
                     struct err *err) {
    bool hami = yaml_get(root, LIST_HAMI) != NULL;
    int r;

    if (hami || yaml_get(root, LIST_GPU_MANAGER))
        r = read_nodes(root, hami, node, c, err);
    else if (root->type == YAML_NULL)
        r = err_set(err, EINVAL, "the configuration is empty; the least is: version: v1");
    else
        r = yaml_read(root, root_fields, c, err);
    if (r == 0 && c->reset_command[0])
        c->health.reset_command = c->reset_command;
    return r == 0 ? check_whole(c, root, err) : r;
}

int node_config_parse(const char *text, size_t len, const char *node, struct node_config **ret,
                      struct err *err) {
    _cleanup_(node_config_freep) struct node_config *c = node_config_new();
    const struct yaml *root;
    int r;

    if (!c)
        return err_set(err, ENOMEM, "out of memory");
    r = yaml_parse(text, len, &c->doc, &root, err);
    if (r == 0)
        r = read_root(root, node, c, err);
    if (r == 0)
        *ret = take_ptr(c);
    return r;
}

/* ---- options and environment ---- */

static int override_word(const char *what, const char *value, const char *const *words, int *ret,
                         struct err *err) {
    const char *nearest;

    if (!value)
        return 0;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], value) != 0)
            continue;
        *ret = i;
        return 0;
    }
    nearest = text_nearest(value, words);
    return err_set(err, EINVAL, "%s '%.64s' is not %s, %s or %s%s%s%s", what, value, words[0],
                   words[1], words[2], nearest ? "; did you mean '" : "", nearest ? nearest : "",
                   nearest ? "'?" : "");
}

/* aliquot-scheduler reads a name of shares as a share, and the agent offers some of them itself. */
static bool is_of_shares(const char *name) {
    return strncmp(name, MIG_RESOURCE_PREFIX, strlen(MIG_RESOURCE_PREFIX)) != 0 &&
           dialect_knows(name);
}

/* --served-elsewhere leaves those that aliquot-scheduler would give out itself. */
static bool is_of_replicas(const char *name) {
    return !is_of_shares(name) || dialect_gives_replicas(name);
}

static int refuse_name(const char *section, const char *name, struct err *err) {
    return err_set(err, EINVAL,
                   "%s offers %s to kubelet, which aliquot-scheduler reads as a share: add "
                   "--served-elsewhere %s (to the scheduler, too), or give it another name",
                   section, name, name);
}

/* What cards are offered as. */
static int check_card_names(const struct node_config *c, struct err *err) {
    static const char *const sections[] = {
        [CONFIG_TIME_SLICING] = "sharing.timeSlicing", [CONFIG_MPS] = "sharing.mps"};

    for (size_t i = 0; i < c->nreplicas; i++)
        if (!is_of_replicas(c->replicas[i].rename))
            return refuse_name(sections[c->sharing], c->replicas[i].rename, err);
    for (size_t i = 0; i < c->ngpus; i++)
        if (is_of_shares(c->gpus[i].name) && strcmp(c->gpus[i].name, CONFIG_GPU) != 0)
            return refuse_name("resources.gpus", c->gpus[i].name, err);
    return 0;
}

static int check_names(const struct node_config *c, struct err *err) {
    int r = check_card_names(c, err);

    if (r < 0 || c->mig_strategy == MIG_STRATEGY_NONE)
        return r;
    for (size_t i = 0; i < c->nmigs; i++) {
        const char *name = c->migs[i].name;

        if (c->mig_strategy == MIG_STRATEGY_SINGLE && strcmp(name, "nvidia.com/gpu") == 0)
            continue;
        if (is_of_shares(name) || dialect_is_left_name(name))
            return err_set(err, EINVAL,
                           "resources.mig[%zu]: %s is a name of shares: MIG instances need "
                           "another name",
                           i, name);
    }
    return 0;
}

int node_config_override(struct node_config *c, const struct config_overrides *over,
                         struct err *err) {
    struct xid_rules rules;
    char bad[32];
    int r;

    r = override_word("--mig-strategy ($MIG_STRATEGY)", over->mig_strategy, config_mig_strategies,
                      &c->mig_strategy, err);
    if (r == 0)
        r = override_word("--shared-devices-allocation-policy ($SHARED_DEVICES_ALLOCATION_POLICY)",
                          over->allocation_policy, config_allocations, &c->allocation_policy, err);
    if (r < 0)
        return r;
    if (xid_rules_read(over->disable_health_checks, over->enable_health_checks, &rules, bad) > 0)
        buf_printf(&c->notes,
                   "$DP_DISABLE_HEALTHCHECKS, $DP_ENABLE_HEALTHCHECKS: '%s' is not an XID\n", bad);
    xid_rules_override(&c->health.xids, &rules);
    r = config_variables_apply(c, over->variables, err);
    if (r < 0)
        return r;
    if (c->imex_required && !c->imex)
        buf_printf(&c->notes,
                   "imex.required has no effect here: imex.channelIDs names no channel\n");
    c->mps_cards = over->mps_cards;
    if (c->mig_strategy == MIG_STRATEGY_SINGLE && !over->gpu_is_elsewhere)
        return err_set(err, EINVAL,
                       "the MIG strategy single offers nvidia.com/gpu to kubelet, which "
                       "aliquot-scheduler reads as a share: add --served-elsewhere nvidia.com/gpu "
                       "(to the scheduler, too)");
    r = check_names(c, err);
    return r < 0 ? r : check_whole(c, NULL, err);
}
