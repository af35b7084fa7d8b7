/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/card_rows.h"

#include <inttypes.h>

#include "base/num.h"

static void put_amount(struct table *t, const struct card_columns *columns, uint64_t core,
                       uint64_t memory) {
    char bytes[24];
    if (core > 0)
        table_set(t, columns->core, "%" PRIu64 " %%", core);
    table_set(t, columns->memory, "%s", num_format_bytes(memory, bytes));
}

void card_put_model(struct table *t, size_t column, const struct card *card) {
    table_set(t, column, "%s%s%s", card->model,
              card->parent[0] ? " MIG "
              : card->divided ? " in MIG mode"
                              : "",
              card->profile);
}

/* They have the claim's share together. */
static void put_users(struct table *t, const struct card_columns *columns, const struct holder *h) {
    for (size_t i = 0; i < h->nusers; i++) {
        table_row(t);
        table_set(t, columns->holder, "    %s/%s (%s)", h->namespace, h->users[i].pod,
                  h->users[i].container);
    }
}

void card_rows(struct table *t, const struct card_columns *columns, const struct card *card,
               void (*more)(struct table *t, const struct holder *holder, void *userdata),
               void *userdata) {
    for (size_t i = 0; i < card->nholders; i++) {
        const struct holder *h = &card->holders[i];
        table_row(t);
        if (h->claim[0])
            table_set(t, columns->holder, "  %s/%s (ResourceClaim)", h->namespace, h->claim);
        else
            table_set(t, columns->holder, "  %s/%s (%s)", h->namespace, h->pod, h->container);
        put_amount(t, columns, h->core, h->memory);
        if (more)
            more(t, h, userdata);
        put_users(t, columns, h);
    }
    for (size_t i = 0; i < card->nkept; i++) {
        table_row(t);
        table_set(t, columns->holder, "  kept for %s", card->kept[i].by);
        put_amount(t, columns, card->kept[i].core, card->kept[i].memory);
    }
    if (card->unattributed > 0) {
        table_row(t);
        table_set(t, columns->holder, "  unattributed");
        put_amount(t, columns, 0, card->unattributed);
    }
}
