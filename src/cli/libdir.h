/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Finds one of our libraries, such as "libaliquot.so" (`part` "intercept") or "libcuda.so.1"
 * (`part` "sim"): in $ALIQUOT_LIBDIR, then where `ninja install` puts it beside the running
 * program, then in the build tree. Writes the absolute path into `ret`. -ENOENT: the error names
 * the searched directories. */
int libdir_find(const char *part, const char *file, char *ret, size_t size, struct err *err);
