/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define SUFFIX ".html"

static int write_file(int fd, const char *address) {
    return dprintf(fd,
                   "<!doctype html><meta charset=utf-8><title>aliquot web</title>"
                   "<meta name=referrer content=no-referrer>"
                   "<meta http-equiv=refresh content=\"0; url=%s\">\n",
                   address) < 0
               ? -errno
               : 0;
}

/* In the child: twice, so that what xdg-open leaves is no child of ours. */
static void become(const char *file) {
    sigset_t none;
    int out = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    (void) setsid();
    pid_t pid = fork();
    if (pid > 0)
        _exit(EXIT_SUCCESS);
    if (pid == 0 && out >= 0 && dup2(out, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0)
        (void) execlp("xdg-open", "xdg-open", file, (char *) NULL);
    _exit(EXIT_FAILURE);
}

/* Whether a program of the path can be run. */
static bool is_on_path(const char *name) {
    const char *path = getenv("PATH");
    char file[4096];

    while (path && *path) {
        size_t len = strcspn(path, ":");
        (void) snprintf(file, sizeof(file), "%.*s/%s", (int) len, path, name);
        if (access(file, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

int opener_open(struct opener *opener, const char *address, struct err *err) {
    const char *own = getenv("XDG_RUNTIME_DIR");
    pid_t pid;

    if (!is_on_path("xdg-open"))
        return err_set(err, ENOENT, "xdg-open is not on the path: open the address yourself");
    if (!own || own[0] != '/' || access(own, W_OK | X_OK) < 0)
        own = "/tmp";
    if (asprintf(&opener->file, "%s/aliquot-web-XXXXXX" SUFFIX, own) < 0) {
        opener->file = NULL;
        return err_errno(err, ENOMEM, "cannot open a browser");
    }
    _cleanup_close_ int fd = mkostemps(opener->file, (int) strlen(SUFFIX), O_CLOEXEC);
    int r = fd < 0 ? -errno : write_file(fd, address);
    if (r < 0)
        return err_errno(err, -r, "cannot write %s", opener->file);
    pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot run xdg-open");
    if (pid == 0)
        become(opener->file);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

void opener_done(struct opener *opener) {
    if (opener->file)
        (void) unlink(opener->file);
    free(opener->file);
    opener->file = NULL;
}
