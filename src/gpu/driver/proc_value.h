/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lines "KEY VALUE" in files of the driver's kernel module below /proc. */

#include <stdbool.h>
#include <stddef.h>

/* What is behind `key` and blanks in the first line that begins so, to the end of the line: false
 * if there is none. It is cut off at `size`. */
bool proc_value(const char *text, const char *key, char *ret, size_t size);
