/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/mig_rows.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/log.h"

struct mig_entry {
    struct mig_row row;
    bool added, failed; /* taken by `add`; a failure is logged */
    struct mig_entry *next;
};

static bool is_elsewhere(const struct mig_rows *m, const char *name) {
    const char *at = m->strategy == MIG_STRATEGY_MIXED && m->elsewhere ? m->elsewhere : "";
    size_t len;

    for (; *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (strlen(name) == len && strncmp(at, name, len) == 0)
            return true;
    }
    return false;
}

static bool has_row(const struct mig_rows *m, const char *profile) {
    const struct mig_entry *e;

    LL_FOREACH(m->list, e)
        if (m->strategy == MIG_STRATEGY_SINGLE || strcmp(e->row.profile, profile) == 0)
            return true;
    return false;
}

static void make_row(struct mig_rows *m, const char *profile) {
    struct mig_entry *e;

    if (has_row(m, profile))
        return;
    e = calloc(1, sizeof(*e));
    if (!e)
        return; /* the next call tries again */
    mig_row_make(&e->row, m->strategy, profile);
    e->added = is_elsewhere(m, e->row.name);
    if (e->added)
        log_info("%s is left to the plugin that --served-elsewhere names", e->row.name);
    LL_APPEND(m->list, e);
}

static void add_row(struct mig_entry *e, int (*add)(const struct resource *r, void *userdata),
                    void *userdata) {
    int r = add(&e->row.resource, userdata);

    e->added = r == 0;
    if (r < 0 && !e->failed)
        log_error("%s is not offered to kubelet: %s", e->row.name, strerror(-r));
    e->failed = r < 0;
}

static void check(struct mig_rows *m, const struct gpu_snapshot *s) {
    struct err why = {0};

    if (m->strategy == MIG_STRATEGY_SINGLE && mig_check_single(s, &why) < 0)
        (void) err_wrap(&why, "nvidia.com/gpu is not offered (MIG strategy single; mixed serves "
                              "such a node)");
    if (why.code != 0 && strcmp(why.text, m->trouble.text) != 0)
        log_error("%s", why.text);
    m->trouble = why;
}

void mig_rows_update(struct mig_rows *m, const struct gpu_snapshot *s,
                     int (*add)(const struct resource *r, void *userdata), void *userdata) {
    struct mig_entry *e;

    for (uint32_t i = 0; i < s->ndevices && m->strategy != MIG_STRATEGY_NONE; i++)
        if (mig_is_offered(&s->devices[i]))
            make_row(m, s->devices[i].mig.profile);
    LL_FOREACH(m->list, e)
        if (!e->added)
            add_row(e, add, userdata);
    check(m, s);
}

const char *mig_rows_trouble(const struct mig_rows *m) {
    return m->trouble.code != 0 ? m->trouble.text : "";
}

void mig_rows_done(struct mig_rows *m) {
    struct mig_entry *e, *next;

    LL_FOREACH_SAFE(m->list, e, next)
        free(e);
    m->list = NULL;
}
