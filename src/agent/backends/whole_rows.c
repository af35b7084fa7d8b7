/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/whole_rows.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/backends/backend.h"
#include "agent/config/card_config.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/mig_single.h"

static bool has_row(const struct whole_rows *m, const char *name) {
    const struct whole_row *row;

    LL_FOREACH(m->list, row)
        if (strcmp(row->name, name) == 0)
            return true;
    return false;
}

void whole_row_make(struct whole_row *row, const struct whole_rows *m, const char *name) {
    *row = (struct whole_row){.rows = m};
    text_copy(row->name, sizeof(row->name), name);
    resource_socket(row->name, row->socket);
    row->resource = (struct resource){
        .name = row->name, .socket = row->socket, .backend = &backend_whole, .data = row};
}

/* Without memory the next call tries again. */
static void make_row(struct whole_rows *m, const char *name) {
    struct whole_row *row = has_row(m, name) ? NULL : calloc(1, sizeof(*row));

    if (!row)
        return;
    whole_row_make(row, m, name);
    LL_APPEND(m->list, row);
}

static void add_row(struct whole_row *row, int (*add)(const struct resource *r, void *userdata),
                    void *userdata) {
    int r = add(&row->resource, userdata);

    row->added = r == 0;
    if (r < 0 && !row->failed)
        log_error("%s is not offered to kubelet: %s", row->name, strerror(-r));
    row->failed = r < 0;
}

static void check(struct whole_rows *m, const struct gpu_snapshot *s) {
    struct err why = {0};

    if (m->strategy == MIG_STRATEGY_SINGLE && gpu_mig_check_single(s, &why) < 0)
        (void) err_wrap(&why, "nvidia.com/gpu is not offered (MIG strategy single; mixed serves "
                              "such a node)");
    if (why.code != 0 && strcmp(why.text, m->trouble.text) != 0)
        log_error("%s", why.text);
    m->trouble = why;
}

void whole_rows_update(struct whole_rows *m, const struct gpu_snapshot *s,
                       int (*add)(const struct resource *r, void *userdata), void *userdata) {
    struct config_offer offer;
    struct whole_row *row;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (whole_offer_of(m, s, &s->devices[i], &offer))
            make_row(m, offer.resource);
    LL_FOREACH(m->list, row)
        if (!row->added)
            add_row(row, add, userdata);
    check(m, s);
}

const char *whole_rows_trouble(const struct whole_rows *m) {
    return m->trouble.code != 0 ? m->trouble.text : "";
}

void whole_rows_done(struct whole_rows *m) {
    struct whole_row *row, *next;

    LL_FOREACH_SAFE(m->list, row, next)
        free(row);
    m->list = NULL;
}
