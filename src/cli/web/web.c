/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot web`: the cluster's cards as a page, on the user's own machine and with the user's own
 * rights; or in the cluster, with the rights of each viewer. */

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/cleanup.h"
#include "cli/args.h"
#include "cli/cluster/api.h"
#include "cli/cluster/proxy.h"
#include "cli/kubectl_options.h"
#include "cli/self.h"
#include "cli/web/opener.h"
#include "cli/web/server.h"
#include "cli/web/sessions.h"
#include "kube/api/config.h"

#define API_GROUP "/apis/elasticgpu.io/v1alpha1"
#define PORT_MAX 65535
#define INTERVAL_MAX 3600
#define DRAIN_MS 2000
#define LISTEN_CLUSTER ":8080"
#define ADDRESS_MAX 128

static struct worker_source arg_source = {.system = "aliquot-system"};
static uint32_t arg_port, arg_interval = 2;
static bool arg_open, arg_in_cluster;
static const char *arg_listen = LISTEN_CLUSTER, *arg_hosts = "", *arg_tls_cert, *arg_tls_key;
static const char *arg_api_server, *arg_ca;

struct web {
    uv_loop_t loop;
    uv_signal_t signals[3];
    uv_timer_t drain;
    struct kube_config config; /* of a page in the cluster, and its address as a login */
    struct api_login cluster;
    struct sessions *sessions;
    struct web_server *server;
    struct opener opener;
};

/* ---- between the server and the sessions ---- */

static int on_command(const struct api_login *login, const char *const *words, struct buf *ret) {
    login_use(login->token ? login : NULL);
    int r = self_run(words, ret);
    login_use(NULL);
    return r;
}

static void on_news(void *userdata, struct session *session) {
    struct web *web = userdata;

    if (web->server)
        web_server_news(web->server, session);
}

static void write_address(const struct guard *guard, char to[static ADDRESS_MAX]) {
    (void) snprintf(to, ADDRESS_MAX, "http://127.0.0.1:%u/?code=%s", guard->port, guard->code);
}

static void on_opened(const struct guard *guard) {
    char address[ADDRESS_MAX];

    write_address(guard, address);
    printf("It was opened. The next address:\n%s\n", address);
    (void) fflush(stdout);
}

static void on_answer(void *userdata, struct question *question) {
    struct web *web = userdata;

    web_server_answer(web->server, question);
}

/* ---- start and end ---- */

static void on_drained(uv_timer_t *timer) {
    uv_stop(timer->loop);
}

/* A page that takes nothing is not waited for, nor is any on a user's machine: all are the same
 * user's. */
static void on_signal(uv_signal_t *signal, int number) {
    struct web *web = signal->data;

    (void) number;
    if (!arg_in_cluster) {
        uv_stop(signal->loop);
        return;
    }
    (void) uv_timer_start(&web->drain, on_drained, DRAIN_MS, 0);
    web_server_drain(web->server);
}

/* Whether kubectl, the login and Aliquot are there. Before the address is printed: a login can ask
 * for something. */
static int check_cluster(struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    return api_get_own(API_GROUP, "does not know elasticgpu.io", &text, err);
}

/* An address that is read by none is no reason to end. A handler, as programs that are started
 * would inherit that the signal is ignored. */
static void on_pipe(int number) {
    (void) number;
}

static void watch_signals(struct web *web) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void) uv_signal_init(&web->loop, &web->signals[i]);
        web->signals[i].data = web;
        (void) uv_signal_start(&web->signals[i], on_signal, numbers[i]);
    }
    (void) signal(SIGPIPE, on_pipe);
}

static int start_sessions(struct web *web, struct err *err) {
    struct sessions_options options = {.loop = &web->loop,
                                       .source = arg_source,
                                       .news = on_news,
                                       .answer = on_answer,
                                       .userdata = web};

    if (arg_in_cluster) {
        struct kube_address address;
        int r = kube_config_load_address(arg_api_server, arg_ca, &web->config, err);
        if (r == 0)
            r = kube_address_parse(web->config.server, &address, err);
        if (r < 0)
            return r;
        web->cluster = (struct api_login){web->config.server, web->config.ca_file, NULL};
        options.cluster = &web->cluster;
    }
    return sessions_start(&options, &web->sessions, err);
}

static int start(struct web *web, struct err *err) {
    char own[32];

    int r = start_sessions(web, err);
    if (r < 0)
        return r;
    (void) snprintf(own, sizeof(own), "127.0.0.1:%u", arg_port);
    const struct web_options options = {
        .listen = arg_in_cluster ? arg_listen : own,
        .tls_cert = arg_tls_cert,
        .tls_key = arg_tls_key,
        .hosts = arg_in_cluster ? arg_hosts : NULL,
        .system = arg_source.system,
        .sessions = web->sessions,
        .command = on_command,
        .opened = on_opened,
    };
    return web_server_start(&web->loop, &options, &web->server, err);
}

static void print_address(struct web *web) {
    char address[ADDRESS_MAX];
    struct err err;

    write_address(web_server_guard(web->server), address);
    printf("%s\nIt is good once, and as good as your login to the cluster. Ctrl-C ends it.\n",
           address);
    (void) fflush(stdout);
    if (arg_open && opener_open(&web->opener, address, &err) < 0)
        fprintf(stderr, "aliquot web: %s\n", err.text);
}

/* What an answer is being made from can go on in threads: the process ends without them. */
static void end(struct web *web) {
    opener_done(&web->opener);
    web_server_close(web->server);
    proxy_end();
    if (!arg_in_cluster)
        sessions_stop(web->sessions);
    (void) fflush(stdout);
    _exit(EXIT_SUCCESS);
}

static int serve(struct err *err) {
    static struct web web; /* until the end of all threads */

    if (uv_loop_init(&web.loop) < 0)
        return err_set(err, EIO, "cannot start an event loop");
    (void) uv_timer_init(&web.loop, &web.drain);
    watch_signals(&web);
    int r = start(&web, err);
    if (r < 0)
        return r;
    if (!arg_in_cluster)
        print_address(&web);
    (void) uv_run(&web.loop, UV_RUN_DEFAULT);
    end(&web);
    return 0;
}

/* Of the two ways to serve each has its own options. */
static int check_way(struct err *err) {
    if (arg_in_cluster && (arg_port || arg_open || arg_source.namespace ||
                           kubectl_options.context || kubectl_options.kubeconfig))
        return err_set(err, EINVAL,
                       "--in-cluster takes neither --port, --open, --namespace, --context nor "
                       "--kubeconfig");
    if (!arg_in_cluster && (strcmp(arg_listen, LISTEN_CLUSTER) != 0 || *arg_hosts || arg_tls_cert ||
                            arg_tls_key || arg_api_server || arg_ca))
        return err_set(
            err, EINVAL,
            "--listen, --host, --tls-cert, --tls-key, --api-server and --ca-file are for "
            "--in-cluster");
    if (!arg_tls_cert != !arg_tls_key)
        return err_set(err, EINVAL, "--tls-cert and --tls-key are given together");
    if (arg_api_server && !arg_ca)
        return err_set(err, EINVAL, "--api-server needs --ca-file");
    return 0;
}

static int check_words(struct err *err) {
    if (arg_port > PORT_MAX)
        return err_set(err, EINVAL, "--port takes 1 to %d", PORT_MAX);
    if (arg_interval == 0 || arg_interval > INTERVAL_MAX)
        return err_set(err, EINVAL, "--interval takes 1 to %d seconds", INTERVAL_MAX);
    if (!api_is_name(arg_source.system))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", arg_source.system);
    if (arg_source.namespace && !api_is_name(arg_source.namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", arg_source.namespace);
    arg_source.rest_ms = arg_interval * 1000;
    return check_way(err);
}

/* Many threads and little in each: an arena for all takes less. */
static void bound_heap(void) {
    (void) mallopt(M_ARENA_MAX, 2);
    (void) mallopt(M_MMAP_THRESHOLD, 64 << 10);
    (void) mallopt(M_TRIM_THRESHOLD, 64 << 10);
}

int cmd_web(int argc, char **argv) {
    static const struct opt options[] = {
        {"port", 'p', "N", "port on 127.0.0.1 (default: a free one)", opt_u32, &arg_port},
        {"open", 0, NULL, "open the address with xdg-open", opt_flag, &arg_open},
        {"interval", 'i', "SECONDS", "rest between two readings (default 2)", opt_u32,
         &arg_interval},
        NAMESPACE_OPTION(&arg_source.namespace),
        SYSTEM_OPTION(&arg_source.system),
        {"in-cluster", 0, NULL, "serve users of the cluster, each with a token of its own",
         opt_flag, &arg_in_cluster},
        {"listen", 0, "ADDRESS", "with --in-cluster: where (default " LISTEN_CLUSTER ")",
         opt_string, &arg_listen},
        {"host", 0, "NAME[,NAME ...]", "names under which it is reached, beside localhost",
         opt_string, &arg_hosts},
        {"tls-cert", 0, "FILE", "PEM, read again when it changes (default: plain HTTP)", opt_string,
         &arg_tls_cert},
        {"tls-key", 0, "FILE", "PEM", opt_string, &arg_tls_key},
        {"api-server", 0, "URL", "https://HOST:PORT (as the pod's environment says)", opt_string,
         &arg_api_server},
        {"ca-file", 0, "FILE", "PEM, of the API server (default: that of the service account)",
         opt_string, &arg_ca},
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot web [options]",
        .purpose =
            "Shows the GPUs of a cluster, their allocations, what waits and why, in a browser "
            "of this\n"
            "machine until Ctrl-C. Prints an address that is good once, and the next one when it "
            "was opened.",
        .epilog = "Uses kubectl (or $KUBECTL) with your context: the page shows what you may read, "
                  "and says what\n"
                  "you may not. Nothing is read while no page is open. It is served on 127.0.0.1 "
                  "only, and\n"
                  "tells nothing without the token. With --in-cluster it is the program of a "
                  "Deployment, has\n"
                  "no right of its own, and asks for a token of Kubernetes (docs/web.md). "
                  "Exit status: 0; 1 when the cluster does "
                  "not answer, or\n"
                  "the port is not free; 2 for wrong arguments.",
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    if (r >= 0)
        r = check_words(&err);
    bool understood = r >= 0;
    if (understood)
        bound_heap();
    if (understood && !arg_in_cluster)
        r = check_cluster(&err);
    if (r >= 0)
        r = serve(&err);
    return args_exit("web", r, understood, &err);
}
