/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot run`: a command on a slice of a GPU, without Kubernetes. It plays the agent's part:
 * writes the limits, makes the ledger, and cleans up after the processes of the command as they
 * end. */

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/num.h"
#include "base/opt.h"
#include "cli/cli.h"
#include "cli/libdir.h"
#include "cli/probe.h"
#include "share/ledger.h"
#include "share/limits.h"

#define SWEEP_INTERVAL_NS 50000000
#define PREFIX "aliquot-run-"
#define MOUNTED_SHARE "/run/aliquot/share/limits"

static uint64_t arg_memory;
static uint32_t arg_core;
static const char *arg_gpu;

static const struct opt options[] = {
    {"memory", 'm', "SIZE", "device memory on each GPU, such as 4Gi or 512Mi (default: no limit)",
     opt_size, &arg_memory},
    {"core", 'c', "PERCENT", "part of a GPU's compute, 1 to 100 (recorded, not enforced yet)",
     opt_u32, &arg_core},
    {"gpu", 'g', "INDEX|UUID", "the GPU to use, or several with commas between (default: all)",
     opt_string, &arg_gpu},
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot run [options] -- COMMAND [ARG ...]",
    .purpose =
        "Runs a command, and all processes that it starts, on a slice of a GPU: together they get\n"
        "no more device memory than the limit, and see a GPU of that size.",
    .epilog = "The exit status is the command's; 128 + N if signal N ended it; 126 or 127 if it "
              "could not be\n"
              "started; 2 for a wrong option.\n"
              "Examples: aliquot run --memory 4Gi -- python3 train.py\n"
              "          aliquot sim --gpus 2 -- aliquot run --memory 4Gi --gpu 1 -- nvidia-smi",
};

struct run {
    char dir[64];
    char limits[96];
    char ledger_path[96];
    struct ledger *ledger;
    struct share_limits share;
    char visible[LIMITS_DEVICES_MAX * 49]; /* for CUDA_VISIBLE_DEVICES, or empty */
};

/* -- what was asked for ---------------------------------------------------------------------- */

static int check_options(int argc, int first, struct err *err) {
    const char *outer = getenv("ALIQUOT_SHARE_DIR");

    if (first >= argc)
        return err_set(err, EINVAL, "no command; see `aliquot run --help`");
    if (arg_core > 100)
        return err_set(err, EINVAL, "--core %u: at most 100 percent of a GPU", arg_core);
    if (access(MOUNTED_SHARE, F_OK) == 0 || (outer && *outer))
        return err_set(err, EBUSY, "already in a share, which cannot be divided further");
    return 0;
}

/* A GPU by its index, its UUID, or so much of the UUID as tells it apart. */
static int find_gpu(const struct probe_gpu *gpu, int n, const char *name, struct err *err) {
    uint64_t index;
    int found = -1;

    if (num_parse_u64(name, INT_MAX, &index) == 0) {
        if (index < (uint64_t) n)
            return (int) index;
        return err_set(err, EINVAL, "--gpu %s: there are %d GPUs, counted from 0", name, n);
    }
    for (int i = 0; i < n; i++) {
        if (strncasecmp(gpu[i].uuid, name, strlen(name)) != 0)
            continue;
        if (found >= 0)
            return err_set(err, EINVAL, "--gpu %s: more than one GPU has such a UUID", name);
        found = i;
    }
    return found >= 0 && *name ? found : err_set(err, EINVAL, "--gpu %s: no such GPU", name);
}

static int add_device(struct run *run, const struct probe_gpu *gpu, struct err *err) {
    struct share_device *device = &run->share.device[run->share.ndevices];

    if (run->share.ndevices >= LIMITS_DEVICES_MAX)
        return err_set(err, EINVAL, "at most %d GPUs", LIMITS_DEVICES_MAX);
    for (uint32_t i = 0; i < run->share.ndevices; i++)
        if (strcmp(run->share.device[i].uuid, gpu->uuid) == 0)
            return 0;
    if (arg_memory > gpu->memory_bytes && gpu->memory_bytes > 0)
        return err_set(err, EINVAL, "--memory: GPU %s has only %" PRIu64 " bytes", gpu->uuid,
                       gpu->memory_bytes);
    if (arg_memory > 0 && arg_memory <= gpu->context_bytes)
        return err_set(err, EINVAL,
                       "--memory: a CUDA context alone takes %" PRIu64 " bytes on this GPU",
                       gpu->context_bytes);
    memcpy(device->uuid, gpu->uuid, sizeof(device->uuid));
    device->memory_bytes = arg_memory;
    device->context_bytes = gpu->context_bytes;
    device->core_percent = arg_core;
    run->share.ndevices++;
    return 0;
}

static int add_named_devices(struct run *run, const struct probe_gpu *gpu, int n, struct err *err) {
    char names[LIMITS_DEVICES_MAX * 64], *save = NULL;
    size_t used = 0;

    if (snprintf(names, sizeof(names), "%s", arg_gpu) >= (int) sizeof(names))
        return err_set(err, EINVAL, "--gpu: too many names");
    for (const char *name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        int i = find_gpu(gpu, n, name, err), r;

        if (i < 0)
            return i;
        r = add_device(run, &gpu[i], err);
        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < run->share.ndevices; i++)
        used += (size_t) snprintf(run->visible + used, sizeof(run->visible) - used, "%s%s",
                                  i ? "," : "", run->share.device[i].uuid);
    return run->share.ndevices ? 0 : err_set(err, EINVAL, "--gpu needs the index or UUID of a GPU");
}

static int choose_devices(struct run *run, struct err *err) {
    static struct probe_gpu gpu[PROBE_GPUS_MAX];
    int n = probe_gpus(gpu, err), r = 0;

    if (n < 0)
        return n;
    if (arg_gpu)
        return add_named_devices(run, gpu, n, err);
    for (int i = 0; r == 0 && i < n; i++)
        r = add_device(run, &gpu[i], err);
    return r;
}

/* -- the share's directory ------------------------------------------------------------------- */

/* Whether anybody still works in the share that a killed `aliquot run` left behind. */
static bool in_use(const char *dir) {
    char path[PATH_MAX];
    struct ledger *ledger;
    struct ledger_process one;
    bool used;

    (void) snprintf(path, sizeof(path), "%s/ledger", dir);
    if (ledger_open(path, &ledger, NULL) < 0)
        return false;
    used = ledger_processes(ledger, &one, 1) > 0;
    ledger_free(ledger);
    return used;
}

/* Whether the name is that of a run whose process has ended: PREFIX, its PID, a dash, anything. */
static bool ended_run(const char *name) {
    const char *text, *dash;
    char digits[16];
    uint64_t pid;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    text = name + strlen(PREFIX);
    dash = strchr(text, '-');
    if (!dash || (size_t) (dash - text) >= sizeof(digits))
        return false;
    (void) snprintf(digits, sizeof(digits), "%.*s", (int) (dash - text), text);
    return num_parse_u64(digits, INT32_MAX, &pid) == 0 && pid > 0 && kill((pid_t) pid, 0) < 0 &&
           errno == ESRCH;
}

static void sweep_leftovers(const char *parent) {
    _cleanup_closedir_ DIR *d = opendir(parent);
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[PATH_MAX];
        struct stat st;

        if (!ended_run(e->d_name))
            continue;
        (void) snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || in_use(path))
            continue;
        (void) dir_remove(path, NULL);
    }
}

/* In memory where possible: no disk is written for a ledger, and its locks are lighter there. */
static int make_dir(struct run *run, struct err *err) {
    static const char *const places[] = {"/dev/shm", "/tmp"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        sweep_leftovers(places[i]);
        (void) snprintf(run->dir, sizeof(run->dir), "%s/" PREFIX "%d-XXXXXX", places[i],
                        (int) getpid());
        if (mkdtemp(run->dir))
            return 0;
    }
    run->dir[0] = '\0';
    return err_errno(err, errno, "cannot make a directory in /tmp");
}

static int make_share(struct run *run, struct err *err) {
    int r;

    r = make_dir(run, err);
    if (r < 0)
        return r;
    /* The command may change its user. */
    if (chmod(run->dir, 0755) < 0)
        return err_errno(err, errno, "cannot open up %s", run->dir);
    (void) snprintf(run->limits, sizeof(run->limits), "%s/limits", run->dir);
    (void) snprintf(run->ledger_path, sizeof(run->ledger_path), "%s/ledger", run->dir);
    r = limits_create(run->limits, &run->share, err);
    if (r == 0)
        r = ledger_create(run->ledger_path, err);
    return r == 0 ? ledger_open(run->ledger_path, &run->ledger, err) : r;
}

/* -- the command ----------------------------------------------------------------------------- */

static int set_environment(const struct run *run, struct err *err) {
    const char *preload = getenv("LD_PRELOAD");
    char library[PATH_MAX], value[2 * PATH_MAX];
    int r = libdir_find("intercept", "libaliquot.so", library, sizeof(library), err);

    if (r < 0)
        return r;
    if (strpbrk(library, " :"))
        return err_set(err, EINVAL, "LD_PRELOAD cannot name '%s': no blanks or colons", library);
    r = snprintf(value, sizeof(value), "%s%s%s", library, preload && *preload ? ":" : "",
                 preload ? preload : "");
    if (r >= (int) sizeof(value))
        return err_errno(err, ENAMETOOLONG, "LD_PRELOAD");
    if (setenv("LD_PRELOAD", value, 1) < 0 || setenv("ALIQUOT_SHARE_DIR", run->dir, 1) < 0 ||
        (run->visible[0] && setenv("CUDA_VISIBLE_DEVICES", run->visible, 1) < 0))
        return err_errno(err, errno, "cannot set the environment");
    return 0;
}

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

static void signals_of_interest(sigset_t *set) {
    (void) sigemptyset(set);
    (void) sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        (void) sigaddset(set, forwarded[i]);
}

/* Reaps what has ended. Returns the command's wait status once it is among them, else -1. */
static int reap(const struct run *run, pid_t command) {
    int status, result = -1;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == command)
            result = status;
    (void) ledger_sweep(run->ledger);
    return result;
}

static int wait_for(const struct run *run, pid_t command, const sigset_t *set) {
    /* Processes whose parent reaps them end without our being told. */
    const struct timespec tick = {.tv_nsec = SWEEP_INTERVAL_NS};

    for (;;) {
        siginfo_t info;
        int signal = sigtimedwait(set, &info, &tick), status;

        if (signal < 0) {
            (void) ledger_sweep(run->ledger);
        } else if (signal == SIGCHLD) {
            status = reap(run, command);
            if (status != -1)
                return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
        } else if (info.si_code != SI_KERNEL) {
            /* The kernel's own, from the terminal, has gone to the command as well. */
            (void) kill(command, signal);
        }
    }
}

static int start_and_wait(const struct run *run, char **argv) {
    sigset_t set, before;
    pid_t command;

    /* Ignored, as some parents leave it, it would keep the ends of our children from us. */
    (void) signal(SIGCHLD, SIG_DFL);
    signals_of_interest(&set);
    (void) sigprocmask(SIG_BLOCK, &set, &before);
    /* So that we learn of the end of every process of the command, also of those whose parents went
     * first. */
    (void) prctl(PR_SET_CHILD_SUBREAPER, 1);
    command = fork();
    if (command < 0) {
        (void) fprintf(stderr, "aliquot run: cannot fork: %s\n", strerror(errno));
        return EXIT_CANNOT_RUN;
    }
    if (command == 0) {
        int reason;

        (void) sigprocmask(SIG_SETMASK, &before, NULL);
        (void) execvp(argv[0], argv);
        reason = errno;
        (void) fprintf(stderr, "aliquot run: cannot run '%s': %s\n", argv[0], strerror(reason));
        _exit(reason == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
    }
    return wait_for(run, command, &set);
}

static void end_share(struct run *run) {
    run->ledger = ledger_free(run->ledger);
    /* What the command left running in the background keeps its share; a later run clears it away.
     */
    if (run->dir[0] && !in_use(run->dir))
        (void) dir_remove(run->dir, NULL);
}

static int fail(const struct err *err) {
    (void) fprintf(stderr, "aliquot run: %s\n", err->text);
    return err->code == EINVAL ? EXIT_USAGE : EXIT_CANNOT_RUN;
}

int cmd_run(int argc, char **argv) {
    _cleanup_(end_share) struct run run = {.dir = ""};
    struct err err;
    int first = opt_parse(options, &usage, argc, argv, &err);

    if (first == -ECANCELED)
        return 0;
    if (first < 0 || check_options(argc, first, &err) < 0 || choose_devices(&run, &err) < 0 ||
        make_share(&run, &err) < 0 || set_environment(&run, &err) < 0)
        return fail(&err);
    return start_and_wait(&run, argv + first);
}
