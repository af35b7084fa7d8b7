/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The paths of the kinds that `aliquot` asks for. */

#include "base/buf.h"
#include "base/err.h"

struct kind;

/* By the name that kubectl takes, of `len` bytes: "nodes", "gpus.elasticgpu.io". */
int kind_find(const char *name, size_t len, const struct kind **ret, struct err *err);

/* The name. */
const char *kind_name(const struct kind *kind);

/* Appends the path of the list, of all namespaces where `namespace` is NULL, or of the object
 * `name`. */
void kind_put_path(const struct kind *kind, const char *namespace, const char *name,
                   struct buf *path);

/* Appends a parameter of a query, where there is a value. */
void kind_put_parameter(struct buf *path, const char *name, const char *value);
