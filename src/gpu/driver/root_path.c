/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/root_path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel */

struct walk {
    char done[PATH_MAX]; /* "/usr/lib": without links; "": the root */
    char rest[PATH_MAX]; /* what is still to go */
};

/* Cuts the next component off the rest: 1; 0 at the end. */
static int next(struct walk *w, char part[static NAME_MAX + 1]) {
    size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/");

    if (len == 0)
        return 0;
    if (len > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(part, w->rest + skip, len);
    part[len] = 0;
    memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
    return 1;
}

/* Prepends the target of a link to the rest; an absolute one restarts at the root. */
static int follow_link(struct walk *w, const char *target) {
    char rest[PATH_MAX];
    int n = snprintf(rest, sizeof(rest), "%s/%s", target, w->rest);

    if (n < 0 || (size_t) n >= sizeof(rest))
        return -ENAMETOOLONG;
    memcpy(w->rest, rest, (size_t) n + 1);
    if (target[0] == '/')
        w->done[0] = 0;
    return 0;
}

static int step(struct walk *w, const char *root, const char *part, int *links) {
    char full[2 * PATH_MAX], target[PATH_MAX];
    size_t len = strlen(w->done);
    ssize_t n;

    if (strcmp(part, ".") == 0)
        return 0;
    if (strcmp(part, "..") == 0) {
        char *slash = strrchr(w->done, '/');

        if (slash)
            *slash = 0;
        return 0;
    }
    if (len + 1 + strlen(part) >= sizeof(w->done))
        return -ENAMETOOLONG;
    n = snprintf(full, sizeof(full), "%s%s/%s", root, w->done, part);
    if (n < 0 || (size_t) n >= sizeof(full))
        return -ENAMETOOLONG;
    n = readlink(full, target, sizeof(target) - 1);
    if (n < 0 && errno != EINVAL)
        return -errno;
    if (n < 0) { /* no link */
        (void) snprintf(w->done + len, sizeof(w->done) - len, "/%s", part);
        return 0;
    }
    target[n] = 0;
    return ++*links > LINKS_MAX ? -ELOOP : follow_link(w, target);
}

int root_path_resolve(const char *root, const char *path, char *ret, size_t size) {
    struct walk w = {.done = ""};
    char part[NAME_MAX + 1];
    int links = 0, r;

    if (strlen(path) >= sizeof(w.rest))
        return -ENAMETOOLONG;
    memcpy(w.rest, path, strlen(path) + 1);
    while ((r = next(&w, part)) > 0) {
        r = step(&w, root, part, &links);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    if (strlen(w.done) >= size)
        return -ENAMETOOLONG;
    memcpy(ret, w.done, strlen(w.done) + 1);
    return 0;
}
