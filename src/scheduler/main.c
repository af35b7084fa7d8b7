/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/health.h"
#include "base/log.h"
#include "base/opt.h"
#include "model/dialect.h"
#include "model/placement_policies.h"
#include "place/policies/policies.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/daemon/uninstall_check.h"
#include "scheduler/pages/pages.h"

static struct scheduler_options arg = {
    .listen = "127.0.0.1:9401",
    .name_space = "aliquot-system",
    .agent_token = "/var/run/secrets/elasticgpu.io/agent/token",
    .routes = scheduler_routes,
    .metrics_routes = scheduler_metrics_routes,
};
static const char *arg_log = "info";
static const char *arg_probe;
static const char *arg_policy;
static const char *arg_elsewhere = "";
static bool arg_version, arg_check_uninstall;

static const struct opt options[] = {
    {"listen", 'l', "ADDRESS:PORT", "where kube-scheduler asks (127.0.0.1:9401)", opt_string,
     &arg.listen},
    {"tls-cert", 0, "FILE", "serve HTTPS with this PEM certificate", opt_string, &arg.tls_cert},
    {"tls-key", 0, "FILE", "its PEM key", opt_string, &arg.tls_key},
    {"metrics-listen", 0, "ADDRESS:PORT", "serve /metrics, and nothing else, here too (not at all)",
     opt_string, &arg.metrics_listen},
    {"agent-tls", 0, NULL, "sign the certificates of agents that serve HTTPS, and show one to them",
     opt_flag, &arg.agent_tls},
    {"dra", 0, NULL, "allocate ResourceClaims of the DeviceClass gpu.elasticgpu.io, too", opt_flag,
     &arg.dra},
    {"webhook-listen", 0, "ADDRESS:PORT", "serve the admission webhook here (not at all)",
     opt_string, &arg.webhook_listen},
    {"metrics-api-listen", 0, "ADDRESS:PORT",
     "serve custom.metrics.k8s.io and external.metrics.k8s.io to the API server here (not at all)",
     opt_string, &arg.metrics_api_listen},
    {"agent-token-file", 0, "FILE",
     "token that the agents are asked for figures with, where the file exists "
     "(/var/run/secrets/elasticgpu.io/agent/token)",
     opt_string, &arg.agent_token},
    {"kube-scheduler-config", 0, "FILE",
     "the configuration of the kube-scheduler in this pod: the webhook gives pods the name of its "
     "first profile, and those that name another scheduler get an Event (no such kube-scheduler)",
     opt_string, &arg.kube_scheduler_config},
    {"api-server", 0, "URL", "https://HOST:PORT (as the pod's environment says)", opt_string,
     &arg.api_server},
    {"token-file", 0, "FILE", "bearer token for the API server", opt_string, &arg.token_file},
    {"ca-file", 0, "FILE", "PEM certificates to trust the API server by", opt_string, &arg.ca_file},
    {"namespace", 'n', "NAME", "where the signing key and the Lease are kept (aliquot-system)",
     opt_string, &arg.name_space},
    {"identity", 0, "NAME", "of this replica, as the Lease names it (host and process)", opt_string,
     &arg.identity},
    {"health", 0, "DIR", "set the marks that --probe looks at in this directory", opt_string,
     &arg.health},
    {"probe", 0, "FILE", "only look at a mark (DIR/alive, DIR/ready): status 0 if it is fresh",
     opt_string, &arg_probe},
    {"placement-policy", 0, "NAME",
     "of pods that name none: " PLACEMENT_POLICY_WORDS " (default binpack)", opt_string,
     &arg_policy},
    {"served-elsewhere", 0, "NAMES",
     "resources that another plugin of the cluster serves, such as nvidia.com/gpu, with commas "
     "between: they and those of the same project ask nothing here (give it to the agents, too)",
     opt_string, &arg_elsewhere},
    {"check-uninstall", 0, NULL,
     "only print the pods that hold shares, and end: with status 0 if there are none", opt_flag,
     &arg_check_uninstall},
    {"log-level", 0, "LEVEL", "error, warn, info or debug (info)", opt_string, &arg_log},
    {"version", 0, NULL, "print the version and exit", opt_flag, &arg_version},
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot-scheduler [options]",
    .is_daemon = true,
    .purpose = "Extends kube-scheduler (filter, prioritize, bind) so that pods share GPUs.",
    .epilog =
        "Serves POST /filter /prioritize /bind /preempt and GET /healthz /livez /metrics /status\n"
        "/explain.",
};

/* Unique to this process. In Kubernetes the pod's name is better: a restarted process sees that its
 * predecessor of that name is dead. */
static const char *own_identity(void) {
    static char text[HOST_NAME_MAX + 64];
    char host[HOST_NAME_MAX + 1] = "";
    (void) gethostname(host, sizeof(host) - 1);
    (void) snprintf(text, sizeof(text), "%s_%ld_%llx", host, (long) getpid(),
                    (unsigned long long) uv_hrtime());
    return text;
}

static int run(struct err *err) {
    struct scheduler scheduler;
    uv_loop_t *loop = uv_default_loop();
    int r = scheduler_start(&scheduler, loop, &arg, err);
    if (r == 0) {
        log_info("aliquot-scheduler " ALIQUOT_VERSION " starts as %s", arg.identity);
        (void) uv_run(loop, UV_RUN_DEFAULT);
        log_info("stopping");
        r = scheduler.failed ? err_set(err, EIO, "cannot go on") : 0;
    }
    scheduler_done(&scheduler);
    (void) uv_loop_close(loop);
    return r;
}

int main(int argc, char **argv) {
    struct err err;
    int r = opt_parse(options, &usage, argc, argv, &err);
    if (r == -ECANCELED)
        return EXIT_SUCCESS;
    if (r >= 0 && r < argc)
        r = err_set(&err, EINVAL, "unexpected argument '%s'", argv[r]);
    if (r < 0) {
        fprintf(stderr, "aliquot-scheduler: %s\n", err.text);
        return 2;
    }
    if (arg_version) {
        puts("aliquot-scheduler " ALIQUOT_VERSION);
        return EXIT_SUCCESS;
    }
    if (arg_probe) {
        if (health_probe(arg_probe, &err) == 0)
            return EXIT_SUCCESS;
        fprintf(stderr, "aliquot-scheduler: %s\n", err.text);
        return EXIT_FAILURE;
    }
    arg.policy = arg_policy ? place_policy_find(arg_policy) : NULL;
    if (arg_policy && !arg.policy) {
        fprintf(stderr, "aliquot-scheduler: there is no placement policy %s\n", arg_policy);
        return 2;
    }
    if (dialect_leave(arg_elsewhere, &err) < 0) {
        fprintf(stderr, "aliquot-scheduler: --served-elsewhere: %s\n", err.text);
        return 2;
    }
    int level = log_level_parse(arg_log);
    if (level < 0) {
        fprintf(stderr, "aliquot-scheduler: --log-level must be error, warn, info or debug\n");
        return 2;
    }
    log_set_level((enum log_level) level);
    if (!arg.identity)
        arg.identity = own_identity();
    if ((arg_check_uninstall ? uninstall_check(&arg, &err) : run(&err)) < 0) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
