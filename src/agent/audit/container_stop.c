/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/container_stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/log.h"

#define AGAIN_MS 25 /* first interval between passes, while the signals take effect */
#define LATE_MS 1000
#define AGAIN_LATE_MS 1000
#define STEP 256       /* processes in one turn of the loop */
#define CLEAN_PASSES 2 /* one pass can miss a new child; by the next its parent has ended */

/* ---- signals ---- */

static void kill_group(const struct container_stop *s) {
    _cleanup_close_ int fd = -1;
    char path[600];

    if (!s->directory[0])
        return;
    (void) snprintf(path, sizeof(path), "%s/cgroup.kill", s->directory);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "1", 1) < 0)
        log_debug("%s cannot be written: %s", path, strerror(errno));
}

static bool is_of(const struct container_stop *s, const struct cgroup_id *id) {
    return strcmp(id->pod_uid, s->id.pod_uid) == 0 &&
           strcmp(id->container_id, s->id.container_id) == 0;
}

/* The PID may have been reused: the process is checked again after the pidfd is open. */
static void kill_process(const struct container_stop *s, int pid) {
    _cleanup_close_ int fd = (int) syscall(SYS_pidfd_open, pid, 0);
    struct cgroup_id id;

    if (fd < 0 && errno != ENOSYS)
        return;
    if (cgroup_of_pid(pid, &id) != 1 || !is_of(s, &id))
        return;
    if (fd >= 0)
        (void) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    else
        (void) kill(pid, SIGKILL);
}

/* ---- passes ---- */

static void found(struct container_stop *s, int pid) {
    if (s->alive < CONTAINER_STOP_PIDS)
        s->pids[s->alive] = (uint32_t) pid;
    s->alive++;
    s->met = true;
    kill_process(s, pid);
}

/* A process that cannot be checked now (no descriptor, no memory) counts as alive. */
static bool is_hidden(int r) {
    return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EINTR || r == -EIO;
}

static void check_process(int pid, void *userdata) {
    struct container_stops *all = userdata;
    struct container_stop *s;
    struct cgroup_id id;
    int r = cgroup_of_pid(pid, &id);

    if (r != 1 && !is_hidden(r))
        return;
    DL_FOREACH(all->list, s) {
        if (r != 1)
            s->clean = -1;
        else if (is_of(s, &id) && !process_has_ended(pid))
            found(s, pid);
    }
}

/* After a whole pass. Returns false when the container needs no further pass. */
static bool update_stop(struct container_stops *all, struct container_stop *s) {
    s->clean = s->alive > 0 ? 0 : s->clean + 1;
    if (s->clean >= CLEAN_PASSES) {
        if (s->met)
            all->on_stopped(s, all->userdata);
        return false;
    }
    if (s->alive > 0 && !s->late && uv_now(all->timer.loop) - s->since_ms >= LATE_MS) {
        s->late = true;
        all->on_late(s, all->userdata);
    }
    return true;
}

static void on_timer(uv_timer_t *timer);

static void begin_pass(struct container_stops *all) {
    struct container_stop *s;

    DL_FOREACH(all->list, s) {
        s->alive = 0;
        kill_group(s);
    }
    all->walking = true;
}

static void end_pass(struct container_stops *all) {
    struct container_stop *s, *next;
    bool young = false;

    all->walking = false;
    DL_FOREACH_SAFE(all->list, s, next) {
        if (!update_stop(all, s)) {
            DL_DELETE(all->list, s);
            free(s);
            continue;
        }
        young = young || !s->late;
    }
    if (all->list)
        (void) uv_timer_start(&all->timer, on_timer, young ? AGAIN_MS : AGAIN_LATE_MS, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct container_stops *all = timer->data;
    int r;

    if (!all->walking)
        begin_pass(all);
    r = procfs_walk_step(&all->walk, STEP, check_process, all);
    if (r == 1)
        end_pass(all);
    else
        (void) uv_timer_start(timer, on_timer, r < 0 ? AGAIN_LATE_MS : 1, 0);
}

/* ---- from outside ---- */

void container_stops_init(struct container_stops *s, uv_loop_t *loop) {
    (void) uv_timer_init(loop, &s->timer);
    s->timer.data = s;
}

int container_stops_begin(struct container_stops *all, int pid, const struct cgroup_id *id,
                          const char *slot, const char *host_root) {
    struct container_stop *s;
    struct cgroup_id now;

    if (!id->container_id[0])
        return -EINVAL;
    DL_FOREACH(all->list, s)
        if (is_of(s, id))
            return 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->id = *id;
    s->since_ms = uv_now(all->timer.loop);
    /* The current pass started without it. */
    s->clean = all->walking ? -1 : 0;
    s->met = cgroup_of_pid(pid, &now) == 1 && is_of(s, &now) && !process_has_ended(pid);
    (void) snprintf(s->slot, sizeof(s->slot), "%s", slot);
    if (cgroup_directory(pid, id, host_root, s->directory, sizeof(s->directory)) < 0)
        s->directory[0] = 0;
    DL_APPEND(all->list, s);
    if (!all->walking)
        (void) uv_timer_start(&all->timer, on_timer, 0, 0);
    return 0;
}

void container_stops_end(struct container_stops *all) {
    struct container_stop *s, *next;

    DL_FOREACH_SAFE(all->list, s, next) {
        DL_DELETE(all->list, s);
        free(s);
    }
    procfs_walk_end(&all->walk);
    (void) uv_timer_stop(&all->timer);
}
