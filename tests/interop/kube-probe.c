/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Does with our API server client what its standard input says, and prints what comes of it.
 * Usage: kube-probe SERVER TOKEN_FILE CA_FILE. Orders, one a line:
 *     request METHOD TIMEOUT_MS PATH [BODY]
 *     exchange PATH   a GET without the layer that reads the answer
 *     reflect PAGE PATH [QUERY]
 *     synced          whether the reflector is
 *     began           how many ms before its end its last list was asked for
 *     stop            the reflector
 *     stand MS        still, as a process does that is paused
 *     close           everything, and exit
 * With ALIQUOT_FAIL_MALLOC=n its nth allocation fails; how many there were tells the last line.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/num.h"
#include "fail-malloc.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "kube/api/transport.h"
#include "wire/lines.h"

struct probe {
    uv_loop_t *loop;
    struct kube_client *client;
    struct kube_reflector *reflector;
    uv_pipe_t input;
    uint64_t listed_ms; /* loop time at which the last list was whole */
    struct line_splitter lines;
    char in[4096];
};

static void on_response(const struct kube_response *response, void *userdata) {
    (void) userdata;
    const char *kind = json_string(json_get(response->body, "kind"));
    printf("response %d maybe=%d reason=%s kind=%s text=%s size=%zu\n", response->status,
           response->maybe_applied, response->reason, kind ? kind : "-", response->text,
           response->size);
    fflush(stdout);
}

static const char *name_of(struct json object) {
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    return name ? name : "?";
}

static void on_sync_begin(void *userdata) {
    (void) userdata;
    puts("begin");
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    static const char *const names[] = {"added", "modified", "deleted"};
    (void) userdata;
    printf("%s %s\n", names[event], name_of(object));
    fflush(stdout);
}

static void on_sync_end(void *userdata) {
    struct probe *probe = userdata;
    probe->listed_ms = uv_now(probe->loop);
    puts("end");
    fflush(stdout);
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    printf("trouble %s %s\n", retry_ms <= 1000 ? "soon" : "later", text);
    fflush(stdout);
}

static const struct kube_reflector_handlers handlers = {on_sync_begin, on_object, on_sync_end,
                                                        on_trouble};

static void order_request(struct probe *probe, const char *method, const char *timeout,
                          const char *path, const char *body) {
    struct err err;
    uint64_t ms = 0;
    (void) num_parse_u64(timeout, 1000000, &ms);
    if (kube_request(probe->client, method, path,
                     strcmp(method, "PATCH") == 0 ? KUBE_MERGE_PATCH : NULL, body,
                     body ? strlen(body) : 0, (unsigned) ms, on_response, probe, NULL, &err) < 0)
        printf("error %s\n", err.text);
}

static void on_status(int http_status, void *user) {
    (void) user;
    printf("exchange %d ", http_status);
}

static int on_data(const void *data, size_t size, void *user) {
    (void) data;
    (void) size;
    (void) user;
    return 0;
}

static void on_done(const struct kube_outcome *outcome, void *user) {
    (void) user;
    printf("retry=%" PRIu32 " error=%d\n", outcome->retry_s, outcome->error);
    fflush(stdout);
}

static void order_exchange(struct probe *probe, const char *path) {
    static const struct kube_exchange_handlers plain = {on_status, on_data, on_done};
    const struct kube_exchange_options options = {
        .method = "GET", .path = path, .timeout_ms = 10000};
    struct kube_exchange *exchange;
    struct err err;
    if (kube_exchange_start(kube_client_transport(probe->client), &options, &plain, probe,
                            &exchange, &err) < 0)
        printf("error %s\n", err.text);
}

static void order_reflect(struct probe *probe, const char *page, const char *path,
                          const char *query) {
    struct err err;
    uint64_t n = 0;
    (void) num_parse_u64(page, 100000, &n);
    const struct kube_reflector_options options = {
        .path = path,
        .query = query,
        .page = (unsigned) n,
        .watch_seconds = 60,
        .retry_min_ms = 20,
        .retry_max_ms = 500,
        .may_be_absent = strstr(path, "optional") != NULL,
    };
    if (kube_reflector_start(probe->client, &options, &handlers, probe, &probe->reflector, &err) <
        0)
        printf("error %s\n", err.text);
}

static void on_closed(void *userdata) {
    (void) userdata;
    puts("closed");
    fflush(stdout);
}

static void order_close(struct probe *probe) {
    if (uv_is_closing((uv_handle_t *) &probe->input))
        return;
    if (probe->reflector)
        kube_reflector_stop(probe->reflector);
    kube_client_close(probe->client, on_closed, probe);
    uv_close((uv_handle_t *) &probe->input, NULL);
}

static void order_stand(const char *time) {
    uint64_t ms = 0;
    (void) num_parse_u64(time, 10000, &ms);
    uv_sleep((unsigned) ms);
}

static int on_line(const char *line, size_t size, void *user) {
    struct probe *probe = user;
    char text[8192], *rest = text, *word[5] = {0};
    (void) snprintf(text, sizeof(text), "%.*s", (int) size, line);
    for (size_t i = 0; i < 4; i++)
        word[i] = strsep(&rest, " ");
    word[4] = rest; /* a body may hold spaces */
    if (strcmp(word[0], "request") == 0)
        order_request(probe, word[1], word[2], word[3], word[4]);
    else if (strcmp(word[0], "exchange") == 0)
        order_exchange(probe, word[1]);
    else if (strcmp(word[0], "reflect") == 0)
        order_reflect(probe, word[1], word[2], word[3]);
    else if (strcmp(word[0], "relist") == 0)
        kube_reflector_relist(probe->reflector);
    else if (strcmp(word[0], "synced") == 0)
        printf("synced %d\n", kube_reflector_is_synced(probe->reflector));
    else if (strcmp(word[0], "began") == 0)
        printf("began %" PRIu64 "\n",
               probe->listed_ms - kube_reflector_list_began(probe->reflector));
    else if (strcmp(word[0], "stop") == 0)
        kube_reflector_stop(take_ptr(probe->reflector));
    else if (strcmp(word[0], "stand") == 0)
        order_stand(word[1]);
    else if (strcmp(word[0], "close") == 0)
        order_close(probe);
    fflush(stdout);
    return 0;
}

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *ret) {
    (void) suggested;
    struct probe *probe = handle->data;
    *ret = uv_buf_init(probe->in, sizeof(probe->in));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *data) {
    struct probe *probe = stream->data;
    if (n > 0)
        (void) line_splitter_feed(&probe->lines, data->base, (size_t) n, on_line, probe);
    else if (n < 0)
        order_close(probe);
}

int main(int argc, char **argv) {
    struct probe probe = {.loop = uv_default_loop()};
    struct kube_config config;
    struct err err;
    uint64_t nth = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: %s SERVER TOKEN_FILE CA_FILE\n", argv[0]);
        return 2;
    }
    const char *fail = getenv("ALIQUOT_FAIL_MALLOC");
    if (fail)
        (void) num_parse_u64(fail, SIZE_MAX, &nth);
    fail_malloc_at(nth);
    if (kube_config_load(argv[1], argv[2], argv[3], &config, &err) < 0 ||
        kube_client_new(probe.loop, &config, &probe.client, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    kube_config_done(&config);
    line_splitter_init(&probe.lines, 65536);
    (void) uv_pipe_init(probe.loop, &probe.input, 0);
    probe.input.data = &probe;
    (void) uv_pipe_open(&probe.input, 0);
    (void) uv_read_start((uv_stream_t *) &probe.input, alloc_cb, on_input);
    (void) uv_run(probe.loop, UV_RUN_DEFAULT);
    line_splitter_done(&probe.lines);
    if (fail)
        puts(fail_malloc_end() ? "failed" : "not failed");
    return uv_loop_close(probe.loop) == 0 ? 0 : 3;
}
