/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot run`: a command on a share of a GPU, without Kubernetes. It plays the agent's part:
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
#include "cli/run/arbitrate.h"
#include "cli/run/compute_options.h"
#include "cli/run/orphans.h"
#include "cli/run/probe.h"
#include "cli/run/run_shares.h"
#include "share/compute.h"
#include "share/ledger.h"
#include "share/limits.h"

#define SWEEP_INTERVAL_NS 50000000
#define MOUNTED_SHARE "/dev/aliquot/limits"

static uint64_t arg_memory;
static struct compute_options arg_terms = COMPUTE_OPTIONS_NONE;
static const char *arg_gpu;
static bool arg_slices;

static const struct opt options[] = {
    {"memory", 'm', "SIZE", "device memory on each GPU, such as 4Gi or 512Mi (default: no limit)",
     opt_size, &arg_memory},
    COMPUTE_OPTIONS_OPTIONS(arg_terms),
    {"hardware-slices", 0, NULL,
     "also set time-slices of the driver by --core (not tried on hardware yet)", opt_flag,
     &arg_slices},
    {"gpu", 'g', "INDEX|UUID", "GPUs to use, separated by commas (default: all)", opt_string,
     &arg_gpu},
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot run [options] -- COMMAND [ARG ...]",
    .purpose = "Runs a command and all processes that it starts on a share of a GPU: together they "
               "get no\n"
               "more device memory than the limit, and see a GPU of that size; their launches wait "
               "so that\n"
               "they take no more of the GPU's time than --core and --policy permit. Runs of one "
               "user share\n"
               "the time of a GPU; `aliquot limits` shows and changes their limits.",
    .epilog = COMPUTE_OPTIONS_HELP
    "The exit status is the command's; 128 + N if signal N ended it; 126 or 127 if it "
    "could not be\n"
    "started; 2 for a wrong option.\n"
    "Examples: aliquot run --memory 4Gi -- python3 train.py\n"
    "          aliquot run --core 30 --policy burst -- python3 serve.py\n"
    "          aliquot sim --gpus 2 -- aliquot run --memory 4Gi --gpu 1 -- nvidia-smi",
};

struct run {
    struct run_share place;
    struct ledger *ledger;
    char ledger_path[96];
    struct share_limits share;
    uint64_t baseline[LIMITS_DEVICES_MAX]; /* in use for no listed process; bytes */
    char visible[LIMITS_DEVICES_MAX * 49]; /* for CUDA_VISIBLE_DEVICES, or empty */
};

/* -- options --------------------------------------------------------------------------------- */

static int check_options(int argc, int first, struct err *err) {
    const char *outer = getenv("ALIQUOT_SHARE_DIR");

    if (first >= argc)
        return err_set(err, EINVAL, "no command; see `aliquot run --help`");
    if (compute_options_check(&arg_terms, err) < 0)
        return -err->code;
    if (access(MOUNTED_SHARE, F_OK) == 0 || (outer && *outer))
        return err_set(err, EBUSY, "already in a share, which cannot be divided further");
    return 0;
}

/* Cards come before their instances. */
static int cards_among(const struct probe_gpu *gpu, int n) {
    while (n > 0 && gpu[n - 1].instance)
        n--;
    return n;
}

/* A GPU by its index, its UUID or a unique prefix of the UUID; an instance of a divided GPU by its
 * UUID only. */
static int find_gpu(const struct probe_gpu *gpu, int n, const char *name, struct err *err) {
    int found = -1, cards = cards_among(gpu, n);
    uint64_t index;

    if (num_parse_u64(name, INT_MAX, &index) == 0) {
        if (index < (uint64_t) cards)
            return (int) index;
        return err_set(err, EINVAL, "--gpu %s: there are %d GPUs, counted from 0", name, cards);
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
    run->baseline[run->share.ndevices] = gpu->unlisted_bytes;
    if (arg_slices)
        run->share.more[run->share.ndevices].options |= LIMITS_HARDWARE_SLICES;
    run->share.ndevices++;
    return compute_options_apply(&arg_terms, device, err);
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
    for (int i = 0; r == 0 && i < cards_among(gpu, n); i++)
        r = add_device(run, &gpu[i], err);
    return r;
}

/* -- the share ------------------------------------------------------------------------------- */

static int make_share(struct run *run, struct err *err) {
    char limits[96], grants[96], compute[96], *ledger = run->ledger_path;
    int r = run_shares_make(&run->place, err);

    if (r < 0)
        return r;
    run_shares_path(run->place.dir, "limits", limits);
    run_shares_path(run->place.dir, "ledger", ledger);
    run_shares_path(run->place.dir, "grants", grants);
    run_shares_path(run->place.dir, "compute", compute);
    r = limits_create(limits, &run->share, err);
    if (r == 0)
        r = ledger_create(ledger, err);
    if (r == 0)
        r = compute_create(grants, compute, err);
    if (r == 0)
        r = arbitrate_name(run->place.dir, err);
    return r == 0 ? ledger_open(ledger, &run->ledger, err) : r;
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
    if (setenv("LD_PRELOAD", value, 1) < 0 || setenv("ALIQUOT_SHARE_DIR", run->place.dir, 1) < 0 ||
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

/* Credits memory of ended processes, and exported memory that is free again. */
static void credit_ended(const struct run *run) {
    (void) ledger_sweep(run->ledger);
    orphans_poll(run->ledger);
}

/* Reaps what has ended. Returns the command's wait status once it is among them, else -1. */
static int reap_children(const struct run *run, pid_t command) {
    int status, result = -1;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == command)
            result = status;
    credit_ended(run);
    return result;
}

static int wait_for(const struct run *run, pid_t command, const sigset_t *set) {
    /* Processes that their own parent reaps end without a signal to us. */
    const struct timespec tick = {.tv_nsec = SWEEP_INTERVAL_NS};

    for (;;) {
        siginfo_t info;
        int signal = sigtimedwait(set, &info, &tick), status;

        if (signal < 0) {
            credit_ended(run);
        } else if (signal == SIGCHLD) {
            status = reap_children(run, command);
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
    struct err err;
    pid_t command;

    /* Some parents leave SIGCHLD ignored; then the end of a child would not be reported. */
    (void) signal(SIGCHLD, SIG_DFL);
    signals_of_interest(&set);
    (void) sigprocmask(SIG_BLOCK, &set, &before);
    /* This process reaps all processes of the command, also those whose own parents have ended
     * before. */
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
    /* Threads only now: a child of a threaded process may do little before it execs. */
    if (arbitrate_begin(&err) < 0)
        (void) fprintf(stderr, "aliquot run: GPU time is not arbitrated between runs: %s\n",
                       err.text);
    arbitrate_notice(NULL);
    orphans_begin(run->ledger_path, &run->share, run->baseline);
    return wait_for(run, command, &set);
}

static void end_share(struct run *run) {
    run->ledger = ledger_free(run->ledger);
    /* What the command left running in the background keeps its share; a later run clears it away.
     */
    if (run->place.dir[0] && !run_shares_in_use(run->place.dir)) {
        (void) dir_remove(run->place.dir, NULL);
        arbitrate_notice(NULL);
    }
}

static int print_error(const struct err *err) {
    (void) fprintf(stderr, "aliquot run: %s\n", err->text);
    return err->code == EINVAL ? EXIT_USAGE : EXIT_CANNOT_RUN;
}

int cmd_run(int argc, char **argv) {
    _cleanup_(end_share) struct run run = {.place.dir = ""};
    struct err err;
    int first = opt_parse(options, &usage, argc, argv, &err);

    if (first == -ECANCELED)
        return 0;
    if (first < 0 || check_options(argc, first, &err) < 0 || choose_devices(&run, &err) < 0 ||
        make_share(&run, &err) < 0 || set_environment(&run, &err) < 0)
        return print_error(&err);
    return start_and_wait(&run, argv + first);
}
