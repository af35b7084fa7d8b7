/* SPDX-License-Identifier: Apache-2.0 */

/* aliquot-hook ldcache: an OCI createContainer hook. It runs in the container's namespaces after
 * its mounts and before its first program, with the host's root directory. Libraries that are
 * mounted in LIBRARY_DIR are entered into the image's cache, so that `ldconfig -p` lists them and
 * any loader finds them. Nothing of the image is executed, and none of its links is followed: a
 * link could lead to the host. If the update fails, the cache is unchanged and the container
 * starts. */

#include "agent/hook/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/shares/cdi_guard.h"
#include "agent/shares/library_store.h"
#include "base/machine.h"
#include "gpu/driver/ldcache.h"

#define LIBRARY_DIR "/usr/lib/" MULTIARCH "/"
#define CACHE "ld.so.cache"
#define NEW_CACHE ".ld.so.cache.aliquot"
#define LIBRARIES_MAX 256

/* Mounts of each container with a share, and of each with a share or with whole devices. Neither is
 * a mount point of hosts. */
static const char *const marks[] = {SHARE_IN_CONTAINER, CDI_GUARD_DIRECTORY};

struct found {
    char *text; /* of /proc/self/mountinfo, cut into mount points */
    char **point;
    size_t points;
    size_t root_len; /* of the container's root, which the points begin with */
    char root[PATH_MAX];
    struct ldcache_library library[LIBRARIES_MAX];
    size_t libraries;
};

static void found_done(struct found *f) {
    free(f->text);
    free(f->point);
}

/* The fifth field of a line is the mount point. */
static char *point_of(char *line) {
    for (int i = 0; i < 4 && line; i++) {
        line = strchr(line, ' ');
        if (line)
            line++;
    }
    if (line)
        line[strcspn(line, " ")] = 0;
    return line;
}

static bool read_points(struct found *f) {
    FILE *in = fopen("/proc/self/mountinfo", "re");
    size_t room = 0;
    char *text = NULL, *line, *rest;
    bool done = in && getdelim(&text, &room, 0, in) >= 0;

    f->text = text;
    if (in)
        (void) fclose(in);
    if (!done)
        return false;
    for (const char *c = f->text; *c; c++)
        room = *c == '\n' ? room + 1 : room;
    f->point = calloc(room + 1, sizeof(*f->point));
    for (line = strtok_r(f->text, "\n", &rest); f->point && line;
         line = strtok_r(NULL, "\n", &rest)) {
        f->point[f->points] = point_of(line);
        f->points += f->point[f->points] != NULL;
    }
    return f->point != NULL;
}

static void find_root_before(struct found *f, const char *mark) {
    for (size_t i = 0; i < f->points; i++) {
        size_t len = strlen(f->point[i]);

        if (len <= strlen(mark) || strcmp(f->point[i] + len - strlen(mark), mark) != 0)
            continue;
        len -= strlen(mark);
        if (len < sizeof(f->root) && (f->root_len == 0 || len < f->root_len)) {
            memcpy(f->root, f->point[i], len);
            f->root[len] = 0;
            f->root_len = len;
        }
    }
}

/* The container's root is the part before a mark; a pod can only mount below its root, so the
 * shortest match is the root. Mounts of other containers are in namespaces of their own. */
static bool find_root(struct found *f) {
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        find_root_before(f, marks[i]);
    return f->root_len > 1;
}

static bool is_mounted(const struct found *f, const char *path) {
    for (size_t i = 0; i < f->points; i++)
        if (strncmp(f->point[i], f->root, f->root_len) == 0 &&
            strcmp(f->point[i] + f->root_len, path) == 0)
            return true;
    return false;
}

static void find_libraries(struct found *f) {
    for (size_t i = 0; i < f->points && f->libraries < LIBRARIES_MAX; i++) {
        const char *path = f->point[i] + f->root_len, *name = path + strlen(LIBRARY_DIR);

        if (strncmp(f->point[i], f->root, f->root_len) != 0 ||
            strncmp(path, LIBRARY_DIR, strlen(LIBRARY_DIR)) != 0 || strchr(name, '/') ||
            strncmp(name, "lib", 3) != 0 || !strstr(name, ".so"))
            continue;
        f->library[f->libraries++] = (struct ldcache_library){.name = name, .path = path};
    }
}

/* What the image has: allocated, *ret_len bytes; NULL with errno, ENOENT when there is none. An
 * image can have a device there, for which it matters that it is opened. */
static void *read_cache(int etc, size_t *ret_len) {
    struct stat st;
    char *data = NULL;
    size_t len = 0;
    ssize_t n = 0;
    int fd;

    if (fstatat(etc, CACHE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return NULL;
    errno = EBADMSG;
    if (!S_ISREG(st.st_mode) || st.st_size == 0 || (size_t) st.st_size > LDCACHE_MAX)
        return NULL;
    fd = openat(etc, CACHE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        data = malloc((size_t) st.st_size);
    while (data && len < (size_t) st.st_size &&
           (n = read(fd, data + len, (size_t) st.st_size - len)) > 0)
        len += (size_t) n;
    if (fd >= 0)
        (void) close(fd);
    *ret_len = len;
    return data;
}

static bool write_cache(int etc, const char *data, size_t len) {
    int fd = openat(etc, NEW_CACHE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool whole = fd >= 0 && fchmod(fd, 0644) == 0;

    while (whole && len > 0) {
        ssize_t n = write(fd, data, len);

        whole = n > 0;
        data += n;
        len -= (size_t) n;
    }
    if (fd >= 0)
        (void) close(fd);
    if (whole && renameat(etc, NEW_CACHE, etc, CACHE) == 0)
        return true;
    if (fd >= 0)
        (void) unlinkat(etc, NEW_CACHE, 0);
    return false;
}

static bool update(const struct found *f, int etc) {
    size_t len = 0, made_len;
    void *old = read_cache(etc, &len), *made = NULL;
    bool done = false;

    if (old || errno == ENOENT)
        made = ldcache_merge(old, len, f->library, f->libraries, &made_len);
    free(old);
    if (made)
        done = write_cache(etc, made, made_len);
    free(made);
    return done;
}

int hook_ldcache(void) {
    struct found f = {.text = NULL};
    int root = -1, etc = -1;
    bool done = false;

    errno = 0;
    if (read_points(&f) && find_root(&f)) {
        find_libraries(&f);
        root = open(f.root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* What is mounted there may be the host's. */
        if (root >= 0 && !is_mounted(&f, "/etc") && !is_mounted(&f, "/etc/" CACHE))
            etc = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        done = etc >= 0 && update(&f, etc);
    }
    if (!done)
        (void) fprintf(stderr,
                       "aliquot-hook: /etc/" CACHE " of this container stays as it is: %s\n",
                       errno ? strerror(errno) : "it is not the image's");
    if (etc >= 0)
        (void) close(etc);
    if (root >= 0)
        (void) close(root);
    found_done(&f);
    return EXIT_SUCCESS;
}
