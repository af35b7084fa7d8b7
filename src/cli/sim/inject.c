/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot sim inject` and `aliquot sim show`: faults and state of a running simulated machine. */

#include "cli/sim/inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/num.h"
#include "base/opt.h"
#include "base/text.h"
#include "cli/cli.h"
#include "sim/daemon/config.h"
#include "sim/daemon/control.h"
#include "sim/proto.h"

#define ARGS_MAX 3
#define NOT_GIVEN UINT32_MAX

static const char *arg_dir;
static uint32_t arg_gpu = SIM_ALL;
static uint32_t arg_pid;
static uint32_t arg_nth = NOT_GIVEN;
static uint32_t arg_times = NOT_GIVEN;

static uint32_t arg_gi = NOT_GIVEN, arg_ci = NOT_GIVEN;
static bool arg_force;

static const struct opt inject_options[] = {
    {"dir", 'd', "DIR", "the machine's directory (default $ALIQUOT_SIM_DIR or /run/aliquot-sim)",
     opt_string, &arg_dir},
    {"gpu", 'g', "N", "the card's number in the machine", opt_u32, &arg_gpu},
    {"pid", 'p', "PID", "xid, error, hang: only this process (default: all)", opt_u32, &arg_pid},
    {"gi", 0, "N", "xid: limited to this GPU instance", opt_u32, &arg_gi},
    {"ci", 0, "N", "xid: with --gi, limited to this compute instance of it", opt_u32, &arg_ci},
    {"nth", 0, "N", "error, hang: from the N-th matching call (default 1)", opt_u32, &arg_nth},
    {"force", 0, NULL, "reset, swap-minors: whatever has the card open", opt_flag, &arg_force},
    {"times", 0, "N", "error: number of calls that fail; 0: until `release` (default 1)", opt_u32,
     &arg_times},
    OPT_END,
};

static const struct opt_word action_words[] = {
    {"xid", "NUMBER --gpu N",
     "report an XID with its effect: the contexts of --pid or of all\n"
     "processes are lost (13, 31, ...), all contexts until `reset`\n"
     "(48, 95, ...), or the card (79). With --gi, of that MIG\n"
     "instance only",
     false},
    {"ecc", "corrected|uncorrected [COUNT] --gpu N", "count memory errors", false},
    {"remap", "WHAT [COUNT] --gpu N",
     "rows of its memory. WHAT: correctable, uncorrectable (to be\n"
     "remapped by the next reset: XID 63; Ampere and later), failure\n"
     "(one could not be: XID 64), exhausted (so many banks have no\n"
     "spare row left)",
     false},
    {"retire", "single|double [COUNT] --gpu N",
     "pages are to be retired, by the next reset (XID 63; models\n"
     "before Ampere)",
     false},
    {"link", "LINK down|up --gpu N", "state of an NVLink and its other end (down: XID 74)", false},
    {"sram-threshold", "--gpu N", "its SRAM has had more errors than NVIDIA's threshold", false},
    {"temperature", "DEGREES --gpu N", "of the card (0: as its load has it)", false},
    {"lose", "--gpu N", "the card falls off the bus", false},
    {"return", "--gpu N", "the card comes back", false},
    {"reset", "--gpu N [--force]",
     "reset the card; no process may have it open, and persistence\n"
     "mode must be off. --force: as the host of a virtual machine\n"
     "does, while no process computes there",
     false},
    {"persistence", "on|off --gpu N", "its persistence mode", false},
    {"memory", "SIZE --gpu N", "memory in use that belongs to no process (0: none)", false},
    {"unload", NULL, "unload the driver; its processes lose it", false},
    {"load", NULL, "load the driver", false},
    {"reload", NULL, "unload the driver and load it", false},
    {"error", "CALL STATUS",
     "calls fail; CALL: a function, a pattern such as cuMem*, or one\n"
     "of alloc, launch, cuda, nvml; STATUS: a name or a number; with\n"
     "--gpu N only calls about that card",
     false},
    {"hang", "CALL",
     "calls do not return until they are released; with --gpu N only\n"
     "calls about that card",
     false},
    {"release", "[CALL]", "end errors and hangs, and continue hanging calls", false},
    {"licence", "STATE --gpu N", "licence of a vGPU: licensed, unlicensed or expired", false},
    {"destroy", "GI --gpu N", "a GPU instance is gone, with its contexts", false},
    {"swap-minors", "M --gpu N [--force]",
     "both cards are reset, as by reset, and exchange their minor\n"
     "numbers",
     false},
    {"advance", "TIME", "advance a stepped clock, e.g. by 250us, 2ms, 1s", false},
    OPT_END,
};

static const struct opt_usage inject_usage = {
    .synopsis = "aliquot sim inject [options] ACTION [ARG ...]",
    .purpose = "Injects faults into a running simulated machine.",
    .title = "Actions",
    .words = action_words,
    .epilog = "Example: aliquot sim inject error alloc CUDA_ERROR_OUT_OF_MEMORY --nth 3\n"
              "Exit status: 0; 1 when the action fails; 2 for wrong arguments.",
};

static const struct opt show_options[] = {
    {"dir", 'd', "DIR", "the machine's directory (default $ALIQUOT_SIM_DIR or /run/aliquot-sim)",
     opt_string, &arg_dir},
    OPT_END,
};

static const struct opt_usage show_usage = {
    .synopsis = "aliquot sim show [--dir DIR]",
    .purpose =
        "Prints the state of a simulated machine: one line for each card, process and injected\n"
        "error, as key=value pairs, times in nanoseconds.",
};

/* -- the daemon ------------------------------------------------------------------------------ */

static int connect_daemon(struct err *err) {
    const char *dir = arg_dir ? arg_dir : getenv(SIM_DIR_ENV);
    if (!dir || !*dir)
        dir = SIM_DIR_DEFAULT;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/" SIM_CONTROL_NAME, dir);
    if (n < 0 || (size_t) n >= sizeof(sa.sun_path))
        return err_set(err, ENAMETOOLONG, "%s is too long for the path of a socket", dir);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0)
        return err_errno(err, errno, "no simulated machine answers in %s", dir);
    return take_fd(&fd);
}

/* One request; `ret_text` is the daemon's answer. */
static int send_request(int fd, const struct sim_control *c, struct buf *ret_text,
                        struct err *err) {
    _cleanup_free_ struct sim_control_reply *reply = malloc(sizeof(*reply));
    if (!reply)
        return err_set(err, ENOMEM, "out of memory");
    if (send(fd, c, sizeof(*c), MSG_NOSIGNAL) != (ssize_t) sizeof(*c))
        return err_errno(err, errno, "the connection to the machine is lost");
    ssize_t n = recv(fd, reply, sizeof(*reply), 0);
    ssize_t head = (ssize_t) offsetof(struct sim_control_reply, text);
    if (n < head || reply->len > (size_t) (n - head))
        return err_set(err, EPIPE, "the machine did not answer");
    if (reply->status < 0)
        return err_set(err, -reply->status, "%.*s", (int) reply->len,
                       reply->len ? reply->text : strerror(-reply->status));
    buf_append(ret_text, reply->text, reply->len);
    return 0;
}

/* -- arguments ------------------------------------------------------------------------------- */

static int parse_number(const char *text, uint64_t max, uint32_t *ret, struct err *err) {
    uint64_t n = 0;
    if (num_parse_u64(text, max, &n) < 0)
        return err_set(err, EINVAL, "'%s' is not a number up to %llu", text,
                       (unsigned long long) max);
    *ret = (uint32_t) n;
    return 0;
}

static int parse_xid(struct sim_control *c, char **args, struct err *err) {
    if (arg_gi != NOT_GIVEN && arg_pid)
        return err_set(err, EINVAL, "--pid has no effect with --gi");
    if (arg_gi == NOT_GIVEN && arg_ci != NOT_GIVEN)
        return err_set(err, EINVAL, "--ci needs --gi");
    c->nth = arg_gi + 1;
    c->times = arg_ci + 1;
    return parse_number(args[0], 9999, &c->code, err);
}

static int parse_ecc(struct sim_control *c, char **args, struct err *err) {
    uint32_t count = 1;
    c->code = strcmp(args[0], "uncorrected") == 0;
    if (!c->code && strcmp(args[0], "corrected") != 0)
        return err_set(err, EINVAL, "'%s' is neither corrected nor uncorrected", args[0]);
    int r = args[1] ? parse_number(args[1], UINT32_MAX, &count, err) : 0;
    c->amount = count;
    return r;
}

static int parse_amount(struct sim_control *c, const char *text, struct err *err) {
    uint32_t count = 1;
    int r = text ? parse_number(text, UINT16_MAX, &count, err) : 0;
    if (r == 0 && count == 0)
        return err_set(err, EINVAL, "0 is no count");
    c->amount = count;
    return r;
}

static int parse_remap(struct sim_control *c, char **args, struct err *err) {
    if (strcmp(args[0], "failure") == 0 && args[1])
        return err_set(err, EINVAL, "remap failure takes no count");
    if (strcmp(args[0], "correctable") == 0)
        c->code = SIM_REPAIR_CORRECTED;
    else if (strcmp(args[0], "uncorrectable") == 0)
        c->code = SIM_REPAIR_UNCORRECTED;
    else if (strcmp(args[0], "failure") == 0)
        c->code = SIM_REPAIR_FAILED;
    else if (strcmp(args[0], "exhausted") == 0)
        c->code = SIM_REPAIR_EXHAUSTED;
    else
        return err_set(err, EINVAL,
                       "'%s' is none of correctable, uncorrectable, failure and exhausted",
                       args[0]);
    return parse_amount(c, args[1], err);
}

static int parse_retire(struct sim_control *c, char **args, struct err *err) {
    c->code = strcmp(args[0], "double") == 0 ? SIM_REPAIR_UNCORRECTED : SIM_REPAIR_CORRECTED;
    if (strcmp(args[0], "single") != 0 && strcmp(args[0], "double") != 0)
        return err_set(err, EINVAL, "'%s' is neither single nor double", args[0]);
    return parse_amount(c, args[1], err);
}

static int parse_link(struct sim_control *c, char **args, struct err *err) {
    c->amount = strcmp(args[1], "up") == 0;
    if (!c->amount && strcmp(args[1], "down") != 0)
        return err_set(err, EINVAL, "'%s' is neither up nor down", args[1]);
    return parse_number(args[0], SIM_MAX_LINKS - 1, &c->code, err);
}

static int parse_reset(struct sim_control *c, char **args, struct err *err) {
    (void) args;
    (void) err;
    c->code = arg_force;
    return 0;
}

static int parse_persistence(struct sim_control *c, char **args, struct err *err) {
    c->code = strcmp(args[0], "on") == 0;
    if (!c->code && strcmp(args[0], "off") != 0)
        return err_set(err, EINVAL, "'%s' is neither on nor off", args[0]);
    return 0;
}

static int parse_memory(struct sim_control *c, char **args, struct err *err) {
    if (num_parse_size(args[0], &c->amount) < 0)
        return err_set(err, EINVAL, "'%s' is not a size such as 4Gi", args[0]);
    return 0;
}

/* A function, a pattern, or the name of a kind of calls. */
static int parse_call(struct sim_control *c, char **args, struct err *err) {
    static const struct text_pair kinds[] = {
        {"alloc", "cuMemAlloc*,cuMemCreate,cuArrayCreate*,cuArray3DCreate*,cuMipmappedArrayCreate"},
        {"launch", "cuLaunch*,cuGraphLaunch*"},
        {"cuda", "cu*"},
        {"nvml", "nvml*"},
    };
    const char *names = args[0];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].key, names) == 0)
            names = kinds[i].value;
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "cu", 2) != 0 && strncmp(at, "nvml", 4) != 0)
            return err_set(err, EINVAL,
                           "'%s' is no function of the driver and none of alloc, launch, "
                           "cuda or nvml",
                           args[0]);
    if (strlen(names) >= sizeof(c->names))
        return err_set(err, EINVAL, "more than %zu bytes of names", sizeof(c->names) - 1);
    memcpy(c->names, names, strlen(names) + 1);
    c->pid = arg_pid;
    c->nth = arg_nth == NOT_GIVEN ? 1 : arg_nth;
    return 0;
}

static int parse_release(struct sim_control *c, char **args, struct err *err) {
    return args[0] ? parse_call(c, args, err) : 0;
}

static const struct {
    const char *name;
    uint32_t value;
} statuses[] = {
#define CUDA_ERROR(name, value) {#name, value},
#include "abi/cuda-errors.def"
#undef CUDA_ERROR
#define NVML_STATUS(name, value) {#name, value},
#include "abi/nvml-errors.def"
#undef NVML_STATUS
};

static int parse_error(struct sim_control *c, char **args, struct err *err) {
    uint64_t number = 0;
    int r = parse_call(c, args, err);
    if (r < 0)
        return r;
    c->times = arg_times == NOT_GIVEN ? 1 : arg_times;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (strcmp(statuses[i].name, args[1]) == 0)
            number = statuses[i].value;
    if (number == 0 && (num_parse_u64(args[1], 9999, &number) < 0 || number == 0))
        return err_set(err, EINVAL, "'%s' is no error of the driver, neither name nor number",
                       args[1]);
    c->code = (uint32_t) number;
    return 0;
}

/* -- actions --------------------------------------------------------------------------------- */

static int parse_advance(struct sim_control *c, char **args, struct err *err) {
    return config_parse_duration(args[0], 1, UINT64_MAX, &c->amount, err);
}

/* The number of a GPU instance, or of another card. */
static int parse_index(struct sim_control *c, char **args, struct err *err) {
    return parse_number(args[0], SIM_MAX_GPUS - 1, &c->code, err);
}

static int parse_temperature(struct sim_control *c, char **args, struct err *err) {
    return parse_number(args[0], 150, &c->code, err);
}

static int parse_swap(struct sim_control *c, char **args, struct err *err) {
    c->amount = arg_force;
    return parse_index(c, args, err);
}

static int parse_licence(struct sim_control *c, char **args, struct err *err) {
    enum sim_licence licence = SIM_LICENSED;
    int r = config_parse_licence(args[0], &licence, err);
    c->code = licence;
    return r;
}

static const struct action {
    const char *name;
    uint32_t op;
    uint32_t then;                                     /* a second request, 0: none */
    int least, most;                                   /* arguments */
    enum { GPU_NONE, GPU_OPTIONAL, GPU_REQUIRED } gpu; /* what --gpu is to it */
    int (*parse)(struct sim_control *c, char **args, struct err *err);
    bool of_a_process, counted, repeated; /* --pid, --nth and --times mean something */
} actions[] = {
    {"xid", SIM_DO_XID, 0, 1, 1, GPU_REQUIRED, parse_xid, true, false, false},
    {"ecc", SIM_DO_ECC, 0, 1, 2, GPU_REQUIRED, parse_ecc, false, false, false},
    {"remap", SIM_DO_REMAP, 0, 1, 2, GPU_REQUIRED, parse_remap, false, false, false},
    {"retire", SIM_DO_RETIRE, 0, 1, 2, GPU_REQUIRED, parse_retire, false, false, false},
    {"link", SIM_DO_LINK, 0, 2, 2, GPU_REQUIRED, parse_link, false, false, false},
    {"sram-threshold", SIM_DO_SRAM, 0, 0, 0, GPU_REQUIRED, NULL, false, false, false},
    {"temperature", SIM_DO_TEMPERATURE, 0, 1, 1, GPU_REQUIRED, parse_temperature, false, false,
     false},
    {"lose", SIM_DO_LOSE, 0, 0, 0, GPU_REQUIRED, NULL, false, false, false},
    {"return", SIM_DO_RETURN, 0, 0, 0, GPU_REQUIRED, NULL, false, false, false},
    {"reset", SIM_DO_RESET, 0, 0, 0, GPU_REQUIRED, parse_reset, false, false, false},
    {"persistence", SIM_DO_PERSISTENCE, 0, 1, 1, GPU_REQUIRED, parse_persistence, false, false,
     false},
    {"memory", SIM_DO_PRESSURE, 0, 1, 1, GPU_REQUIRED, parse_memory, false, false, false},
    {"unload", SIM_DO_UNLOAD, 0, 0, 0, GPU_NONE, NULL, false, false, false},
    {"load", SIM_DO_LOAD, 0, 0, 0, GPU_NONE, NULL, false, false, false},
    {"reload", SIM_DO_UNLOAD, SIM_DO_LOAD, 0, 0, GPU_NONE, NULL, false, false, false},
    {"error", SIM_DO_FAIL, 0, 2, 2, GPU_OPTIONAL, parse_error, true, true, true},
    {"hang", SIM_DO_HANG, 0, 1, 1, GPU_OPTIONAL, parse_call, true, true, false},
    {"release", SIM_DO_RELEASE, 0, 0, 1, GPU_NONE, parse_release, false, false, false},
    {"licence", SIM_DO_LICENCE, 0, 1, 1, GPU_REQUIRED, parse_licence, false, false, false},
    {"destroy", SIM_DO_DESTROY, 0, 1, 1, GPU_REQUIRED, parse_index, false, false, false},
    {"swap-minors", SIM_DO_SWAP, 0, 1, 1, GPU_REQUIRED, parse_swap, false, false, false},
    {"advance", SIM_DO_ADVANCE, 0, 1, 1, GPU_NONE, parse_advance, false, false, false},
};

static const struct action *find_action(const char *name) {
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

/* Options and arguments in any order. Returns the number of arguments. */
static int collect_arguments(int argc, char **argv, char *args[ARGS_MAX + 1], struct err *err) {
    int n = 0;
    for (int at = 0; at < argc - 1;) {
        int first = opt_parse(inject_options, &inject_usage, argc - at, argv + at, err);
        if (first < 0)
            return first;
        if (at + first >= argc)
            break;
        if (n == ARGS_MAX + 1)
            return err_set(err, EINVAL, "too many arguments; see --help");
        args[n++] = argv[at + first];
        at += first;
    }
    return n;
}

/* An option without effect is an error. */
static int check_options(const struct action *a, struct err *err) {
    bool limited = arg_gi != NOT_GIVEN || arg_ci != NOT_GIVEN;
    bool resets = a->op == SIM_DO_RESET || a->op == SIM_DO_SWAP;
    const char *stray = arg_force && !resets                     ? "--force"
                        : limited && a->op != SIM_DO_XID         ? "--gi"
                        : !a->of_a_process && arg_pid            ? "--pid"
                        : !a->counted && arg_nth != NOT_GIVEN    ? "--nth"
                        : !a->repeated && arg_times != NOT_GIVEN ? "--times"
                                                                 : NULL;
    if (stray)
        return err_set(err, EINVAL, "%s: %s has no effect here", a->name, stray);
    if (a->gpu != GPU_OPTIONAL && (a->gpu == GPU_REQUIRED) != (arg_gpu != SIM_ALL))
        return err_set(err, EINVAL,
                       a->gpu == GPU_REQUIRED ? "%s: --gpu is required"
                                              : "%s: --gpu has no effect here",
                       a->name);
    return 0;
}

static int parse_command(int argc, char **argv, const struct action **ret_action,
                         struct sim_control *c, struct err *err) {
    char *args[ARGS_MAX + 2] = {NULL};
    int n = collect_arguments(argc, argv, args, err);
    if (n < 0)
        return n;
    if (n == 0)
        return err_set(err, EINVAL, "the action is missing; see --help");
    const struct action *a = find_action(args[0]);
    char meant[OPT_MEANT_SIZE];
    if (!a)
        return err_set(err, EINVAL, "no action '%s'; %s", args[0],
                       opt_meant(&inject_usage, args[0], meant));
    if (n - 1 < a->least || n - 1 > a->most)
        return err_set(err, EINVAL, "%s: %s; see --help", a->name,
                       n - 1 < a->least ? "an argument is missing" : "too many arguments");
    int r = check_options(a, err);
    if (r < 0)
        return r;
    *c = (struct sim_control){.magic = SIM_CONTROL_MAGIC,
                              .op = a->op,
                              .pid = arg_pid,
                              .minor = a->gpu == GPU_NONE ? 0 : arg_gpu};
    *ret_action = a;
    return a->parse ? a->parse(c, args + 1, err) : 0;
}

static int print_error(const char *command, const struct err *err, int status) {
    (void) fprintf(stderr, "aliquot sim %s: %s\n", command, err->text);
    return status;
}

int cmd_sim_inject(int argc, char **argv) {
    struct err err;
    struct sim_control c;
    const struct action *action = NULL;
    int r = parse_command(argc, argv, &action, &c, &err);
    if (r == -ECANCELED)
        return 0;
    if (r < 0)
        return print_error("inject", &err, EXIT_USAGE);
    _cleanup_close_ int fd = connect_daemon(&err);
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    r = fd < 0 ? fd : send_request(fd, &c, &text, &err);
    if (r == 0 && action->then) {
        c.op = action->then;
        r = send_request(fd, &c, &text, &err);
    }
    return r < 0 ? print_error("inject", &err, EXIT_FAILURE) : 0;
}

int cmd_sim_show(int argc, char **argv) {
    struct err err;
    int first = opt_parse(show_options, &show_usage, argc, argv, &err);
    if (first == -ECANCELED)
        return 0;
    if (first >= 0 && first < argc)
        first = err_set(&err, EINVAL, "unexpected argument '%s'", argv[first]);
    if (first < 0)
        return print_error("show", &err, EXIT_USAGE);
    const struct sim_control c = {.magic = SIM_CONTROL_MAGIC, .op = SIM_DO_SHOW};
    _cleanup_close_ int fd = connect_daemon(&err);
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = fd < 0 ? fd : send_request(fd, &c, &text, &err);
    if (r < 0)
        return print_error("show", &err, EXIT_FAILURE);
    (void) fputs(buf_str(&text), stdout);
    return 0;
}
