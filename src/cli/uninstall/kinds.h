/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The paths of the kinds that `aliquot uninstall` removes or reads. */

#include <stddef.h>

#include "base/buf.h"

/* Appends the path of the objects of a kind, named as for kubectl: "nodes", "gpus.elasticgpu.io".
 * `namespace` NULL: those of all namespaces; not read of a kind that has none. `name` NULL: all of
 * them. */
void kind_put_path(const char *kind, const char *namespace, const char *name, struct buf *path);

/* Appends a parameter of a query, where there is a value. */
void kind_put_parameter(struct buf *path, const char *name, const char *value);
