/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which of the cards that have room a pod wants, and how: by model, by UUID, by the links between
 * them, and by the policies that place it. It says so by annotations; a row of the table in
 * selection.c for each name. */

#include <stdbool.h>
#include <stdint.h>

/* How well several cards of one container are to be connected. */
enum topology_wish {
    TOPOLOGY_UNSET,      /* as NONE for shares, as BEST among cards of equal cost for whole ones */
    TOPOLOGY_NONE,       /* whichever are cheapest to give away */
    TOPOLOGY_BEST,       /* the best connected that are free */
    TOPOLOGY_RESTRICTED, /* as good as the node has when it is empty, or not on that node */
};
