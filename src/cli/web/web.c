/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot web`: the cluster's cards as a page, on the user's own machine and with the user's own
 * rights. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "cli/web/worker.h"

#define API_GROUP "/apis/elasticgpu.io/v1alpha1"
#define PORT_MAX 65535
#define INTERVAL_MAX 3600

static struct worker_source arg_source = {.system = "aliquot-system"};
static uint32_t arg_port, arg_interval = 2;
static bool arg_open;

struct web {
    uv_loop_t loop;
    uv_async_t news;
    uv_signal_t signals[3];
    struct journal *journal;
    struct worker *worker;
    struct web_server *server;
    struct opener opener;
};

/* ---- between the server and the thread ---- */

static void on_viewers(void *userdata, unsigned n) {
    struct web *web = userdata;

    if (web->worker)
        worker_viewers(web->worker, n);
}

static void on_history(void *userdata, struct question *question) {
    struct web *web = userdata;

    worker_ask(web->worker, question);
}

static int on_command(void *userdata, const char *const *words, struct buf *ret) {
    (void) userdata;
    return self_run(words, ret);
}

static void on_change(void *userdata) {
    struct web *web = userdata;

    (void) uv_async_send(&web->news);
}

static void on_news(uv_async_t *async) {
    struct web *web = async->data;
    struct question *question;

    web_server_news(web->server);
    while ((question = worker_answered(web->worker)))
        web_server_answer(web->server, question);
}

/* ---- start and end ---- */

static void on_signal(uv_signal_t *signal, int number) {
    (void) number;
    uv_stop(signal->loop);
}

/* Whether kubectl, the login and Aliquot are there. Before the address is printed: a login can ask
 * for something. */
static int check_cluster(struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = api_get(API_GROUP, &text, err);

    if (r == -ENOENT)
        return err_set(err, ENOENT,
                       "the cluster does not know elasticgpu.io: Aliquot is not installed in it "
                       "(docs/install.md)");
    return r;
}

static void watch_signals(struct web *web) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void) uv_signal_init(&web->loop, &web->signals[i]);
        (void) uv_signal_start(&web->signals[i], on_signal, numbers[i]);
    }
}

static int start(struct web *web, struct err *err) {
    const struct web_operations operations = {on_viewers, on_history, on_command, web};

    web->journal = journal_new(0);
    if (!web->journal)
        return err_errno(err, ENOMEM, "cannot start");
    int r = web_server_start(&web->loop, arg_port, arg_source.system, web->journal, &operations,
                             &web->server, err);
    if (r < 0)
        return r;
    return worker_start(&arg_source, web->journal, on_change, web, &web->worker, err);
}

static void print_address(struct web *web) {
    const struct guard *guard = web_server_guard(web->server);
    char address[128];
    struct err err;

    (void) snprintf(address, sizeof(address), "http://127.0.0.1:%u/?token=%s", guard->port,
                    guard->token);
    printf("%s\nThe address is as good as your login to the cluster. Ctrl-C ends it.\n", address);
    (void) fflush(stdout);
    if (arg_open && opener_open(&web->opener, address, &err) < 0)
        fprintf(stderr, "aliquot web: %s\n", err.text);
}

/* What an answer is being made from can go on in threads: the process ends without them. */
static void end(struct web *web) {
    opener_done(&web->opener);
    proxy_end();
    worker_stop(web->worker);
    (void) fflush(stdout);
    _exit(EXIT_SUCCESS);
}

static int serve(struct err *err) {
    static struct web web; /* until the end of all threads */

    if (uv_loop_init(&web.loop) < 0 || uv_async_init(&web.loop, &web.news, on_news) < 0)
        return err_set(err, EIO, "cannot start an event loop");
    web.news.data = &web;
    watch_signals(&web);
    int r = start(&web, err);
    if (r < 0)
        return r;
    print_address(&web);
    (void) uv_run(&web.loop, UV_RUN_DEFAULT);
    end(&web);
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
    return 0;
}

int cmd_web(int argc, char **argv) {
    static const struct opt options[] = {
        {"port", 'p', "N", "port on 127.0.0.1 (default: a free one)", opt_u32, &arg_port},
        {"open", 0, NULL, "open the address with xdg-open", opt_flag, &arg_open},
        {"interval", 'i', "SECONDS", "rest between two readings (default 2)", opt_u32,
         &arg_interval},
        {"namespace", 'n', "NAME", "only what pods of this namespace have", opt_string,
         &arg_source.namespace},
        {"system", 0, "NAME", "namespace of Aliquot (default aliquot-system)", opt_string,
         &arg_source.system},
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot web [options]",
        .purpose =
            "Shows the GPUs of a cluster, their allocations, what waits and why, in a browser "
            "of this\n"
            "machine. Prints an address with a token, and serves it until Ctrl-C.",
        .epilog = "Uses kubectl (or $KUBECTL) with your context: the page shows what you may read, "
                  "and says what\n"
                  "you may not. Nothing is read while no page is open. It is served on 127.0.0.1 "
                  "only, and\n"
                  "tells nothing without the token. Exit status: 0; 1 when the cluster does "
                  "not answer, or\n"
                  "the port is not free; 2 for wrong arguments.",
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    if (r >= 0)
        r = check_words(&err);
    bool understood = r >= 0;
    if (understood)
        r = check_cluster(&err);
    if (r >= 0)
        r = serve(&err);
    return args_exit("web", r, understood, &err);
}
