/* SPDX-License-Identifier: Apache-2.0 */

/*
 * aliquot-kubectl: what `aliquot doctor` and `aliquot uninstall` use of kubectl, by the
 * ServiceAccount of a pod, for the images, which have no room for kubectl. `aliquot` runs it in
 * kubectl's place where KUBECTL names it. Forwarding a port is not among it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "cli/args.h"
#include "cli/in_pod/relay.h"
#include "kube/api/config.h"

static const char *arg_socket;
static bool arg_server_path;

static const struct opt options[] = {
    {"unix-socket", 0, "FILE", "where it serves", opt_string, &arg_socket},
    {"append-server-path", 0, NULL, "taken: in a pod the API server has no path", opt_flag,
     &arg_server_path},
    OPT_END,
};

static const struct opt_word commands[] = {
    {"proxy", NULL, "passes requests on to the API server, until a signal ends it", false},
    {0},
};

static const struct opt_usage usage = {
    .synopsis = "aliquot-kubectl COMMAND [options]",
    .purpose = "What `aliquot` uses of kubectl, by the ServiceAccount of the pod that it runs in.",
    .title = "Commands",
    .words = commands,
};

/* Returns only where it cannot serve. */
static int serve(struct err *err) {
    struct kube_transport *transport = NULL;
    struct kube_config config = {0};
    struct relay *relay = NULL;
    uv_loop_t loop;
    int r;

    if (!arg_socket)
        return err_set(err, EINVAL, "proxy: give --unix-socket");
    r = kube_config_load(NULL, NULL, NULL, &config, err);
    if (r < 0)
        return r;
    (void) uv_loop_init(&loop);
    r = kube_transport_new(&loop, &config, &transport, err);
    if (r == 0)
        r = relay_start(&loop, arg_socket, transport, &relay, err);
    if (r < 0)
        return r;
    printf("Starting to serve on %s\n", arg_socket);
    (void) fflush(stdout);
    return uv_run(&loop, UV_RUN_DEFAULT);
}

/* Of other commands no options are known. */
static int obey(int argc, char **argv, struct err *err) {
    const char *verb = argc > 1 ? argv[1] : "";
    const char *words[1];
    int n;

    if (verb[0] != '-' && strcmp(verb, "proxy") != 0)
        return err_set(err, EINVAL, "inside a pod there is no kubectl %s, only proxy", verb);
    n = args_parse(options, &usage, argc, argv, words, 1, err);
    return n < 0 ? n : serve(err);
}

int main(int argc, char **argv) {
    struct err err;
    int r = obey(argc, argv, &err);

    if (r >= 0 || r == -ECANCELED)
        return EXIT_SUCCESS;
    fprintf(stderr, "%s\n", err.text);
    return EXIT_FAILURE;
}
