/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What another command of `aliquot` says of a row. */

#include "base/buf.h"
#include "cli/top/views.h"

/* Runs it and appends what it prints. `system`: namespace of Aliquot. */
void more_of(const struct top_row *row, const char *system, struct buf *ret);
