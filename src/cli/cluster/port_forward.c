/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/port_forward.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/cluster/kubectl.h"
#include "cli/cluster/pod_ready.h"
#include "cli/login.h"
#include "wire/json.h"

#define SCHEDULER_PORT ":9401" /* any free port here, that one there */
#define FORWARD_MS 15000       /* until the port is forwarded */
#define LINE_MAX_LEN 4096

/* ---- forwarding ---- */

/* The port behind "Forwarding from 127.0.0.1:"; 0: kubectl has ended or printed something else. */
static unsigned read_port(int fd) {
    static const char start[] = "Forwarding from 127.0.0.1:";
    char line[LINE_MAX_LEN];
    size_t len = 0;
    unsigned port = 0;
    while (len < sizeof(line) - 1 && !memchr(line, '\n', len)) {
        struct pollfd ready = {fd, POLLIN, 0};
        if (poll(&ready, 1, FORWARD_MS) <= 0)
            return 0;
        ssize_t n = read(fd, line + len, sizeof(line) - 1 - len);
        if (n <= 0)
            return 0;
        len += (size_t) n;
    }
    line[len] = '\0';
    if (strncmp(line, start, strlen(start)) == 0)
        (void) sscanf(line + strlen(start), "%5u", &port);
    return port;
}

static void end_forward(pid_t pid) {
    (void) kill(pid, SIGTERM);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int get_by_forward(const struct port_forward *source, const char *pod, const char *path,
                          struct buf *ret, struct err *err) {
    const char *const arguments[] = {"port-forward", "-n", source->name_space, "--address",
                                     "127.0.0.1",    pod,  SCHEDULER_PORT,     NULL};
    int out[2];
    pid_t pid;
    char url[64];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot run kubectl");
    _cleanup_close_ int read_end = out[0];
    _cleanup_close_ int write_end = out[1];
    int r = kubectl_start(arguments, write_end, STDERR_FILENO, &pid, err);
    if (r < 0)
        return r;
    (void) close(take_fd(&write_end));
    unsigned port = read_port(read_end);
    if (port == 0) {
        end_forward(pid);
        return err_set(err, ECONNREFUSED, "cannot forward a port to pod %s/%s", source->name_space,
                       pod);
    }
    (void) snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    r = kubectl_get_url(url, path, false, ret, err);
    end_forward(pid);
    return r;
}

/* ---- choice of the pod ---- */

int port_forward_get(const struct port_forward *source, const char *path, struct buf *ret,
                     struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json pods, pod;
    char list[512];
    if (source->url)
        return kubectl_get_url(source->url, path, false, ret, err);
    if (login_used())
        return err_set(err, EOPNOTSUPP,
                       "its page is reached by `kubectl port-forward` only: run `aliquot explain` "
                       "on a machine with kubectl");
    if (!api_is_name(source->name_space))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", source->name_space);
    (void) snprintf(list, sizeof(list),
                    "/api/v1/namespaces/%s/pods?labelSelector=app.kubernetes.io/name%%3D"
                    "aliquot-scheduler",
                    source->name_space);
    int r = api_read(list, &parser, &pods, err);
    if (r < 0)
        return r;
    r = err_set(err, ENOENT, "no pod of aliquot-scheduler in namespace %s is ready",
                source->name_space);
    struct json_iter it = json_iter(json_get(pods, "items"));
    while (r < 0 && json_next(&it, NULL, &pod)) {
        const char *name = json_string(JSON_PATH(pod, "metadata", "name"));
        if (name && pod_is_ready(pod))
            r = get_by_forward(source, name, path, ret, err);
    }
    return r;
}
