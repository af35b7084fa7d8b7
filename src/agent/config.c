/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/node_config.h"
#include "agent/mig/source.h"
#include "agent/report/metrics.h"
#include "agent/shares/compute_policy.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/opt.h"
#include "model/dialect.h"
#include "model/dra.h"
#include "model/scaling.h"
#include "share/compute_policies.h"
#include "wire/yaml.h"

static const struct opt_usage usage = {
    .synopsis = "aliquot-agent [options]",
    .is_daemon = true,
    .purpose = "Shares the GPUs of this node between pods: device plugins for kubelet, limits for "
               "containers,\n"
               "GPU objects and node capacity for the scheduler, metrics for people. One on each "
               "node, as root,\n"
               "with hostPID.",
    .epilog = "HTTP: /metrics (Prometheus), /healthz (what is wrong, in words), /readyz\n"
              "(without what is wrong with driver, cards and configurations), /usage and\n"
              "/history (JSON).\n"
              "In a pod the API server, token and CA are found as usual; --api-server is for use "
              "outside.",
};

static const char *env_or(const char *name, const char *otherwise) {
    const char *value = getenv(name);

    return value && value[0] ? value : otherwise;
}

/* Where the installed tree and, below `built`, where the build tree has it. */
static const char *beside_us(const char *name, const char *built, char path[static 512]) {
    ssize_t n = readlink("/proc/self/exe", path, 512 - 64);
    char *slash;

    path[n > 0 ? n : 0] = 0;
    slash = strrchr(path, '/');
    if (!slash) {
        (void) snprintf(path, 512, "/usr/lib/aliquot/%s", name);
        return path;
    }
    (void) snprintf(slash, 64, "/../lib/aliquot/%s", name);
    if (access(path, R_OK) < 0)
        (void) snprintf(slash, 64, "/../%s/%s", built, name);
    return path;
}

/* A root of "/" is the empty prefix. */
static const char *as_prefix(const char *root) {
    return strcmp(root, "/") == 0 ? "" : root;
}

static int require_absolute(const char *option, const char *path, struct err *err) {
    if (!path || path[0] == 0 || path[0] == '/')
        return 0;
    return err_set(err, EINVAL, "--%s %s: give an absolute path, containers get it as a mount",
                   option, path);
}

static int check_config(const struct config *c, struct err *err) {
    int r;

    if (!c->shares.node_name || !c->shares.node_name[0])
        return err_set(err, EINVAL,
                       "the node's name is not known: set NODE_NAME from spec.nodeName (downward "
                       "API) or give --node-name");
    if (strspn(c->shares.node_name, "abcdefghijklmnopqrstuvwxyz0123456789.-") !=
            strlen(c->shares.node_name) ||
        strlen(c->shares.node_name) > 253)
        return err_set(err, EINVAL, "--node-name %.100s is not the name of a node",
                       c->shares.node_name);
    r = require_absolute("state-dir", c->shares.state_dir, err);
    if (r == 0)
        r = require_absolute("hook-dir", c->shares.hook_dir, err);
    if (r == 0)
        r = require_absolute("sim-dir", c->sim_dir, err);
    if (r == 0)
        r = require_absolute("driver-root", c->driver_root, err);
    if (r == 0)
        r = require_absolute("dev-root", c->dev_root, err);
    if (r == 0)
        r = require_absolute("host-root", c->shares.host_root, err);
    if (r == 0)
        r = require_absolute("mps-dir", c->shares.mps_dir, err);
    if (r == 0 && c->shares.mps_dir[0] && c->overrides.mps_cards && c->overrides.mps_cards[0])
        r = err_set(err, EINVAL,
                    "--mps-dir is of an MPS daemon that is not the agent's, --mps-cards makes the "
                    "agent run its own: give one of them");
    return r;
}

static int parse_level(const char *value, void *target, struct err *err) {
    int level = log_level_parse(value);

    (void) target;
    if (level < 0)
        return err_set(err, EINVAL, "a log level is error, warn, info or debug, not '%s'", value);
    log_set_level((enum log_level) level);
    return 0;
}

static int parse_reaction(const char *value, void *target, struct err *err) {
    if (overuse_policy_parse(value, target) == 0)
        return 0;
    return err_set(err, EINVAL, "a policy is report or stop, not '%s'", value);
}

static int parse_driver_limits(const char *value, void *target, struct err *err) {
    static const char *const names[] = {[DRIVER_LIMIT_AUTO] = "auto",
                                        [DRIVER_LIMIT_REQUIRED] = "required",
                                        [DRIVER_LIMIT_OFF] = "off"};
    enum driver_limit_policy *ret = target;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) != 0)
            continue;
        *ret = (enum driver_limit_policy) i;
        return 0;
    }
    return err_set(err, EINVAL, "--driver-limits is auto, required or off, not '%s'", value);
}

static int parse_allocator(const char *value, void *target, struct err *err) {
    enum dra_allocator *ret = target;

    if (strcmp(value, "off") == 0) {
        *ret = DRA_NONE;
        return 0;
    }
    if (dra_allocator_parse(value, ret) == 0 && *ret != DRA_NONE)
        return 0;
    return err_set(err, EINVAL,
                   "--resource-claims is off, " DRA_BY_ALIQUOT " or " DRA_BY_KUBE_SCHEDULER
                   ", not '%s'",
                   value);
}

static int parse_rules(const char *value, void *target, struct err *err) {
    const char **ret = target;

    if (overuse_rules_check(value) < 0)
        return err_set(err, EINVAL, "'%s' is no list like team-a=stop,team-b=report", value);
    *ret = value;
    return 0;
}

static int parse_labels(const char *value, void *target, struct err *err) {
    const char **ret = target;

    if (strcmp(value, "node") != 0 && strcmp(value, "off") != 0 && value[0] != '/')
        return err_set(
            err, EINVAL,
            "--labels ($GFD_OUTPUT_FILE) is node, off or the absolute path of a file, not '%s'",
            value);
    *ret = value;
    return 0;
}

static int parse_metric_names(const char *value, void *target, struct err *err) {
    return metric_names_parse(value, target, err);
}

static int parse_auth(const char *value, void *target, struct err *err) {
    bool *asks_token = target;

    if (strcmp(value, "token") != 0 && strcmp(value, "none") != 0)
        return err_set(err, EINVAL, "--usage-auth and --metrics-auth are token or none, not '%s'",
                       value);
    *asks_token = strcmp(value, "token") == 0;
    return 0;
}

static int parse_scaling(const char *value, void *target, struct err *err) {
    uint32_t *ret = target;

    if (scaling_parse(value, ret) == 0)
        return 0;
    return err_set(err, EINVAL, "a factor is a number from 1 to %u like 1.5, not '%s'",
                   SCALING_MAX / SCALING_ONE, value);
}

static int parse_policy(const char *value, void *target, struct err *err) {
    if (compute_policy_parse(value, target) == 0)
        return 0;
    return err_set(err, EINVAL,
                   "a policy (--compute-policy, $ALIQUOT_COMPUTE_POLICY) is " COMPUTE_POLICY_WORDS
                   ", not '%s'",
                   value);
}

static int parse_policies(const char *value, void *target, struct err *err) {
    if (compute_policies_parse(value, target) == 0)
        return 0;
    return err_set(err, EINVAL,
                   "--pod-policies: names of policies with commas between, all or none, not '%s'",
                   value);
}

/* Filled by the table below, which refers to it. */
static struct config given;
static bool given_version;
static const char *given_check;

static const struct opt options[] = {
    {"node-name", 'n', "NAME", "name of this node (default: $NODE_NAME)", opt_string,
     &given.shares.node_name},
    {"listen", 'l', "ADDRESS", "where to serve HTTP (default :9400; \"off\": nowhere)", opt_string,
     &given.listen},
    {"tls", 0, NULL,
     "serve HTTPS, with a certificate of Aliquot's authority (needs aliquot-scheduler with "
     "--agent-tls)",
     opt_flag, &given.tls},
    {"metric-names", 0, "LIST",
     "the names of metrics that /metrics has, with commas between: aliquot, dcgm, hami, "
     "hami-legacy, gpu-manager (default " METRIC_NAMES_DEFAULT ")",
     parse_metric_names, &given.metric_names},
    {"usage-auth", 0, "WORD",
     "which clients may read /usage and /history, which name the pods of all namespaces: token "
     "(default; those with a token of an account that may get gpus/usage) or none (all)",
     parse_auth, &given.usage_asks_token},
    {"metrics-auth", 0, "WORD", "the same of /metrics (default none)", parse_auth,
     &given.metrics_asks_token},
    {"health", 0, "DIR", "set the mark that --probe looks at in this directory", opt_string,
     &given.health},
    {"probe", 0, "FILE", "say by the exit status whether this mark is fresh, and end", opt_string,
     &given.probe},
    {"clean", 0, NULL,
     "instead of serving the node: remove what agents have left on it (`aliquot uninstall`)",
     opt_flag, &given.clean},
    {"host-root", 0, "DIR", "where the host's / is mounted here (default /)", opt_string,
     &given.shares.host_root},
    {"driver-root", 0, "DIR",
     "where the driver is on the host (default $NVIDIA_DRIVER_ROOT, then the configuration, then "
     "the first of / and /run/nvidia/driver that has one)",
     opt_string, &given.driver_root},
    {"dev-root", 0, "DIR",
     "where the driver's device nodes are on the host, in DIR/dev (default $NVIDIA_DEV_ROOT, then "
     "the configuration, then the first of / and the driver's root that has them)",
     opt_string, &given.dev_root},
    {"sim-dir", 0, "DIR", "of the simulated driver (default /run/aliquot-sim)", opt_string,
     &given.sim_dir},
    {"kubelet-dir", 0, "DIR", "kubelet's directory (default /var/lib/kubelet)", opt_string,
     &given.kubelet_dir},
    {"resource-claims", 0, "ALLOCATOR",
     "be a DRA driver: publish the cards in ResourceSlices, and give shares to ResourceClaims that "
     "ALLOCATOR, aliquot or kube-scheduler, has allocated, where the configuration does not say "
     "otherwise of a card (default off)",
     parse_allocator, &given.allocator},
    {"state-dir", 0, "DIR", "our own, same path on the host (default /run/aliquot)", opt_string,
     &given.shares.state_dir},
    {"cdi-dir", 0, "DIR", "where the runtime reads CDI files (default /var/run/cdi)", opt_string,
     &given.shares.cdi_dir},
    {"compute-policy", 0, "POLICY",
     "how containers share a card's time where their pod does not say: " COMPUTE_POLICY_WORDS
     " (default $ALIQUOT_COMPUTE_POLICY, or fixed)",
     parse_policy, &given.shares.compute_policy},
    {"pod-policies", 0, "LIST",
     "the policies that pods may choose by annotation (default all; or none)", parse_policies,
     &given.shares.pod_policies},
    {"hardware-slices", 0, NULL,
     "ask the driver for time-slices by share, too (not tried on hardware yet)", opt_flag,
     &given.shares.hardware_slices},
    {"library", 0, "FILE", "libaliquot.so to put into containers", opt_string, &given.library},
    {"driver-limits", 0, "POLICY",
     "memory limits that the driver keeps itself, from version 615 on: auto (default), required "
     "(no container starts without), off",
     parse_driver_limits, &given.shares.driver_limits},
    {"hook", 0, "FILE", "aliquot-hook, which the container runtime runs for that", opt_string,
     &given.shares.hook},
    {"hook-dir", 0, "DIR",
     "where to put it, same path on the host (default, and where nothing can be executed there: "
     "the state directory)",
     opt_string, &given.shares.hook_dir},
    {"namespace", 0, "NAME",
     "of ConfigMap aliquot-signing (default: $POD_NAMESPACE, aliquot-system)", opt_string,
     &given.namespace},
    {"config-file", 0, "FILE",
     "configuration of the node, in the format of NVIDIA's device plugin; changes take effect "
     "within 2 s (default $CONFIG_FILE)",
     opt_string, &given.config_file},
    {"config-map", 0, "NAME",
     "instead of a file: a ConfigMap in --namespace, of which the node's label "
     "nvidia.com/device-plugin.config ($NODE_LABEL) names the entry",
     opt_string, &given.config_map},
    {"default-config", 0, "NAME", "the entry of a node without the label (default $DEFAULT_CONFIG)",
     opt_string, &given.config_choice.default_name},
    {"fallback-strategies", 0, "LIST",
     "what applies without label and default: the first possible of named (the entry \"default\"), "
     "single (the only entry), empty (default $FALLBACK_STRATEGIES, or all three)",
     opt_string, &given.config_choice.fallbacks},
    {"check-config", 0, "FILE",
     "say whether this file is a configuration; end with status 0 if it is, else 1", opt_string,
     &given_check},
    {"shared-devices-allocation-policy", 0, "POLICY",
     "distributed, packed or aligned (default $SHARED_DEVICES_ALLOCATION_POLICY, then the "
     "configuration)",
     opt_string, &given.overrides.allocation_policy},
    {"on-overuse", 0, "POLICY", "a container holds more than its share: report (default), stop",
     parse_reaction, &given.audit.on_overuse},
    {"on-escape", 0, "POLICY",
     "a container's program goes past the library: report (default), stop", parse_reaction,
     &given.audit.on_escape},
    {"overuse-rules", 0, "NS=POLICY,...", "other policies for both, by namespace", parse_rules,
     &given.audit.overuse_rules},
    {"memory-scaling", 0, "FACTOR",
     "offer FACTOR times the cards' memory (default: as gpu-manager-config says, or 1)",
     parse_scaling, &given.shares.memory_scaling},
    {"labels", 0, "PLACE",
     "where the labels of GPU feature discovery go: node, off, or a file of node feature "
     "discovery, "
     "such as /etc/kubernetes/node-feature-discovery/features.d/gfd (default $GFD_OUTPUT_FILE, or "
     "node)",
     parse_labels, &given.labels.place},
    {"sys-dir", 0, "DIR", "where sysfs is mounted here (default /sys)", opt_string,
     &given.labels.sys_dir},
    {"served-elsewhere", 0, "NAMES",
     "resources that another plugin of the cluster serves, such as nvidia.com/gpu, with commas "
     "between: they and those of the same project ask nothing here (give it to the scheduler, too)",
     opt_string, &given.served_elsewhere},
    {"mig-strategy", 0, "STRATEGY",
     "offer whole MIG instances: none, mixed (as nvidia.com/mig-PROFILE) or single (as "
     "nvidia.com/gpu, which then is also a name for --served-elsewhere; default $MIG_STRATEGY, "
     "then "
     "the configuration, then none)",
     opt_string, &given.overrides.mig_strategy},
    {"mig-config-file", 0, "FILE",
     "mig-parted's configuration file, whose configurations the node's label nvidia.com/mig.config "
     "or aliquot.mig.config name; changes take effect within 2 s (default $MIG_PARTED_CONFIG_FILE, "
     "or the configurations that the cards can have)",
     opt_string, &given.mig_config_file},
    {"mig-config-map", 0, "LIST",
     "instead of a file: ConfigMaps, NAME or NAMESPACE/NAME, with commas between; the entry "
     "config.yaml of the first that exists applies",
     opt_string, &given.mig_config_map},
    {"mig-hooks-file", 0, "FILE",
     "mig-parted's hooks file: programs that run on the host before and after MIG instances change "
     "(default $MIG_PARTED_HOOKS_FILE, or none)",
     opt_string, &given.mig_hooks_file},
    {"mig-label", 0, "KEY",
     "of the node, which names its MIG configuration (default nvidia.com/mig.config; \"off\": not "
     "read)",
     opt_string, &given.mig_label},
    {"kmsg", 0, "FILE",
     "the kernel's log, for XIDs that NVML does not report (default /dev/kmsg; \"off\": not read)",
     opt_string, &given.kmsg},
    {"mps-dir", 0, "DIR",
     "of a running MPS daemon: DIR/pipe, and DIR/shm as its clients' /dev/shm (default: no MPS)",
     opt_string, &given.shares.mps_dir},
    {"mps-cards", 0, "LIST",
     "cards that are shared under MPS, with a control daemon each that the agent runs: all, or "
     "indexes and UUIDs with commas between (default: none)",
     opt_string, &given.overrides.mps_cards},
    {"api-server", 0, "URL", "outside of a pod: https://HOST:PORT", opt_string, &given.api_server},
    {"token-file", 0, "FILE", "bearer token for it", opt_string, &given.token_file},
    {"ca-file", 0, "FILE", "its certificate authority", opt_string, &given.ca_file},
    {"log", 0, "LEVEL", "error, warn, info (default) or debug", parse_level, NULL},
    {"version", 'V', NULL, "print the version and end", opt_flag, &given_version},
    OPT_END,
};

static void set_defaults(struct config *c) {
    static char library[512], hook[512];

    *c = (struct config){
        .shares.node_name = getenv("NODE_NAME"),
        .listen = ":9400",
        .shares.host_root = "",
        .driver_root = getenv("NVIDIA_DRIVER_ROOT"),
        .dev_root = getenv("NVIDIA_DEV_ROOT"),
        .sim_dir = env_or("ALIQUOT_SIM_DIR", "/run/aliquot-sim"),
        .kubelet_dir = "/var/lib/kubelet",
        .shares.state_dir = "/run/aliquot",
        .shares.cdi_dir = "/var/run/cdi",
        .library = beside_us("node/libaliquot.so", "intercept", library),
        .shares.hook = beside_us("aliquot-hook", "agent", hook),
        .shares.hook_dir = "",
        .namespace = env_or("POD_NAMESPACE", "aliquot-system"),
        .usage_asks_token = true,
        .shares.mps_dir = "",
        .config_file = env_or("CONFIG_FILE", env_or("GFD_CONFIG_FILE", NULL)),
        .config_label = env_or("NODE_LABEL", "nvidia.com/device-plugin.config"),
        .config_choice = {.default_name = env_or("DEFAULT_CONFIG", NULL),
                          .fallbacks = env_or("FALLBACK_STRATEGIES", "named,single,empty")},
        .overrides = {.mig_strategy = env_or("MIG_STRATEGY", env_or("GFD_MIG_STRATEGY", NULL)),
                      .allocation_policy = env_or("SHARED_DEVICES_ALLOCATION_POLICY", NULL),
                      .disable_health_checks = env_or("DP_DISABLE_HEALTHCHECKS", NULL),
                      .enable_health_checks = env_or("DP_ENABLE_HEALTHCHECKS", NULL)},
        .served_elsewhere = "",
        .kmsg = "/dev/kmsg",
        .shares.compute_policy = SHARE_FIXED,
        .labels = {.sys_dir = "/sys"},
        .mig_config_file = env_or("MIG_PARTED_CONFIG_FILE", ""),
        .mig_hooks_file = env_or("MIG_PARTED_HOOKS_FILE", ""),
        .mig_label = "nvidia.com/mig.config",
    };
    for (size_t i = 0; i < CONFIG_VARIABLES; i++)
        c->overrides.variables[i] = env_or(config_variable_name(i), NULL);
    (void) compute_policies_parse("all", &c->shares.pod_policies);
    (void) metric_names_parse(METRIC_NAMES_DEFAULT, &c->metric_names, NULL);
}

/* What takes precedence over the configuration of the node, and whether it is valid by itself. */
static int complete_overrides(struct config *c, struct err *err) {
    _cleanup_(node_config_freep) struct node_config *empty = node_config_new();
    int r = dialect_leave(c->served_elsewhere, err);

    if (r == 0)
        r = config_choice_check(&c->config_choice, err);
    if (r == 0 && c->config_map && c->config_file)
        r = err_set(err, EINVAL,
                    "--config-map and --config-file ($CONFIG_FILE) exclude each other");
    if (r == 0 && c->mig_config_map)
        r = c->mig_config_file[0]
                ? err_set(
                      err, EINVAL,
                      "--mig-config-map and --mig-config-file ($MIG_PARTED_CONFIG_FILE) exclude "
                      "each other")
                : mig_source_check(c->mig_config_map, err);
    if (r < 0)
        return r;
    c->overrides.gpu_is_elsewhere = dialect_is_left_name("nvidia.com/gpu");
    return empty ? node_config_override(empty, &c->overrides, err)
                 : err_set(err, ENOMEM, "out of memory");
}

/* Says what the agent would say of the file. */
static int check_file(const char *path, struct err *err) {
    _cleanup_(node_config_freep) struct node_config *c = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    const char *node = given.shares.node_name;
    int r = file_read(path, YAML_SIZE_MAX, &text, err);

    if (r == 0)
        r = node_config_parse(buf_str(&text), text.len, node ? node : "", &c, err);
    if (r == 0)
        r = node_config_override(c, &given.overrides, err);
    if (r != 0)
        return err_wrap(err, "%s", path);
    (void) printf("%s%s: valid\n", buf_str(&c->notes), path);
    return 0;
}

int config_parse(int argc, char **argv, struct config *ret, struct err *err) {
    int r;

    set_defaults(&given);
    given_version = false;
    given_check = NULL;
    r = parse_policy(env_or("ALIQUOT_COMPUTE_POLICY", "fixed"), &given.shares.compute_policy, err);
    if (r == 0)
        r = opt_parse(options, &usage, argc, argv, err);
    if (r < 0)
        return r;
    if (given_version) {
        (void) printf("aliquot-agent %s\n", ALIQUOT_VERSION);
        return -ECANCELED;
    }
    if (r < argc)
        return err_set(err, EINVAL, "unexpected argument '%s'; --help lists the options", argv[r]);
    r = given.labels.place
            ? 0
            : parse_labels(env_or("GFD_OUTPUT_FILE", "node"), &given.labels.place, err);
    if (r == 0)
        r = complete_overrides(&given, err);
    if (r < 0)
        return r;
    if (given_check) {
        r = check_file(given_check, err);
        return r < 0 ? -ENOEXEC : -ECANCELED;
    }
    if (given.probe) {
        *ret = given;
        return 0;
    }
    given.audit.namespace = given.namespace;
    given.shares.host_root = as_prefix(given.shares.host_root);
    r = check_config(&given, err);
    if (r == 0)
        *ret = given;
    return r;
}
