/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "cli/run/card_use.h"

/* Whether a process that descends from the caller has a file of the driver open, is not ending, and
 * is not among the listed processes of `use`: one that can hold memory of the card by it. The
 * caller must be a subreaper, so that no descendant is lost to it. */
bool node_holders_any(const struct card_use *use);
