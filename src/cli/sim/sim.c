/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot sim`: a simulated NVIDIA machine, for one command or for a node. */

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/opt.h"
#include "cli/cli.h"
#include "cli/libdir.h"
#include "cli/sim/host_view.h"
#include "cli/sim/inject.h"
#include "cli/sim/machines.h"
#include "sim/daemon/daemon.h"

#define PRIVATE_PREFIX "aliquot-sim-"
#define LOCK_NAME "lock"
#define NO_SMI                                                                                     \
    "; it comes with NVIDIA's driver (Debian: package nvidia-smi in non-free). Readers on NVML "   \
    "work as well: pip install nvitop"

static uint32_t arg_gpus = UINT32_MAX; /* not given */
static const char *arg_model;
static const char *arg_machine;
static const char *arg_listen;
static const char *arg_seed;
static bool arg_host_view;

static const struct opt options[] = {
    {"gpus", 'g', "N", "number of GPUs (default 1)", opt_u32, &arg_gpus},
    {"model", 'm', "NAME[,NAME...]",
     "model of the GPUs (default A100); of a list, one for each GPU, the last for the rest",
     opt_string, &arg_model},
    {"machine", 'M', "FILE", "machine file, or a name from the list below", opt_string,
     &arg_machine},
    {"listen", 'l', "DIR", "serve the GPUs of a node from DIR until SIGTERM or SIGINT", opt_string,
     &arg_listen},
    {"seed", 0, "TEXT", "seed of UUIDs and serial numbers (default: the host name)", opt_string,
     &arg_seed},
    {"host-view", 0, NULL,
     "the command sees the GPUs in /proc and /sys, too, in a mount namespace of its own", opt_flag,
     &arg_host_view},
    OPT_END,
};

static const struct opt_word words[] = {
    {"inject", "[options] ACTION", "inject a fault into a running machine", true},
    {"show", "[options]", "print the state of a running machine", true},
    OPT_END,
};

static struct opt_usage usage = {
    .title = "Commands",
    .words = words,
    .synopsis = "aliquot sim [options] -- COMMAND [ARG ...]\n"
                "       aliquot sim [options] --listen DIR\n"
                "       aliquot sim inject|show ...",
    .purpose =
        "Runs a command on a machine with simulated NVIDIA GPUs: libcuda.so.1 and\n"
        "libnvidia-ml.so.1 are simulated, memory and GPU time are shared by all processes of the\n"
        "command. Needs no GPU, no driver and no root. Exits with the status of the command.",
};

/* Lists models and machines. */
static void write_epilog(struct buf *out) {
    buf_puts(out, "Models:");
    for (size_t i = 0; model_at(i); i++)
        buf_printf(out, " %s", model_at(i)->alias);
    buf_puts(out, ", or NVIDIA's full name.\nMachines: ");
    machines_list(out);
    buf_puts(out, "\nExample: aliquot sim --gpus 2 --model H100 -- nvidia-smi");
}

/* -- options --------------------------------------------------------------------------------- */

static int choose_models(uint32_t count, struct sim_config *config, struct err *err) {
    config_init(config);
    const char *at = arg_model;
    for (uint32_t i = 0; i < count; i++) {
        char name[128];
        size_t len = at ? strcspn(at, ",") : 0;
        if (len >= sizeof(name))
            return err_set(err, EINVAL, "a model's name is too long");
        memcpy(name, at ? at : "", len);
        name[len] = '\0';
        const struct sim_model *model = model_find(at ? name : NULL);
        if (!model)
            return err_set(err, EINVAL, "no model '%s'; see `aliquot sim --help`", name);
        (void) config_add_gpu(config, model);
        if (at && at[len] == ',')
            at += len + 1;
    }
    return 0;
}

static int choose_machine(struct sim_config *config, struct err *err) {
    if (arg_machine && (arg_model || arg_gpus != UINT32_MAX))
        return err_set(err, EINVAL, "--machine excludes --gpus and --model");
    if (arg_machine)
        return machines_load(arg_machine, config, err);
    uint32_t count = arg_gpus == UINT32_MAX ? 1 : arg_gpus;
    if (count < 1 || count > SIM_MAX_GPUS)
        return err_set(err, EINVAL, "--gpus must be 1 to %u", SIM_MAX_GPUS);
    return choose_models(count, config, err);
}

/* -- directories ----------------------------------------------------------------------------- */

/* Locks the directory for as long as this process lives. The descriptor is the lock.
 * `flags`: LOCK_NB, or 0 to wait for another holder. */
static int lock_dir(const char *dir, int flags, struct err *err) {
    char path[PATH_MAX];
    (void) snprintf(path, sizeof(path), "%s/" LOCK_NAME, dir);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | flags) == 0)
        return take_fd(&fd);
    return errno == EWOULDBLOCK ? err_set(err, EBUSY, "another `aliquot sim` serves %s", dir)
                                : err_errno(err, errno, "cannot lock %s", path);
}

/* Removes the directories of earlier runs that were killed. */
static void remove_stale_dirs(const char *parent) {
    _cleanup_closedir_ DIR *d = opendir(parent);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, PRIVATE_PREFIX, strlen(PRIVATE_PREFIX)) != 0)
            continue;
        char path[PATH_MAX];
        struct stat st;
        (void) snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
            continue;
        char lock[PATH_MAX + 8];
        (void) snprintf(lock, sizeof(lock), "%s/" LOCK_NAME, path);
        _cleanup_close_ int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void) dir_remove(path, NULL);
    }
}

/* Sockets need short paths, so not $TMPDIR. */
static int make_dir(char *ret, size_t size, struct err *err) {
    (void) snprintf(ret, size, "/tmp/" PRIVATE_PREFIX "XXXXXX");
    if (!mkdtemp(ret))
        return err_errno(err, errno, "cannot make a directory in /tmp");
    /* Every user may use the GPUs, as with device nodes: the command may change its user. */
    if (chmod(ret, 0755) < 0)
        return err_errno(err, errno, "cannot change the mode of %s", ret);
    return 0;
}

/* Makes a directory and returns its lock. Until it is locked, remove_stale_dirs() of another
 * process may take it for a stale one: then the lock file has no link any more. */
static int make_private_dir(char *ret, size_t size, struct err *err) {
    for (;;) {
        int r = make_dir(ret, size, err);
        if (r < 0)
            return r;
        _cleanup_close_ int lock = lock_dir(ret, 0, err);
        struct stat st;
        if (lock < 0)
            return lock;
        if (fstat(lock, &st) == 0 && st.st_nlink > 0)
            return take_fd(&lock);
    }
}

static const char *const library_names[][2] = {
    {"libcuda.so.1", "libcuda.so.1"},
    {"libcuda.so.1", "libcuda.so"},
    {"libnvidia-ml.so.1", "libnvidia-ml.so.1"},
    {"libnvidia-ml.so.1", "libnvidia-ml.so"},
};

/* DIR/lib gets the two libraries: links to them for one command, copies for containers. */
static int place_libraries(const char *dir, bool copy, struct err *err) {
    char lib[PATH_MAX];
    (void) snprintf(lib, sizeof(lib), "%s/lib", dir);
    int r = dir_make(lib, 0755, err);
    for (size_t i = 0; r == 0 && i < sizeof(library_names) / sizeof(library_names[0]); i++) {
        const char *file = library_names[i][0], *name = library_names[i][1];
        char from[PATH_MAX], to[PATH_MAX + 32];
        (void) snprintf(to, sizeof(to), "%s/%s", lib, name);
        r = libdir_find("sim", file, from, sizeof(from), err);
        if (r < 0)
            return r;
        if (copy && strcmp(file, name) == 0)
            r = file_copy(from, to, 0755, err);
        else if (symlink(copy ? file : from, to) < 0 && errno != EEXIST)
            r = err_errno(err, errno, "cannot link %s", to);
    }
    return r;
}

/* -- signals --------------------------------------------------------------------------------- */

struct run {
    struct daemon *daemon;
    pid_t child; /* 0: none */
    int status;  /* what to exit with */
};

static int block_signals(sigset_t *ret_before, struct err *err) {
    static const int list[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    (void) sigemptyset(&set);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        (void) sigaddset(&set, list[i]);
    /* Some parents leave SIGCHLD ignored; then the end of the command would not be reported. */
    (void) signal(SIGCHLD, SIG_DFL);
    (void) sigprocmask(SIG_BLOCK, &set, ret_before);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_errno(err, errno, "cannot wait for signals") : fd;
}

static void collect_child(struct run *run) {
    int status;
    if (run->child <= 0 || waitpid(run->child, &status, WNOHANG) != run->child)
        return;
    run->child = 0;
    run->status = WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    daemon_stop(run->daemon);
}

static void on_signal(int fd, void *user) {
    struct run *run = user;
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            collect_child(run);
        else if (run->child == 0)
            daemon_stop(run->daemon);
        /* A terminal sends its signals to the command, too. */
        else if (info.ssi_code != SI_KERNEL)
            (void) kill(run->child, (int) info.ssi_signo);
    }
}

/* -- the two ways to run --------------------------------------------------------------------- */

static void set_library_path(const char *dir) {
    char path[PATH_MAX * 2];
    const char *before = getenv("LD_LIBRARY_PATH");
    (void) snprintf(path, sizeof(path), "%s/lib%s%s", dir, before && *before ? ":" : "",
                    before ? before : "");
    (void) setenv("LD_LIBRARY_PATH", path, 1);
}

static pid_t start_command(const char *dir, char **argv, const sigset_t *mask, struct err *err) {
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot start %s", argv[0]);
    if (pid > 0)
        return pid;
    (void) sigprocmask(SIG_SETMASK, mask, NULL);
    (void) setenv(SIM_DIR_ENV, dir, 1);
    set_library_path(dir);
    if (arg_host_view && host_view_enter(dir, err) < 0) {
        (void) fprintf(stderr, "aliquot sim: %s\n", err->text);
        _exit(EXIT_CANNOT_RUN);
    }
    (void) execvp(argv[0], argv);
    int code = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
    (void) fprintf(stderr, "aliquot sim: cannot run %s: %s%s\n", argv[0], strerror(errno),
                   strcmp(argv[0], "nvidia-smi") == 0 && code == EXIT_NOT_FOUND ? NO_SMI : "");
    _exit(code);
}

static void freep_daemon(struct daemon **d) {
    daemon_free(*d);
}

static int serve_command(const struct daemon_options *o, char **argv, struct err *err) {
    char dir[64];
    struct daemon_options here = *o;
    remove_stale_dirs("/tmp");
    _cleanup_close_ int lock = make_private_dir(dir, sizeof(dir), err);
    if (lock < 0)
        return lock;
    _cleanup_close_ int signals = -1;
    _cleanup_(freep_daemon) struct daemon *daemon = NULL;
    struct run run = {.status = EXIT_FAILURE};
    sigset_t before;
    int r = place_libraries(dir, false, err);
    here.dir = dir;
    if (r >= 0)
        r = daemon_new(&here, &daemon, err);
    if (r >= 0)
        r = signals = block_signals(&before, err);
    if (r >= 0)
        r = run.child = start_command(dir, argv, &before, err);
    if (r >= 0) {
        run.daemon = daemon;
        r = daemon_watch(daemon, signals, on_signal, &run);
    }
    if (r >= 0)
        r = daemon_run(daemon, err);
    (void) dir_remove(dir, NULL);
    return r < 0 ? r : run.status;
}

static int serve_node(struct daemon_options *o, struct err *err) {
    int r = dir_make(arg_listen, 0755, err);
    if (r < 0)
        return r;
    _cleanup_close_ int lock = lock_dir(arg_listen, LOCK_NB, err);
    if (lock < 0)
        return lock;
    sigset_t before;
    _cleanup_close_ int signals = block_signals(&before, err);
    if (signals < 0)
        return signals;
    r = place_libraries(arg_listen, true, err);
    if (r < 0)
        return r;
    o->dir = arg_listen;
    _cleanup_(freep_daemon) struct daemon *daemon = NULL;
    r = daemon_new(o, &daemon, err);
    if (r < 0)
        return r;
    struct run run = {.daemon = daemon};
    r = daemon_watch(daemon, signals, on_signal, &run);
    if (r < 0)
        return r;
    log_info("serving %u simulated GPUs in %s", o->config->ngpus, arg_listen);
    return daemon_run(daemon, err);
}

int cmd_sim(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "inject") == 0)
        return cmd_sim_inject(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "show") == 0)
        return cmd_sim_show(argc - 1, argv + 1);
    static struct sim_config config;
    struct err err;
    _cleanup_buf_ struct buf epilog = BUF_INIT(0);
    write_epilog(&epilog);
    usage.epilog = buf_str(&epilog);
    int first = opt_parse(options, &usage, argc, argv, &err);
    if (first == -ECANCELED)
        return 0;
    if (first >= 0 && (arg_listen ? first < argc : first >= argc))
        first = err_set(&err, EINVAL, "either a command or --listen is required; see --help");
    if (first >= 0 && arg_listen && arg_host_view)
        first = err_set(&err, EINVAL, "--host-view is for a command, not for --listen");
    char host[65] = "";
    (void) gethostname(host, sizeof(host) - 1);
    struct daemon_options o = {.seed = arg_seed ? arg_seed : host, .config = &config};
    int r = first < 0 ? first : choose_machine(&config, &err);
    if (r < 0) {
        (void) fprintf(stderr, "aliquot sim: %s\n", err.text);
        return EXIT_USAGE;
    }
    r = arg_listen ? serve_node(&o, &err) : serve_command(&o, argv + first, &err);
    if (r < 0) {
        (void) fprintf(stderr, "aliquot sim: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return r;
}
