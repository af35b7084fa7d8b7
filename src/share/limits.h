/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a container may use: written by the agent (or `aliquot run`), mounted read-only for the
 * tenant.
 *
 * The file holds two copies and an index of the one in force. A writer fills the other copy
 * and then moves the index, so a reader never sees half an update and a writer that dies between
 * the two leaves the old limits in force. It is written in place: a bind-mounted file cannot be
 * replaced by rename. */

#include <stdint.h>

#include "base/err.h"
#include "share/limits_core.h"

/* Creates the file, or replaces the content of an existing one that no container has mounted yet.
 * Mode 0444; the directory must exist. -EINVAL: more devices than LIMITS_DEVICES_MAX or an
 * unterminated string. */
int limits_create(const char *path, const struct share_limits *limits, struct err *err);

/* Changes the limits in place, for the containers that have them mounted too. One writer at a time.
 * -EBADMSG: the file is not a limits file of this version. */
int limits_update(const char *path, const struct share_limits *limits, struct err *err);

/* Reads the limits in force. -EBADMSG as above, -EAGAIN when they kept changing while they were
 * read. */
int limits_read(const char *path, struct share_limits *ret, struct err *err);
