/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Kubernetes quantities ("4Gi", "1e2", "1.5Gi", "200m") as whole numbers.
 * Source: k8s.io/apimachinery pkg/api/resource, the grammar in the comment of type Quantity. */

#include <stddef.h>
#include <stdint.h>

/* Reads text[0..len). 0 and the value; -EINVAL: not a quantity, or negative; -EDOM: not a whole
 * number ("1500m"); -ERANGE: more than INT64_MAX ("16Ei"), which no real amount ever is. */
int quantity_parse(const char *text, size_t len, uint64_t *ret_value);

/* The same in thousandths, rounded up ("1500m" is 1500, "1n" is 1): CPU. */
int quantity_parse_milli(const char *text, size_t len, uint64_t *ret_value);

/* The way Kubernetes itself would print an amount of bytes: the largest binary suffix that leaves a
 * whole number ("4Gi", "1536Mi", "1000"). Returns `out`. */
const char *quantity_format_bytes(uint64_t bytes, char out[static 24]);
