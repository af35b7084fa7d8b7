/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scope-bound ownership: a local marked `_cleanup_(fn)` is released on every way out of its block.
 * Pass ownership of a resource on with take_ptr(), take_struct() or take_fd(), which leave the
 * empty value behind. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

static inline void cleanup_freep(void *p) {
    free(*(void **) p);
}

/* Closes without disturbing errno, so that error paths can still report their own cause. */
static inline void cleanup_closep(int *fd) {
    int saved = errno;
    if (*fd >= 0)
        (void) close(*fd);
    *fd = -1;
    errno = saved;
}

static inline void cleanup_fclosep(FILE **f) {
    int saved = errno;
    if (*f)
        (void) fclose(*f);
    *f = NULL;
    errno = saved;
}

static inline void cleanup_closedirp(DIR **d) {
    int saved = errno;
    if (*d)
        (void) closedir(*d);
    *d = NULL;
    errno = saved;
}

#define _cleanup_free_ _cleanup_(cleanup_freep)
#define _cleanup_close_ _cleanup_(cleanup_closep)
#define _cleanup_fclose_ _cleanup_(cleanup_fclosep)
#define _cleanup_closedir_ _cleanup_(cleanup_closedirp)

#define take_ptr(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) _taken = (p);                                                                \
        (p) = NULL;                                                                                \
        _taken;                                                                                    \
    })

/* The same of a struct whose empty value is all zero. */
#define take_struct(v)                                                                             \
    ({                                                                                             \
        __typeof__(v) _taken = (v);                                                                \
        (v) = (__typeof__(v)){0};                                                                  \
        _taken;                                                                                    \
    })

static inline int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}
