/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rows of a table that list the holders of a card. */

#include "cli/cluster/cards.h"
#include "cli/table.h"

/* Columns of the table. */
struct card_columns {
    size_t holder, core, memory;
};

/* The model, and what MIG makes of it. */
void card_put_model(struct table *t, size_t column, const struct card *card);

/* Appends a row for each container that has a share of the card, one for each reservation of it,
 * and one for memory that belongs to no container, if there is any.
 * `more`, unless NULL, is called for each row of a container, to fill other columns. */
void card_rows(struct table *t, const struct card_columns *columns, const struct card *card,
               void (*more)(struct table *t, const struct holder *holder, void *userdata),
               void *userdata);
