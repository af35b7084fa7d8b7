/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The view `memory` of `aliquot inspect`. */

#include <stdbool.h>

#include "cli/cluster/cards.h"

/* Prints memory by node and card in GiB; with `details` the pods of each node too. */
int inspect_memory(const struct cards *cards, bool details, struct err *err);
