/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CDI specifications, one file for each share: the runtime reads it when it creates the container,
 * and adds devices, driver, library and limits. Without the file the container does not start, so
 * there is no access before the grant. Format: the Container Device Interface, version 0.5.0.
 */

#include <stdbool.h>

#include "gpu/driver/driver.h"

struct err;

#define CDI_KIND "elasticgpu.io/share"
#define CDI_GUARD_KIND "elasticgpu.io/guard"
#define CDI_GUARD_DEVICE "cdi"

/* Writes <dir>/elasticgpu.io-share-<nonce>.json as one step. */
int cdi_write(const char *dir, const char *nonce, const struct gpu_edits *edits, struct err *err);

/* The same for the guard's device (cdi_guard.h), of which there is one:
 * <dir>/elasticgpu.io-guard.json. It stays when the agent ends: containers that an agent of an
 * earlier release starts again still name it. */
int cdi_write_guard(const char *dir, const struct gpu_edits *edits, struct err *err);

/* Whether that file is there. */
bool cdi_has_guard(const char *dir);

/* A missing file is no error. */
int cdi_remove(const char *dir, const char *nonce, struct err *err);

/* Removes all files of ours, and what writes that were interrupted have left. Goes on after an
 * error, and returns the first. A missing directory has none. */
int cdi_remove_all(const char *dir, struct err *err);

/* Calls `fn` with the nonce of each file of ours in `dir`. A missing directory has none. */
int cdi_each(const char *dir, void (*fn)(const char *nonce, void *userdata), void *userdata,
             struct err *err);

/* The text of the file. */
struct buf;
void cdi_encode(const char *nonce, const struct gpu_edits *edits, struct buf *out);
