/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/mps/servers.h"
#include "agent/os/command.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "gpu/nvml/compute_mode.h"

#define FAILURES_MAX 3 /* of a daemon that answers, and wrongly, before it is killed */
#define CANNOT_SEND "Cannot send command to MPS control daemon process"
#define LOG_MAX ((off_t) 1 << 20) /* bytes of a log; a command or a client adds some 300 */

struct mps_daemon {
    uv_loop_t *loop;
    struct mps_daemon_options options;
    struct mps_directories dirs;
    struct mps_driver driver;
    char uuid[GPU_UUID_MAX];
    struct mps_limits limits, given; /* wanted, and in the last command */
    bool wanted;
    /* What has been reached. `recorded` and `exclusive`: the former compute mode is on disk, and
     * the card is in EXCLUSIVE_PROCESS mode; `limited`: the daemon has confirmed the limits. */
    bool recorded, exclusive, limited, quit, removed;
    bool mode_lost; /* the card may have another compute mode than `exclusive` says */
    bool busy;      /* its control interface was in use at the last command */
    struct command *command;
    uv_timer_t timer; /* next: another try, or a check of the daemon */
    bool waiting;     /* for another try */
    unsigned retry_ms, failures;
    uint32_t clients; /* that the card takes; 0: not known */
    uv_poll_t watch;  /* of the pidfd */
    int pidfd, pid;
    uint64_t ready_at, restarts;
    char why[GPU_REASON_MAX];
    unsigned open; /* handles that are not closed yet, while closing */
    bool closing;
    struct on_closed on_closed;
};

static void proceed(struct mps_daemon *d);

static bool is_ready(const struct mps_daemon *d) {
    return d->wanted && d->exclusive && d->pidfd >= 0 && d->limited;
}

/* ---- failures ---- */

static void set_why(struct mps_daemon *d, const char *text) {
    char line[GPU_REASON_MAX];

    text_copy(line, sizeof(line), text);
    line[strcspn(line, "\n")] = 0;
    if (strcmp(d->why, line) == 0)
        return;
    text_copy(d->why, sizeof(d->why), line);
    d->options.on_change(d->options.userdata);
}

static void on_timer(uv_timer_t *timer);

/* Tries again later, each time later than before. */
static void fail(struct mps_daemon *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fail(struct mps_daemon *d, const char *format, ...) {
    char text[GPU_REASON_MAX];
    va_list ap;

    va_start(ap, format);
    (void) vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    text[strcspn(text, "\n")] = 0;
    if (strcmp(d->why, text) != 0)
        log_warn("MPS of GPU %s: %s; trying again, at most every %u ms", d->uuid, text,
                 d->options.retry_max_ms);
    d->waiting = true;
    (void) uv_timer_start(&d->timer, on_timer, d->retry_ms, 0);
    d->retry_ms =
        d->retry_ms * 2 > d->options.retry_max_ms ? d->options.retry_max_ms : d->retry_ms * 2;
    set_why(d, text);
}

/* What a command has said of its failure. */
static const char *reason_of(const struct command_result *r, char ret[static GPU_REASON_MAX]) {
    if (r->late)
        return "no answer in time";
    if (r->output[0])
        text_copy(ret, GPU_REASON_MAX, r->output);
    else if (r->signal != 0)
        (void) snprintf(ret, GPU_REASON_MAX, "ended by signal %d", r->signal);
    else
        (void) snprintf(ret, GPU_REASON_MAX, "exit status %d", r->status);
    ret[strcspn(ret, "\n")] = 0;
    return ret;
}

/* ---- the daemon's process ---- */

/* While the daemon closes: one of its handles is done. The last one frees it. */
static void let_go(struct mps_daemon *d) {
    if (--d->open == 0)
        on_closed_free(&d->on_closed, d);
}

static void on_watch_closed(uv_handle_t *handle) {
    struct mps_daemon *d = handle->data;

    (void) close(d->pidfd);
    d->pidfd = -1;
    d->pid = 0;
    if (d->closing)
        let_go(d);
    else
        proceed(d);
}

static void on_end(uv_poll_t *poll, int status, int events) {
    struct mps_daemon *d = poll->data;
    bool was_ready = is_ready(d);
    unsigned servers = mps_servers_kill(d->dirs.pipe);

    (void) status;
    (void) events;
    if (servers > 0)
        log_info("MPS of GPU %s: %u servers outlived their control daemon and were killed", d->uuid,
                 servers);
    d->limited = d->quit = false;
    if (d->wanted) {
        if (was_ready && uv_now(d->loop) - d->ready_at >= d->options.retry_max_ms)
            d->retry_ms = d->options.retry_min_ms;
        d->restarts++;
        log_warn("MPS of GPU %s: the control daemon with PID %d has ended", d->uuid, d->pid);
        fail(d, "the MPS control daemon has ended");
    }
    uv_close((uv_handle_t *) poll, on_watch_closed);
}

static void kill_daemon(const struct mps_daemon *d) {
    if (d->pidfd >= 0)
        (void) syscall(SYS_pidfd_send_signal, d->pidfd, SIGKILL, NULL, 0);
}

/* Watches the process that holds the lock of the pipe directory: one that was just started, or that
 * a former agent has left. -ESRCH: there is none. */
static int watch_holder(struct mps_daemon *d) {
    int pid = mps_directories_holder(&d->dirs);
    int fd, r;

    if (pid == 0)
        return -ESRCH;
    fd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -errno;
    /* It has the lock now, so that the descriptor is of no later process with its PID. */
    if (mps_directories_holder(&d->dirs) != pid) {
        (void) close(fd);
        return -ESRCH;
    }
    r = uv_poll_init(d->loop, &d->watch, fd);
    if (r < 0) {
        (void) close(fd);
        return r;
    }
    d->watch.data = d;
    d->pidfd = fd;
    d->pid = pid;
    d->limited = false;
    return uv_poll_start(&d->watch, UV_READABLE, on_end);
}

/* ---- commands ---- */

/* Returns whether it runs; the failure is noted otherwise. */
static bool run(struct mps_daemon *d, const char *const *argv, const char *const *env,
                const char *input, void (*done)(const struct command_result *, void *)) {
    const struct command_options options = {.argv = argv,
                                            .env = env,
                                            .input = input,
                                            .deadline_ms = d->options.deadline_ms,
                                            .done = done,
                                            .userdata = d};
    struct err err;

    if (command_start(d->loop, &options, &d->command, &err) == 0)
        return true;
    d->command = NULL;
    fail(d, "%s", err.text);
    return false;
}

static void run_control(struct mps_daemon *d, const char *commands,
                        void (*done)(const struct command_result *, void *)) {
    const char *argv[] = {d->driver.control, NULL};
    struct mps_environment env;
    struct err err;

    if (mps_environment_make(&d->dirs, &d->driver, d->uuid, &env, &err) < 0)
        fail(d, "%s", err.text);
    else
        (void) run(d, argv, env.list, commands, done);
}

/* `mode` of UINT_MAX: only reads. */
static void run_mode(struct mps_daemon *d, unsigned mode,
                     void (*done)(const struct command_result *, void *)) {
    char text[16];
    const char *argv[] = {d->options.program,
                          GPU_COMPUTE_MODE_COMMAND,
                          d->driver.nvml,
                          d->uuid,
                          mode == UINT32_MAX ? NULL : text,
                          NULL};

    (void) snprintf(text, sizeof(text), "%u", mode);
    (void) run(d, argv, NULL, NULL, done);
}

/* ---- compute mode ---- */

static void on_mode_read(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;
    char text[GPU_REASON_MAX], number[16];
    struct err err;
    uint64_t mode;

    d->command = NULL;
    text_copy(number, sizeof(number), r->output);
    number[strcspn(number, " \n")] = 0;
    if (r->status != 0 || num_parse_u64(number, GPU_COMPUTE_MODE_EXCLUSIVE_PROCESS, &mode) < 0)
        fail(d, "the compute mode of the card is not known: %s", reason_of(r, text));
    else if (mps_record_write(&d->dirs, (unsigned) mode, &err) < 0)
        fail(d, "%s", err.text);
    else
        d->recorded = true;
    proceed(d);
}

/* "MODE MAJOR.MINOR": the clients that a card of this compute capability takes. */
static uint32_t clients_of(const char *output) {
    unsigned mode, major, minor;

    if (sscanf(output, "%u %u.%u", &mode, &major, &minor) != 3 || major == 0)
        return 0;
    return mps_clients_max(major);
}

static void on_exclusive(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;
    char text[GPU_REASON_MAX];

    d->command = NULL;
    d->exclusive = r->status == 0;
    if (!d->exclusive)
        fail(d, "the card does not take compute mode EXCLUSIVE_PROCESS: %s", reason_of(r, text));
    else
        d->clients = clients_of(r->output);
    proceed(d);
}

static void set_exclusive(struct mps_daemon *d) {
    d->mode_lost = false;
    run_mode(d, GPU_COMPUTE_MODE_EXCLUSIVE_PROCESS, on_exclusive);
}

/* The last step of the end: without the record there is nothing left to do. */
static void remove_directories(struct mps_daemon *d) {
    struct err err;

    if (mps_directories_remove(&d->dirs, &err) < 0) {
        fail(d, "%s", err.text);
        return;
    }
    d->removed = true;
    d->recorded = false;
    log_info("MPS of GPU %s has ended; the card has its former compute mode", d->uuid);
    set_why(d, "MPS has ended");
}

static void on_restored(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;
    char text[GPU_REASON_MAX];

    d->command = NULL;
    d->exclusive = false;
    if (r->status != 0)
        fail(d, "the former compute mode of the card is not restored: %s", reason_of(r, text));
    else if (!d->wanted)
        remove_directories(d);
    else
        proceed(d);
}

/* Without a record nothing was changed. */
static void restore(struct mps_daemon *d) {
    struct err err;
    unsigned mode = GPU_COMPUTE_MODE_DEFAULT;
    int r = mps_record_read(&d->dirs, &mode, &err);

    if (r == -ENOENT) {
        remove_directories(d);
        return;
    }
    if (r < 0)
        log_warn("MPS of GPU %s: %s; the card gets compute mode DEFAULT", d->uuid, err.text);
    run_mode(d, mode, on_restored);
}

/* ---- start and limits ---- */

static void on_started(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;
    char text[GPU_REASON_MAX];

    d->command = NULL;
    if (r->status != 0)
        fail(d, "the MPS control daemon does not start: %s; its log is %s/control.log",
             reason_of(r, text), d->dirs.log);
    else if (watch_holder(d) < 0)
        fail(d, "the MPS control daemon has ended at its start; its log is %s/control.log",
             d->dirs.log);
    proceed(d);
}

static void start(struct mps_daemon *d) {
    const char *argv[] = {d->options.program, MPS_LAUNCH_COMMAND, d->dirs.shm, d->driver.control,
                          NULL};
    struct mps_environment env;
    struct err err;

    (void) mps_servers_kill(d->dirs.pipe);
    if (mps_libraries_link(&d->dirs, &d->driver, &err) < 0 ||
        mps_environment_make(&d->dirs, &d->driver, d->uuid, &env, &err) < 0)
        fail(d, "%s", err.text);
    else
        (void) run(d, argv, env.list, NULL, on_started);
}

/* The daemon takes one client of its control interface at a time, for example an administrator's
 * prompt. Every other one gets no answers. */
static bool is_refused(const struct command_result *r) {
    const char *answer = r->output + strspn(r->output, " \n");

    return !r->late && r->signal == 0 &&
           (!answer[0] || strncmp(answer, CANNOT_SEND, strlen(CANNOT_SEND)) == 0);
}

/* Limits that were confirmed are in force meanwhile. */
static void await_interface(struct mps_daemon *d) {
    static const char why[] = "another program uses the control interface of the MPS daemon";

    if (d->mode_lost) {
        proceed(d);
        return;
    }
    if (!is_ready(d)) {
        fail(d, "%s", why);
        return;
    }
    if (!d->busy)
        log_warn("MPS of GPU %s: %s: its limits cannot be checked", d->uuid, why);
    d->busy = true;
    (void) uv_timer_start(&d->timer, on_timer, d->options.interval_ms, 0);
}

/* A daemon that does not answer is killed; one that answers wrongly gets the limits again a few
 * times first: it may be starting. Its end starts the next one. */
static void on_limits(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;
    char text[GPU_REASON_MAX];
    struct err err;

    d->command = NULL;
    if (is_refused(r)) {
        await_interface(d);
        return;
    }
    d->busy = false;
    if (r->status == 0 && mps_limits_check(&d->given, r->output, &err) == 0) {
        d->failures = 0;
        d->limited = memcmp(&d->given, &d->limits, sizeof(d->limits)) == 0;
        proceed(d);
        return;
    }
    d->limited = false;
    if (r->late || ++d->failures >= FAILURES_MAX) {
        d->failures = 0;
        kill_daemon(d);
    }
    if (r->status == 0)
        fail(d, "%s", err.text);
    else
        fail(d, "the MPS control daemon does not take its limits: %s", reason_of(r, text));
}

static void give_limits(struct mps_daemon *d) {
    char commands[MPS_COMMANDS_MAX];

    d->given = d->limits;
    mps_limits_commands(&d->given, commands);
    run_control(d, commands, on_limits);
}

/* ---- the end ---- */

/* With servers and clients, after the timeout of `quit`. The end of the process is what counts. */
static void on_quit(const struct command_result *r, void *userdata) {
    struct mps_daemon *d = userdata;

    d->command = NULL;
    if (r->status != 0)
        kill_daemon(d);
    if (d->pidfd < 0)
        proceed(d);
    else if (r->status == 0)
        (void) uv_timer_start(&d->timer, on_timer, d->options.deadline_ms, 0);
}

/* ---- the next step ---- */

static void become_ready(struct mps_daemon *d) {
    bool again = d->why[0] != 0;

    (void) uv_timer_start(&d->timer, on_timer, d->options.interval_ms, 0);
    if (!again)
        return;
    d->ready_at = uv_now(d->loop);
    log_info("MPS of GPU %s: the control daemon (PID %d) has its limits: %u %% of the threads and "
             "%llu MiB for a client",
             d->uuid, d->pid, d->limits.percent, (unsigned long long) (d->limits.memory >> 20));
    set_why(d, "");
}

/* A record of a former agent stays: what the card has now is its EXCLUSIVE_PROCESS. */
static bool has_record(struct mps_daemon *d) {
    unsigned mode;

    d->recorded = d->recorded || mps_record_read(&d->dirs, &mode, NULL) != -ENOENT;
    return d->recorded;
}

static void proceed_start(struct mps_daemon *d) {
    char why[GPU_REASON_MAX];
    struct err err;

    d->removed = false;
    if (!d->options.driver(&d->driver, why, d->options.userdata))
        fail(d, "%s", why);
    else if (!d->driver.control[0] || !d->driver.server[0])
        fail(d, "the driver's nvidia-cuda-mps-%s is not on this node",
             d->driver.control[0] ? "server" : "control");
    else if (mps_directories_make(&d->dirs, d->options.selinux, d->options.bounded, &err) < 0)
        fail(d, "%s", err.text);
    else if (!has_record(d))
        run_mode(d, UINT32_MAX, on_mode_read);
    else if (!d->exclusive || d->mode_lost)
        set_exclusive(d);
    else if (d->clients > 0 && d->limits.clients > d->clients)
        fail(d, "%u replicas: under MPS the card takes %u clients at most", d->limits.clients,
             d->clients);
    else if (d->pidfd < 0 && watch_holder(d) < 0)
        start(d);
    else if (!d->limited)
        give_limits(d);
    else
        become_ready(d);
}

/* By its control interface, so that clients can end; a daemon that has none is killed. */
static void end_daemon(struct mps_daemon *d) {
    bool asks = !d->quit && d->driver.control[0] && d->driver.server[0];

    d->quit = true;
    if (asks)
        run_control(d, "quit -t 1\n", on_quit);
    else
        kill_daemon(d);
}

static void proceed_stop(struct mps_daemon *d) {
    char why[GPU_REASON_MAX];

    if (d->removed)
        return;
    if (d->pidfd < 0)
        (void) watch_holder(d);
    if (!d->options.driver(&d->driver, why, d->options.userdata)) {
        kill_daemon(d);
        fail(d, "%s", why);
    } else if (d->pidfd >= 0) {
        end_daemon(d);
    } else {
        (void) mps_servers_kill(d->dirs.pipe);
        restore(d);
    }
}

/* Takes the next step to the wanted state, unless one is under way. */
static void proceed(struct mps_daemon *d) {
    if (d->closing || d->command || d->waiting)
        return;
    if (d->pidfd >= 0 && uv_is_closing((uv_handle_t *) &d->watch))
        return;
    if (d->wanted)
        proceed_start(d);
    else
        proceed_stop(d);
}

static void trim_log(const struct mps_daemon *d, const char *name) {
    char path[160];
    struct stat st;

    (void) snprintf(path, sizeof(path), "%s/%s", d->dirs.log, name);
    if (stat(path, &st) == 0 && (off_t) st.st_blocks * 512 > LOG_MAX && truncate(path, 0) < 0)
        log_warn("cannot truncate %s: %s", path, strerror(errno));
}

static void on_timer(uv_timer_t *timer) {
    struct mps_daemon *d = timer->data;

    d->waiting = false;
    if (!is_ready(d) || d->command) {
        proceed(d);
        return;
    }
    trim_log(d, "control.log");
    trim_log(d, "server.log");
    run_control(d, mps_limits_queries(), on_limits);
}

/* ---- interface ---- */

int mps_daemon_new(uv_loop_t *loop, const struct mps_daemon_options *options, const char *dir,
                   const char *uuid, struct mps_daemon **ret, struct err *err) {
    struct mps_daemon *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return err_set(err, ENOMEM, "out of memory");
    r = mps_directories_name(dir, uuid, &d->dirs, err);
    if (r < 0) {
        free(d);
        return r;
    }
    d->loop = loop;
    d->options = *options;
    if (options->deadline_ms == 0)
        d->options.deadline_ms = 5000;
    if (options->interval_ms == 0)
        d->options.interval_ms = 10000;
    if (options->retry_min_ms == 0)
        d->options.retry_min_ms = 100;
    if (options->retry_max_ms == 0)
        d->options.retry_max_ms = 10000;
    d->retry_ms = d->options.retry_min_ms;
    d->pidfd = -1;
    d->removed = true;
    text_copy(d->uuid, sizeof(d->uuid), uuid);
    (void) uv_timer_init(loop, &d->timer);
    d->timer.data = d;
    *ret = d;
    return 0;
}

/* What keeps it from its new state is no failure: the next step is not delayed. */
static void set_wanted(struct mps_daemon *d, bool wanted) {
    if (d->wanted == wanted)
        return;
    d->wanted = wanted;
    d->waiting = false;
    d->retry_ms = d->options.retry_min_ms;
    (void) uv_timer_stop(&d->timer);
}

void mps_daemon_run(struct mps_daemon *d, const struct mps_limits *limits) {
    if (d->wanted && memcmp(&d->limits, limits, sizeof(*limits)) == 0)
        return;
    d->limits = *limits;
    d->limited = false;
    if (!d->wanted) {
        set_wanted(d, true);
        set_why(d, "the MPS control daemon is being started");
    }
    proceed(d);
}

bool mps_daemon_exists(const struct mps_daemon *d) {
    return d->wanted || !d->removed || access(d->dirs.base, F_OK) == 0;
}

void mps_daemon_stop(struct mps_daemon *d) {
    if (!d->wanted && (!d->removed || !mps_daemon_exists(d)))
        return;
    set_wanted(d, false);
    d->removed = false;
    set_why(d, "the MPS control daemon is being ended");
    proceed(d);
}

void mps_daemon_check_mode(struct mps_daemon *d) {
    if (!d->wanted)
        return;
    d->mode_lost = true;
    proceed(d);
}

void mps_daemon_status(const struct mps_daemon *d, struct mps_status *ret) {
    ret->state = is_ready(d)   ? MPS_READY
                 : d->wanted   ? MPS_STARTING
                 : !d->removed ? MPS_STOPPING
                               : MPS_STOPPED;
    ret->pid = d->pid;
    ret->busy = d->command != NULL;
    ret->restarts = d->restarts;
    ret->why = d->why;
}

const struct mps_directories *mps_daemon_directories(const struct mps_daemon *d) {
    return &d->dirs;
}

static void on_timer_closed(uv_handle_t *handle) {
    let_go(handle->data);
}

void mps_daemon_close(struct mps_daemon *d, void (*on_closed)(void *userdata), void *userdata) {
    d->closing = true;
    d->on_closed = (struct on_closed){on_closed, userdata};
    d->open = d->pidfd >= 0 ? 2 : 1;
    if (d->command)
        command_cancel(d->command);
    if (d->pidfd >= 0 && !uv_is_closing((uv_handle_t *) &d->watch))
        uv_close((uv_handle_t *) &d->watch, on_watch_closed);
    uv_close((uv_handle_t *) &d->timer, on_timer_closed);
}
