/* SPDX-License-Identifier: Apache-2.0 */
#include "base/health.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/num.h"

#define DIGITS 20

int health_mark(const char *directory, const char *name, bool good) {
    char path[PATH_MAX], text[DIGITS + 1];
    int n = snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (n < 0 || (size_t) n >= sizeof(path))
        return -ENAMETOOLONG;
    if (!good)
        return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    (void) snprintf(text, sizeof(text), "%0*" PRIu64, DIGITS, clock_ms(CLOCK_MONOTONIC));
    /* Always as long as before, so that a probe never reads half of it. */
    return pwrite(fd, text, DIGITS, 0) == DIGITS ? 0 : -EIO;
}

int health_probe(const char *path, struct err *err) {
    char text[DIGITS + 1] = "";
    uint64_t then = 0;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_set(err, errno, "%s: no mark", path);
    if (read(fd, text, DIGITS) != DIGITS || num_parse_u64(text, UINT64_MAX, &then) < 0)
        return err_set(err, EIO, "%s: not a mark", path);
    if (clock_ms(CLOCK_MONOTONIC) - then > HEALTH_FRESH_MS)
        return err_set(err, ETIMEDOUT, "%s: the mark is old", path);
    return 0;
}
