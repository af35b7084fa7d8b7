/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text in buffers of fixed size. */

#include <stddef.h>

/* Copies as much of `from` as fits into `size` bytes, at least one; `to` is always terminated. The
 * two may overlap. */
void text_copy(char *to, size_t size, const char *from);
