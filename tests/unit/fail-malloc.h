/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes the nth allocation of a scenario fail. Works on everything that is linked statically into
 * the test (the linker's --wrap), and on nghttp2 through the allocator that h2.c gives it.
 */

#include <stdbool.h>
#include <stddef.h>

/* Counts from here; the nth allocation (from 1) fails, once. 0: none. */
void fail_malloc_at(size_t nth);

/* Ends it; whether an allocation did fail. */
bool fail_malloc_end(void);
