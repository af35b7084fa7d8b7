/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Numbers from text, strictly: no white space, no sign, no trailing characters, no silent overflow.
 */

#include <stdint.h>

/* Decimal digits only, at most `max`. -EINVAL for anything else, -ERANGE above max. */
int num_parse_u64(const char *text, uint64_t max, uint64_t *ret);

/* Bytes with an optional suffix: Ki Mi Gi Ti Pi (powers of 1024) or k M G T P (powers of 1000). */
int num_parse_size(const char *text, uint64_t *ret);

/* Bytes for display, in the largest binary unit with at most one decimal: "4 GiB", "1.5 GiB",
 * "512 MiB", "17 B"; in the next smaller one where only that is exact: "2000 MiB". Else what is
 * beyond the decimal is cut. Writes into `out` and returns it. */
const char *num_format_bytes(uint64_t bytes, char out[static 24]);

/* The byte that the first two characters name, or -1 where they are no hexadecimal digits. */
int num_hex_byte(const char *text);
