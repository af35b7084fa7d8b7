/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The view `memory` of `aliquot inspect`. */

#include <stdbool.h>

#include "cli/cards.h"

/* Prints memory by node and card in GiB, of one node or of all (`node` NULL); with `details` the
 * pods of each node too. */
int inspect_memory(const struct cards *cards, const char *node, bool details, struct err *err);
