/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/mig_rows.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/log.h"

static bool has_row(const struct mig_rows *m, const char *name) {
    const struct mig_row *row;

    LL_FOREACH(m->list, row)
        if (strcmp(row->name, name) == 0)
            return true;
    return false;
}

/* Without memory the next call tries again. */
static void make_row(struct mig_rows *m, const char *name) {
    struct mig_row *row = has_row(m, name) ? NULL : calloc(1, sizeof(*row));

    if (!row)
        return;
    mig_row_make(row, m, name);
    LL_APPEND(m->list, row);
}

static void add_row(struct mig_row *row, int (*add)(const struct resource *r, void *userdata),
                    void *userdata) {
    int r = add(&row->resource, userdata);

    row->added = r == 0;
    if (r < 0 && !row->failed)
        log_error("%s is not offered to kubelet: %s", row->name, strerror(-r));
    row->failed = r < 0;
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
    char name[MIG_NAME_MAX];
    struct mig_row *row;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        mig_resource_of(m, &s->devices[i], name);
        if (name[0])
            make_row(m, name);
    }
    LL_FOREACH(m->list, row)
        if (!row->added)
            add_row(row, add, userdata);
    check(m, s);
}

const char *mig_rows_trouble(const struct mig_rows *m) {
    return m->trouble.code != 0 ? m->trouble.text : "";
}

void mig_rows_done(struct mig_rows *m) {
    struct mig_row *row, *next;

    LL_FOREACH_SAFE(m->list, row, next)
        free(row);
    m->list = NULL;
}
