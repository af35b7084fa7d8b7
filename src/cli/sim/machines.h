/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Machine files for `aliquot sim --machine`: those that come with Aliquot, and any others. */

#include "base/buf.h"
#include "base/err.h"
#include "sim/daemon/config.h"

/* Appends the names of the machine files that come with Aliquot, separated by spaces. */
void machines_list(struct buf *out);

/* Reads a machine file: `name` is a path, or the name of one that comes with Aliquot. */
int machines_load(const char *name, struct sim_config *ret, struct err *err);
