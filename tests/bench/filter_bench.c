/* SPDX-License-Identifier: Apache-2.0 */

/* How long the extender's filter takes: a full answer for one pod over N nodes of G cards each,
 * with two pods on every other card: as a function call for a pod of a new shape (cold_call), for
 * the next pod of the same shape (call), and that over HTTP with keep-alive, as kube-scheduler asks
 * (no prefix). One node changes before each. The nodes are in --states different states, of which
 * a new shape costs one judgement each. Nodes are named in the order in which kube-scheduler names
 * them: two of its threads take CHUNK nodes at a time and append to the same list. Prints one
 * `name<TAB>value` a line, in nanoseconds. With --cpu, of calls the time that they were on a CPU,
 * for a machine that is busy otherwise. With --evict, calls begin with the caches empty, as where
 * other processes have used the CPU since the last call. */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/err.h"
#include "base/opt.h"
#include "place/policies/policies.h"
#include "place/workload/workload_model.h"
#include "scheduler/extender/extender.h"
#include "wire/http.h"

#define GIB ((uint64_t) 1 << 30)
#define UID "7b0f7f0e-1a5b-4b6e-9a55-5d1c2f8d7a11"
#define MEMORY "12884901888" /* bytes; there are always that many digits */

static uint32_t arg_nodes = 1000, arg_gpus = 8, arg_rounds = 2000, arg_states = 1000;
static const char *arg_policy = "esc";
static bool arg_cpu, arg_evict;

static const struct opt options[] = {
    {"nodes", 'n', "N", "nodes in the cluster (1000)", opt_u32, &arg_nodes},
    {"gpus", 'g', "N", "cards per node (8)", opt_u32, &arg_gpus},
    {"rounds", 'r', "N", "filters of each kind (2000)", opt_u32, &arg_rounds},
    {"states", 's', "N", "that nodes are in (1000)", opt_u32, &arg_states},
    {"policy", 'p', "NAME", "of placement, which has learned from the pods that are there (esc)",
     opt_string, &arg_policy},
    {"cpu", 'c', NULL, "CPU time of calls", opt_flag, &arg_cpu},
    {"evict", 'e', NULL, "empty the CPU's caches before each call", opt_flag, &arg_evict},
    OPT_END,
};
static const struct opt_usage usage = {
    .synopsis = "filter_bench [options]",
    .purpose = "Measures the extender's filter.",
};

#define CHUNK 71           /* of 5,000 nodes, kube-scheduler's parallelize.chunkSizeFor() */
#define CACHES (48u << 20) /* bytes; more than all caches hold */

struct bench {
    struct extender extender;
    struct place_model *model;
    struct buf request;
    size_t names_at; /* in the request */
    char *caches;
    uint64_t *samples;
    uv_loop_t loop;
    struct http_server *server;
    unsigned port;
    uv_async_t finished;
};

static uint64_t now_ns(bool cpu) {
    struct timespec t;
    clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}

static void must(bool ok, const char *what) {
    if (ok)
        return;
    fprintf(stderr, "filter_bench: %s\n", what);
    exit(1);
}

static int trust(const char *uid, const char *node, const char *text, const char *signature,
                 uint64_t *ret_signer, void *userdata) {
    (void) uid, (void) node, (void) text, (void) signature, (void) ret_signer, (void) userdata;
    return 0;
}

static bool always(void *userdata) {
    (void) userdata;
    return true;
}

/* ---- the cluster ---- */

static void add_pod(struct state *s, const char *node, uint32_t card, uint32_t which,
                    uint32_t core) {
    struct container_request req = {
        .container = "main", .phase = CONTAINER_APP, .cards = 1, .core = core, .memory = 8 * GIB};
    struct pod pod = {.request = {.n = 1, .containers = {req}}};
    char text[256];
    snprintf(pod.uid, sizeof(pod.uid), "%s-%u-%u", node, card, which);
    snprintf(pod.name, sizeof(pod.name), "%s", pod.uid);
    snprintf(pod.namespace, sizeof(pod.namespace), "default");
    snprintf(pod.node, sizeof(pod.node), "%s", node);
    snprintf(text, sizeof(text),
             "{\"v\":1,\"node\":\"%s\",\"containers\":{\"main\":[{\"index\":%u,\"uuid\":"
             "\"GPU-%s-%u\",\"core\":%u,\"memory\":%" PRIu64 "}]}}",
             node, card, node, card, core, 8 * GIB);
    pod.assignment = text;
    pod.signature = text;
    must(state_pod_seen(s, &pod, 0) == 0, "out of memory");
}

/* `state`: pods on every other card ask 20 to 50 percent by its digits to the base of 31. */
static void add_node(struct state *s, const char *name, uint32_t state) {
    must(state_node_seen(s, name) == 0, "out of memory");
    for (uint32_t i = 0; i < arg_gpus; i++) {
        struct gpu_object gpu = {.index = i, .memory = 80 * GIB, .healthy = true};
        snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", name, i);
        snprintf(gpu.node, sizeof(gpu.node), "%s", name);
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%.30s-%u", name, i);
        must(state_gpu_seen(s, &gpu, NULL) == 0, "out of memory");
        if (i % 2)
            continue;
        add_pod(s, name, i, 0, 20 + state % 31);
        add_pod(s, name, i, 1, 30);
        state /= 31;
    }
}

/* A pod as the API server shows one: with the fields that managers leave behind. */
static void put_request(struct buf *out) {
    buf_puts(out,
             "{\"Pod\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"train\","
             "\"namespace\":\"default\",\"uid\":\"" UID "\","
             "\"managedFields\":[");
    for (int i = 0; i < 20; i++)
        buf_printf(out,
                   "%s{\"manager\":\"kubectl\",\"operation\":\"Update\",\"fieldsV1\":{"
                   "\"f:spec\":{\"f:containers\":{\"k:{\\\"name\\\":\\\"c%d\\\"}\":{}}}}}",
                   i ? "," : "", i);
    buf_puts(out,
             "]},\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"example.com/train:1\","
             "\"resources\":{\"limits\":{\"cpu\":\"4\",\"elasticgpu.io/gpu-core\":\"30\","
             "\"elasticgpu.io/gpu-memory\":\"" MEMORY "\"}}}],\"schedulerName\":\"default\"},"
             "\"status\":{\"phase\":\"Pending\"}},\"Nodes\":null,\"NodeNames\":[");
}

/* The last part of the request, in another order each time. */
static void put_names(struct bench *b) {
    static uint64_t random = 1;
    uint32_t at[2] = {0, 0}, end[2] = {0, 0}, next = 0;
    b->request.len = b->names_at;
    for (uint32_t i = 0; i < arg_nodes; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint32_t which = random & 1;
        if (at[which] == end[which] && next == arg_nodes)
            which = !which;
        if (at[which] == end[which]) {
            at[which] = next;
            next = arg_nodes - next < CHUNK ? arg_nodes : next + CHUNK;
            end[which] = next;
        }
        buf_printf(&b->request, "%s\"gpu-node-%04u.example.internal\"", i ? "," : "", at[which]++);
    }
    buf_puts(&b->request, "]}");
    must(buf_error(&b->request) == 0, "out of memory");
}

static void evict_caches(struct bench *b) {
    for (size_t i = 0; i < CACHES; i += 64)
        b->caches[i]++;
}

static void build(struct bench *b) {
    char name[64];
    b->extender = (struct extender){.state = state_new(trust, NULL), .ready = always};
    b->model = place_model_new();
    must(b->extender.state && b->model && extender_init(&b->extender) == 0, "out of memory");
    b->extender.state->policy = place_policy_find(arg_policy);
    must(b->extender.state->policy != NULL, "no such policy");
    state_learn_from(b->extender.state, b->model, -1);
    for (uint32_t i = 0; i < arg_nodes; i++) {
        snprintf(name, sizeof(name), "gpu-node-%04u.example.internal", i);
        add_node(b->extender.state, name, i % (arg_states ? arg_states : 1));
    }
    put_request(&b->request);
    b->names_at = b->request.len;
    put_names(b);
    b->caches = calloc(1, CACHES);
    must(b->caches != NULL, "out of memory");
}

/* Something changes between two filters: the cards of one node are to be counted again. In the cold
 * case no pod that asks so many bytes has been seen before, so nothing is remembered of any node.
 */
static void disturb(struct bench *b, uint32_t round, bool cold) {
    char name[64], memory[sizeof(MEMORY)];
    char *at = memmem(b->request.data, b->request.len, "gpu-memory\":\"", 13);
    must(at != NULL, "no memory asked");
    snprintf(memory, sizeof(memory), "%011" PRIu64, 12 * GIB + (cold ? round + 1 : 0));
    memcpy(at + 13, memory, sizeof(memory) - 1);
    state_pod_gone(b->extender.state, UID); /* what a pod asks is fixed */
    snprintf(name, sizeof(name), "gpu-node-%04u.example.internal", round % arg_nodes);
    state_touch(state_node_find(b->extender.state, name));
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return x < y ? -1 : x > y;
}

static void report(struct bench *b, const char *prefix) {
    qsort(b->samples, arg_rounds, sizeof(*b->samples), by_value);
    printf("%smedian_ns\t%" PRIu64 "\n", prefix, b->samples[arg_rounds / 2]);
    printf("%sp99_ns\t%" PRIu64 "\n", prefix, b->samples[arg_rounds - 1 - arg_rounds / 100]);
}

static void measure_calls(struct bench *b, bool cold) {
    struct buf answer = BUF_INIT(0);
    for (uint32_t i = 0; i < arg_rounds; i++) {
        disturb(b, i, cold);
        put_names(b);
        if (arg_evict)
            evict_caches(b);
        buf_reset(&answer);
        uint64_t start = now_ns(arg_cpu);
        int r = extender_filter(&b->extender, b->request.data, b->request.len, i, &answer);
        b->samples[i] = now_ns(arg_cpu) - start;
        must(r == 0 && memmem(answer.data, answer.len, "NodeNames\":[\"", 13), "filter refused");
    }
    buf_done(&answer);
    report(b, cold ? "cold_call_" : "call_");
}

static void on_filter(struct http_exchange *exchange, void *userdata) {
    static uint32_t round;
    struct bench *b = userdata;
    struct buf answer = BUF_INIT(0);
    size_t len;
    const char *body = http_body(exchange, &len);
    disturb(b, round++, false);
    (void) extender_filter(&b->extender, body, len, 0, &answer);
    http_reply(exchange, 200, "application/json", &answer);
}

static void send_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        must(n > 0, "cannot send");
        data += n;
        len -= (size_t) n;
    }
}

/* Reads one answer; the connection stays. */
static void read_answer(int fd, struct buf *in) {
    buf_reset(in);
    for (;;) {
        void *room = buf_reserve(in, 1 << 16);
        must(room != NULL, "out of memory");
        ssize_t n = recv(fd, room, 1 << 16, 0);
        must(n > 0, "cannot receive");
        buf_commit(in, (size_t) n);
        const char *end = memmem(in->data, in->len, "\r\n\r\n", 4);
        const char *length = end ? strcasestr(buf_str(in), "content-length:") : NULL;
        if (length && in->len >= (size_t) (end + 4 - in->data) + strtoul(length + 15, NULL, 10))
            break;
    }
    must(strncmp(in->data, "HTTP/1.1 200", 12) == 0, "filter failed");
}

static int connect_to(unsigned port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    must(fd >= 0 && connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0,
         "cannot connect");
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void *client(void *userdata) {
    struct bench *b = userdata;
    struct buf request = BUF_INIT(0), answer = BUF_INIT(0);
    int fd = connect_to(b->port);
    buf_printf(&request, "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
               b->request.len);
    buf_append(&request, b->request.data, b->request.len);
    for (uint32_t i = 0; i < arg_rounds; i++) {
        uint64_t start = now_ns(false);
        send_all(fd, request.data, request.len);
        read_answer(fd, &answer);
        b->samples[i] = now_ns(false) - start;
    }
    (void) close(fd);
    buf_done(&request);
    buf_done(&answer);
    uv_async_send(&b->finished);
    return NULL;
}

static void on_finished(uv_async_t *async) {
    struct bench *b = async->data;
    http_server_close(b->server);
    uv_close((uv_handle_t *) async, NULL);
}

static void measure_http(struct bench *b) {
    static const struct http_route routes[] = {{"POST", "/filter", on_filter}, HTTP_ROUTE_END};
    const struct http_options o = {
        .listen = "127.0.0.1:0", .routes = routes, .userdata = b, .max_body = 16 << 20};
    struct err err;
    pthread_t thread;
    must(uv_loop_init(&b->loop) == 0, "no loop");
    must(http_server_start(&b->loop, &o, &b->server, &err) == 0, "cannot listen");
    must(uv_async_init(&b->loop, &b->finished, on_finished) == 0, "no async");
    b->finished.data = b;
    b->port = http_server_port(b->server);
    must(pthread_create(&thread, NULL, client, b) == 0, "no thread");
    (void) uv_run(&b->loop, UV_RUN_DEFAULT);
    (void) pthread_join(thread, NULL);
    (void) uv_loop_close(&b->loop);
    report(b, "");
}

int main(int argc, char **argv) {
    struct bench b = {.request = BUF_INIT(0)};
    struct err err;
    int r = opt_parse(options, &usage, argc, argv, &err);
    if (r == -ECANCELED)
        return 0;
    must(r >= 0, err.text);
    must(arg_nodes > 0 && arg_gpus > 0 && arg_gpus <= PLACE_CARDS_MAX && arg_rounds > 0,
         "nothing to measure");
    b.samples = calloc(arg_rounds, sizeof(*b.samples));
    must(b.samples != NULL, "out of memory");
    build(&b);
    measure_calls(&b, true);
    measure_calls(&b, false);
    measure_http(&b);
    extender_done(&b.extender);
    b.extender.state = state_free(b.extender.state);
    place_model_free(b.model);
    buf_done(&b.request);
    free(b.caches);
    free(b.samples);
    return 0;
}
