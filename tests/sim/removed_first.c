/* SPDX-License-Identifier: Apache-2.0 */

/* Preloaded: before the lock of a directory in which nothing else is yet, another `aliquot sim`
 * locks it, takes the directory for a stale one, and removes it. A fake, because this moment is too
 * short to meet by chance. */

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int flock_fn(int, int);

static bool is_new(const char *path) {
    char dir[PATH_MAX];
    struct stat st;
    (void) snprintf(dir, sizeof(dir), "%.*s/lib", (int) (strrchr(path, '/') - path), path);
    return stat(dir, &st) < 0;
}

static void remove_with_directory(char *path) {
    (void) unlink(path);
    *strrchr(path, '/') = '\0';
    (void) rmdir(path);
    (void) fprintf(stderr, "removed %s\n", path);
}

__attribute__((visibility("default"))) int flock(int fd, int operation) {
    static bool removed;
    flock_fn *real = (flock_fn *) dlsym(RTLD_NEXT, "flock");
    char link[64], path[PATH_MAX];
    (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    if (removed || n <= 0 || !is_new(path))
        return real(fd, operation);
    removed = true;
    int other = open(path, O_RDWR | O_CLOEXEC);
    (void) real(other, LOCK_EX);
    int r = operation & LOCK_NB ? real(fd, operation) : 0;
    remove_with_directory(path);
    (void) close(other);
    return operation & LOCK_NB ? r : real(fd, operation);
}
