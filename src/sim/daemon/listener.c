/* SPDX-License-Identifier: Apache-2.0 */

/* Sockets in the machine's directory. */

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"

int listener_add(struct daemon *d, const struct listener *l, struct err *err) {
    const char *name = l->name;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char path[sizeof(sa.sun_path)];
    (void) snprintf(path, sizeof(path), "%s/%s", d->dir, name);
    int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s.new", d->dir, name);
    if (n < 0 || (size_t) n >= sizeof(sa.sun_path))
        return err_set(err, ENAMETOOLONG, "%s is too long for the path of a socket", d->dir);
    (void) unlink(sa.sun_path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 ||
        chmod(sa.sun_path, l->mode) < 0 || listen(fd, 4096) < 0 || rename(sa.sun_path, path) < 0)
        return err_errno(err, errno, "cannot listen on %s", path);
    if (!watch_add(d, l->kind, fd, l->minor))
        return err_set(err, ENOMEM, "cannot watch %s", path);
    (void) take_fd(&fd);
    return 0;
}

void listener_swap(struct daemon *d, uint32_t a, uint32_t b) {
    for (struct watch *w = d->watches; w; w = w->next)
        if (w->kind == WATCH_LISTENER && (w->minor == a || w->minor == b))
            w->minor = w->minor == a ? b : a;
}
