/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The dynamic linker's cache of libraries (/etc/ld.so.cache, format "glibc-ld.so.cache1.1", which
 * every glibc from 2.2 on reads). Libraries are added to what an image has without running anything
 * of it. libc only: it is part of the runtime's hook. */

#include <stdbool.h>
#include <stddef.h>

struct ldcache_library {
    const char *name; /* "libcuda.so.1" */
    const char *path; /* where it is in the container */
};

/* Bytes of a cache that is read; large images have 1 MiB. */
#define LDCACHE_MAX ((size_t) 16 << 20)

/* The cache that has all of `old` (the bytes of a file; none when `len` is 0) and `add`, which
 * takes precedence over entries of the same name. Allocated, *ret_len bytes. NULL with errno:
 * EBADMSG when `old` is no such cache or damaged, ENOMEM. `old` may be anything. */
void *ldcache_merge(const void *old, size_t len, const struct ldcache_library *add, size_t n,
                    size_t *ret_len);

/* Copies the path that the linker of a 64-bit program takes for that name into `ret`; false when
 * the cache has none, or a longer one. `cache` may be anything. */
bool ldcache_find(const void *cache, size_t len, const char *name, char *ret, size_t size);
