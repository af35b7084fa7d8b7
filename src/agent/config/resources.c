/* SPDX-License-Identifier: Apache-2.0 */

/* Sections `resources` and `sharing` of NVIDIA's file, and what they make of a card. */

#include <stdio.h>
#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"
#include "model/dialect.h"

#define SHARED_SUFFIX ".shared"
#define MPS_REPLICAS_MAX 48

/* ---- resources ---- */

static const struct yaml_field pattern_fields[] = {
    {"pattern", yaml_string, offsetof(struct config_pattern, pattern), NULL, true},
    {"name", config_resource_name, offsetof(struct config_pattern, name), NULL, true},
    YAML_FIELD_END,
};

struct patterns {
    struct config_pattern *rows;
    size_t *n;
};

static int add_pattern(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct patterns *p = target;

    (void) arg;
    if (*p->n == CONFIG_ROWS_MAX)
        return yaml_error(v, err, "more than %d patterns", CONFIG_ROWS_MAX);
    return yaml_read(v, pattern_fields, &p->rows[(*p->n)++], err);
}

static int read_gpus(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;

    (void) arg;
    return yaml_read_each(v, add_pattern, &(struct patterns){c->gpus, &c->ngpus}, NULL, err);
}

static int read_migs(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;

    (void) arg;
    return yaml_read_each(v, add_pattern, &(struct patterns){c->migs, &c->nmigs}, NULL, err);
}

const struct yaml_field config_resources[] = {
    {"gpus", read_gpus, 0, NULL, false},
    {"mig", read_migs, 0, NULL, false},
    YAML_FIELD_END,
};

/* Whether `text` begins with the pattern, in which * is any text. */
static bool begins_with(const char *text, const char *pattern) {
    size_t part = strcspn(pattern, "*");

    if (strncmp(text, pattern, part) != 0)
        return false;
    text += part;
    for (pattern += part; *pattern == '*'; pattern += part) {
        char literal[256];

        pattern += strspn(pattern, "*");
        part = strcspn(pattern, "*");
        if (part >= sizeof(literal))
            return false;
        memcpy(literal, pattern, part);
        literal[part] = 0;
        /* The first place is as good as any: what follows has the most text left. */
        text = strstr(text, literal);
        if (!text)
            return false;
        text += part;
    }
    return true;
}

const char *node_config_name(const struct config_pattern *patterns, size_t n, const char *text) {
    for (size_t i = 0; i < n; i++)
        for (const char *at = text;; at++) {
            if (begins_with(at, patterns[i].pattern))
                return patterns[i].name;
            if (!*at)
                break;
        }
    return NULL;
}

/* ---- sharing ---- */

static const struct yaml_range replicas_range = {2, REPLICAS_MAX};
static const struct yaml_field replicas[] = {
    {"name", config_resource_name, offsetof(struct config_replicas, name), NULL, true},
    {"rename", config_resource_name, offsetof(struct config_replicas, rename), NULL, false},
    {"devices", config_devices, offsetof(struct config_replicas, devices), NULL, false},
    {"replicas", yaml_u32, offsetof(struct config_replicas, replicas), &replicas_range, true},
    YAML_FIELD_END,
};

static int add_replicas(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;

    (void) arg;
    if (c->nreplicas == CONFIG_ROWS_MAX)
        return yaml_error(v, err, "more than %d resources", CONFIG_ROWS_MAX);
    return yaml_read(v, replicas, &c->replicas[c->nreplicas++], err);
}

static int read_replicas(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    if (v->type == YAML_LIST && v->size == 0)
        return yaml_error(v, err, "the list is empty: expected at least one resource");
    return yaml_read_each(v, add_replicas, target, NULL, err);
}

static const struct yaml_field kind[] = {
    {"renameByDefault", yaml_bool, offsetof(struct node_config, rename_by_default), NULL, false},
    {"failRequestsGreaterThanOne", yaml_bool,
     offsetof(struct node_config, fail_requests_greater_than_one), NULL, false},
    {"resources", read_replicas, 0, NULL, true},
    YAML_FIELD_END,
};

/* The name of replicas whose entry has no `rename`. */
static int set_rename(const struct node_config *c, const struct yaml *v, struct config_replicas *r,
                      struct err *err) {
    const char *suffix = c->rename_by_default ? SHARED_SUFFIX : "";

    if (r->rename[0])
        return 0;
    if (strlen(r->name) + strlen(suffix) >= sizeof(r->rename))
        return yaml_error(v, err, "'%s%s' has more than %d characters: give it a rename", r->name,
                          suffix, CONFIG_NAME_MAX - 1);
    (void) snprintf(r->rename, sizeof(r->rename), "%.*s%s",
                    (int) (sizeof(r->rename) - sizeof(SHARED_SUFFIX)), r->name, suffix);
    if (!suffix[0])
        (void) snprintf(r->rename, sizeof(r->rename), "%s", r->name);
    return 0;
}

static int read_kind(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;
    const enum config_sharing *sharing = arg;
    int r;

    if (c->sharing != CONFIG_SHARING_NONE)
        return yaml_error(v, err, "timeSlicing and mps exclude each other on a node");
    c->sharing = *sharing;
    c->fail_requests_greater_than_one = *sharing == CONFIG_MPS;
    r = yaml_read(v, kind, c, err);
    for (size_t i = 0; i < c->nreplicas && r == 0 && *sharing == CONFIG_MPS; i++)
        if (c->replicas[i].replicas > MPS_REPLICAS_MAX)
            r = yaml_error(v, err, "%u replicas of %s: MPS serves at most %d clients of a card",
                           c->replicas[i].replicas, c->replicas[i].name, MPS_REPLICAS_MAX);
    for (size_t i = 0; i < c->nreplicas && r == 0; i++)
        r = set_rename(c, v, &c->replicas[i], err);
    return r;
}

static const enum config_sharing time_slicing = CONFIG_TIME_SLICING, mps = CONFIG_MPS;

const struct yaml_field config_sharing[] = {
    {"timeSlicing", read_kind, 0, &time_slicing, false},
    {"mps", read_kind, 0, &mps, false},
    YAML_FIELD_END,
};
