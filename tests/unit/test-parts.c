/* SPDX-License-Identifier: Apache-2.0 */

/* What the agent says of a node with a card in MIG mode: no figure counts an instance beside the
 * card that it is a part of, and no share is given of either. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "agent/audit/audit.h"
#include "agent/audit/usage.h"
#include "agent/backends/backend.h"
#include "agent/backends/resource.h"
#include "agent/cluster/keys.h"
#include "agent/cluster/pods.h"
#include "agent/health/cards.h"
#include "agent/report/http.h"
#include "agent/report/publish.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "fake-monitor.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "kube/objects/gpu_object.h"
#include "model/dialect.h"
#include "wire/http.h"
#include "wire/json.h"

#define CARD (80 * GIB)
#define ROUNDS_MAX 100000

/* ---- the node ---- */

static struct health_cards health_cards;

static uint32_t no_holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return 0;
}

/* As the monitor does with a new snapshot. */
static void judge_devices(void) {
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        health_cards_judge(&health_cards, &snapshot.devices[i]);
}

static void set_devices(void) {
    static const struct gpu_device devices[] = {
        {.index = 0, .divided = true, .uuid = "GPU-divided", .memory = CARD},
        {.kind = GPU_MIG_INSTANCE,
         .uuid = "MIG-0",
         .parent = "GPU-divided",
         .memory = 40 * GIB,
         .mig = {.gi = 2, .ci = 0, .profile = "3g.40gb"},
         .sample = {.attributable = 1, .memory_used = 3 * GIB}},
        {.kind = GPU_MIG_INSTANCE,
         .index = 1,
         .uuid = "MIG-1",
         .parent = "GPU-divided",
         .memory = 10 * GIB},
        {.index = 1, .uuid = "GPU-whole", .memory = CARD},
    };

    snapshot.ndevices = sizeof(devices) / sizeof(devices[0]);
    memcpy(snapshot.devices, devices, sizeof(devices));
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        snapshot.devices[i].healthy = true;
    memset(&health_cards, 0, sizeof(health_cards));
    health_cards.options = (struct health_cards_options){
        .rules = &health_defaults, .state_dir = "/nowhere", .holders = no_holders};
    judge_devices();
}

/* ---- the API server is the test ---- */

static struct {
    kube_response_cb callback; /* of the open request; NULL: none is open */
    void *userdata;
    char method[8], path[256], body[16384];
} api;
static struct kube_reflector_handlers node_watch, gpu_watch;
static void *watcher;

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);
int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret_reflector, struct err *err);
void __wrap_kube_reflector_stop(struct kube_reflector *r);
void __wrap_kube_reflector_relist(struct kube_reflector *r);
bool __wrap_kube_reflector_is_synced(const struct kube_reflector *r);

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    (void) client, (void) content_type, (void) timeout_ms, (void) err;
    assert_null(api.callback);
    api.callback = on_response;
    api.userdata = userdata;
    (void) snprintf(api.method, sizeof(api.method), "%s", method);
    (void) snprintf(api.path, sizeof(api.path), "%s", path);
    (void) snprintf(api.body, sizeof(api.body), "%.*s", (int) size, body);
    *ret_call = (struct kube_call *) &api;
    return 0;
}

int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret_reflector, struct err *err) {
    (void) client, (void) err;
    *ret_reflector = NULL;
    if (strcmp(options->path, "/api/v1/nodes") == 0)
        node_watch = *handlers;
    if (strcmp(options->path, GPU_OBJECTS_PATH) == 0)
        gpu_watch = *handlers;
    watcher = userdata;
    return 0;
}

void __wrap_kube_reflector_stop(struct kube_reflector *r) {
    (void) r;
}

void __wrap_kube_reflector_relist(struct kube_reflector *r) {
    (void) r;
}

bool __wrap_kube_reflector_is_synced(const struct kube_reflector *r) {
    (void) r;
    return true;
}

static void answer(const char *text) {
    struct kube_response response = {.status = 200, .text = "", .reason = ""};
    kube_response_cb callback = api.callback;
    _cleanup_json_ struct json_parser *parser = NULL;

    assert_int_equal(json_open(text, strlen(text), &parser, &response.body, NULL), 0);
    api.callback = NULL;
    callback(&response, api.userdata);
}

/* ---- the reports ---- */

static const struct whole_rows whole_rows;

struct world {
    uv_loop_t loop;
    char dir[64];
    struct shares shares;
    struct audit audit;
    struct prestarts prestarts;
    struct report report;
    unsigned closing;
};

static void on_prestart(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata) {
    (void) call, (void) resource, (void) ids, (void) nids, (void) userdata;
}

static const struct gpu_snapshot *devices(void *userdata) {
    (void) userdata;
    return &snapshot;
}

static void on_something(void *userdata) {
    (void) userdata;
}

static void on_state(const struct resource *r, bool registered, const char *why, void *userdata) {
    (void) r, (void) registered, (void) why, (void) userdata;
}

static void on_pod(const struct pod_entry *e, void *userdata) {
    (void) e, (void) userdata;
}

static void on_trouble(const char *text, void *userdata) {
    (void) text, (void) userdata;
}

static int setup(void **state) {
    static const struct pods_handlers pods = {on_pod, on_pod, on_something, on_trouble, NULL};
    struct kubelet_options kubelet = {.devices = devices,
                                      .on_prestart = on_prestart,
                                      .on_checkpoint = on_something,
                                      .on_state = on_state,
                                      .on_detached = on_something};
    struct world *w = calloc(1, sizeof(*w));
    struct kubelet *k;

    assert_non_null(w);
    set_devices();
    assert_int_equal(uv_loop_init(&w->loop), 0);
    (void) snprintf(w->dir, sizeof(w->dir), "/tmp/aliquot-parts-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    kubelet.dir = w->dir;
    assert_int_equal(kubelet_start(&w->loop, &kubelet, &k, NULL), 0);
    w->shares.loop = &w->loop;
    w->shares.options.node_name = "node-a";
    w->shares.options.state_dir = w->dir;
    assert_int_equal(pods_start(NULL, "node-a", &pods, &w->shares.pods, NULL), 0);
    assert_int_equal(keys_start(NULL, "ns", on_something, NULL, &w->shares.keys, NULL), 0);
    w->audit.shares = &w->shares;
    audit_start(&w->audit);
    w->prestarts.shares = &w->shares;
    w->report = (struct report){.listen = "127.0.0.1:0",
                                .kubelet_dir = w->dir,
                                .labels = {.place = "off", .sys_dir = w->dir},
                                .shares = &w->shares,
                                .audit = &w->audit,
                                .health = &health_cards,
                                .prestarts = &w->prestarts,
                                .kubelet = k,
                                .capacity_known = true,
                                .started = uv_now(&w->loop) - MONITOR_STALE_MS - 1};
    assert_int_equal(report_http_start(&w->report, NULL), 0);
    w->report.whole_rows = &whole_rows;
    assert_int_equal(publisher_start(&w->report, &w->report.publisher, NULL), 0);
    *state = w;
    return 0;
}

static void on_closed(void *userdata) {
    ((struct world *) userdata)->closing--;
}

static void close_handle(uv_handle_t *handle, void *userdata) {
    (void) userdata;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static int teardown(void **state) {
    struct world *w = *state;

    w->closing = 2;
    api.callback = NULL;
    report_http_stop(&w->report);
    publisher_stop(w->report.publisher, on_closed, w);
    kubelet_close((struct kubelet *) (uintptr_t) w->report.kubelet, on_closed, w);
    while (w->closing > 0)
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    keys_stop(w->shares.keys);
    pods_stop(w->shares.pods);
    audit_stop(&w->audit);
    uv_walk(&w->loop, close_handle, NULL);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void) dir_remove(w->dir, NULL);
    free(w);
    return 0;
}

/* The answer to GET, with its head. */
static void get(struct world *w, const char *path, struct buf *out) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) http_server_port(w->report.http)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char request[128], part[4096];
    ssize_t n = -1;

    (void) snprintf(request, sizeof(request),
                    "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    assert_int_equal(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    for (unsigned i = 0; i < ROUNDS_MAX && n != 0; i++) {
        (void) uv_run(&w->loop, UV_RUN_NOWAIT);
        n = recv(fd, part, sizeof(part), MSG_DONTWAIT);
        if (n > 0)
            buf_append(out, part, (size_t) n);
    }
    assert_int_equal(n, 0);
    assert_int_equal(buf_error(out), 0);
}

/* The sum of the samples of a family. */
static double sum_of(const char *text, const char *family) {
    size_t len = strlen(family);
    double sum = 0;

    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n'))
        if (strncmp(line + 1, family, len) == 0 && line[1 + len] == '{')
            sum += strtod(strstr(line, "} ") + 2, NULL);
    return sum;
}

/* How many samples of a family have that text in their labels. */
static unsigned samples_of(const char *text, const char *family, const char *label) {
    size_t len = strlen(family);
    unsigned n = 0;

    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        const char *found = strstr(line + 1, label), *end = strchr(line + 1, '\n');

        n += strncmp(line + 1, family, len) == 0 && line[1 + len] == '{' && found && found < end;
    }
    return n;
}

/* ---- tests ---- */

static void shares_are_of_whole_cards(void **state) {
    const struct resource *core = &resources[0];

    (void) state;
    assert_int_equal(core->backend->list(core, &snapshot), core->per_card);
    assert_non_null(gpu_find_card(&snapshot, "GPU-whole"));
    assert_null(gpu_find_card(&snapshot, "GPU-divided"));
    assert_null(gpu_find_card(&snapshot, "MIG-0"));
}

static void metrics(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    get(*state, "/metrics", &out);
    assert_true(sum_of(buf_str(&out), "aliquot_gpu_memory_total_bytes") == (double) (2 * CARD));
    assert_true(sum_of(buf_str(&out), "aliquot_gpu_memory_capacity_bytes") == (double) CARD);
    assert_non_null(strstr(buf_str(&out), "UUID=\"GPU-divided\""));
    assert_true(sum_of(buf_str(&out), "aliquot_gpu_instance_memory_total_bytes") ==
                (double) (50 * GIB));
    assert_non_null(strstr(buf_str(&out), "aliquot_gpu_instance_memory_used_bytes{node=\"node-a\","
                                          "gpu=\"0\",uuid=\"MIG-0\",parent=\"GPU-divided\","
                                          "GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"2\","
                                          "compute_instance=\"0\"} 3221225472\n"));
}

/* As dcgm-exporter: the memory of a card in MIG mode by instance, under the card's UUID; figures of
 * the chip once; whole cards have no label of instances. */
static void metrics_of_dcgm(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    const char *page;

    snapshot.devices[0].sample.memory_used = 9 * GIB;
    snapshot.devices[0].sample.power_mw = 300000;
    snapshot.devices[1].sample.power_mw = 300000;
    snapshot.devices[3].sample.memory_used = 1 * GIB;
    get(*state, "/metrics", &out);
    page = buf_str(&out);
    assert_true(sum_of(page, "DCGM_FI_DEV_FB_USED") == (3 + 1) * 1024);
    assert_true(sum_of(page, "DCGM_FI_DEV_POWER_USAGE") == 300);
    assert_int_equal(samples_of(page, "DCGM_FI_DEV_FB_USED", "GPU_I_ID=\"2\""), 1);
    assert_int_equal(samples_of(page, "DCGM_FI_DEV_FB_USED", "UUID=\"GPU-divided\""), 2);
    assert_int_equal(samples_of(page, "DCGM_FI_DEV_FB_USED", "UUID=\"GPU-whole\""), 1);
    assert_int_equal(samples_of(page, "DCGM_FI_DEV_FB_USED", "GPU_I"), 2);
}

static void usage(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    _cleanup_json_ struct json_parser *parser = NULL;
    uint64_t memory = 0, capacity = 0, value;
    struct json root, gpu;
    struct json_iter it;
    const char *body;
    unsigned n = 0;

    get(*state, "/usage", &out);
    body = strstr(buf_str(&out), "\r\n\r\n");
    assert_int_equal(json_open(body, strlen(body), &parser, &root, NULL), 0);
    it = json_iter(json_get(root, "gpus"));
    for (; json_next(&it, NULL, &gpu); n++) {
        assert_true(json_u64(json_get(gpu, "memory"), &value));
        memory += value;
        assert_true(json_u64(json_get(gpu, "memoryCapacity"), &value));
        capacity += value;
    }
    assert_int_equal(n, 2);
    assert_true(memory == 2 * CARD && capacity == CARD);
}

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static void expect_text(struct json v, const char *key, const char *text) {
    assert_string_equal(json_string(json_get(v, key)), text);
}

/* The instances of a divided card, and the pods that have them whole. */
static void usage_of_instances(void **state) {
    static const char *const mine = "MIG-1";
    const struct pod pod = {.uid = "u1", .namespace = "ns", .name = "p"};
    struct world *w = *state;
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct slot_grant grant;
    struct slot *slot;
    struct json root, instance, holder;
    struct json_iter it, cards;

    assert_int_equal(slot_store_load(&w->shares.slots, w->dir, no_bad, NULL, NULL), 0);
    assert_int_equal(slot_grant_whole(&pod, "main", &mine, 1, &grant, NULL), 0);
    assert_int_equal(
        slot_fill(&w->shares.slots, "00000000000000000000000000000001", &grant, &slot, NULL), 0);
    text_copy(snapshot.devices[2].mig.profile, sizeof(snapshot.devices[2].mig.profile), "1g.10gb");
    get(w, "/usage", &out);
    slot_store_done(&w->shares.slots);
    assert_int_equal(json_open(strstr(buf_str(&out), "\r\n\r\n"),
                               strlen(strstr(buf_str(&out), "\r\n\r\n")), &parser, &root, NULL),
                     0);
    cards = json_iter(json_get(root, "gpus"));
    assert_true(json_next(&cards, NULL, &root));
    assert_int_equal(json_size(json_get(root, "instances")), 2);
    it = json_iter(json_get(root, "instances"));
    assert_true(json_next(&it, NULL, &instance));
    expect_text(instance, "uuid", "MIG-0");
    assert_int_equal(json_size(json_get(instance, "holders")), 0);
    assert_true(json_next(&it, NULL, &instance));
    expect_text(instance, "uuid", "MIG-1");
    expect_text(instance, "profile", "1g.10gb");
    it = json_iter(json_get(instance, "holders"));
    assert_true(json_next(&it, NULL, &holder));
    expect_text(holder, "namespace", "ns");
    expect_text(holder, "pod", "p");
    expect_text(holder, "container", "main");
    assert_true(json_next(&cards, NULL, &root));
    assert_false(json_valid(json_get(root, "instances")));
}

/* An unhealthy instance is a problem of the node, under its own name. */
static void health(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    snapshot.devices[2].healthy = false;
    get(*state, "/healthz", &out);
    assert_non_null(strstr(buf_str(&out), "MIG instance 1 (MIG-1) is unhealthy"));
}

/* The node as it is after the write: conditions come after the capacity. */
static void answer_node(void) {
    static char capacity[1024]; /* as it was written: "capacity":{...} */
    bool condition = strstr(api.body, "\"conditions\"") != NULL;
    char text[2 * sizeof(api.body)], memory[64];

    (void) snprintf(memory, sizeof(memory), "\"" RESOURCE_MEMORY "\":\"%llu\"",
                    (unsigned long long) CARD);
    if (!condition) {
        const char *start = api.body + strlen("{\"status\":{");

        assert_non_null(strstr(api.body, memory));
        (void) snprintf(capacity, sizeof(capacity), "%.*s", (int) strlen(start) - 2, start);
    }
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"},\"status\":{\"nodeInfo\":{},"
                    "%s%s%s",
                    capacity, condition ? "," : "}}",
                    condition ? api.body + strlen("{\"status\":{") : "");
    answer(text);
}

/* The next write to the node or to the object of the whole card, and its answer. */
static void expect_write(const char *path, const char *part, const char *object) {
    char text[2 * sizeof(api.body)];

    assert_non_null(api.callback);
    assert_string_equal(api.path, path);
    if (!strstr(api.body, part))
        fail_msg("%s is not in %s", part, api.body);
    if (strstr(path, "/nodes/")) {
        answer_node();
        return;
    }
    (void) snprintf(text, sizeof(text), "%.*s,%s", (int) strlen(object) - 1, object, api.body + 1);
    answer(text);
}

/* State and reason of a card, and the node's condition, are written when they change. */
static void check_conditions(struct world *w, const char *object) {
    static const char node[] = "/api/v1/nodes/node-a/status",
                      card[] = GPU_OBJECTS_PATH "/node-a-01/status";

    publisher_update(w->report.publisher);
    assert_null(api.callback);
    snapshot.devices[3].healthy = false;
    (void) snprintf(snapshot.devices[3].reason, sizeof(snapshot.devices[3].reason), "lost");
    judge_devices();
    publisher_update(w->report.publisher);
    expect_write(node,
                 "\"type\":\"GPUHealthy\",\"status\":\"False\",\"reason\":\"NotHealthy\","
                 "\"message\":\"3 of 4 GPUs and instances are healthy: GPU 1 is Unhealthy, "
                 "lost\"",
                 object);
    expect_write(card, "\"state\":\"Unhealthy\",\"reason\":\"lost\",\"since\":\"20", object);
    assert_null(api.callback);
    snapshot.devices[3].healthy = true;
    judge_devices();
    publisher_update(w->report.publisher);
    expect_write(node,
                 "\"type\":\"GPUHealthy\",\"status\":\"True\",\"reason\":\"Healthy\","
                 "\"message\":\"4 of 4 GPUs and instances are healthy\"",
                 object);
    expect_write(card, "\"state\":\"Healthy\",\"reason\":null", object);
    assert_null(api.callback);
}

/* The node's capacity and its GPU objects, written until nothing is left to write. */
static void objects(void **state) {
    static const char bare[] = "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"}}";
    struct world *w = *state;
    char object[sizeof(api.body)] = "", text[2 * sizeof(api.body)];
    unsigned creations = 0, writes = 0;
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    assert_int_equal(json_open(bare, strlen(bare), &parser, &root, NULL), 0);
    node_watch.on_object(KUBE_ADDED, root, watcher);
    gpu_watch.on_sync_end(watcher);
    for (; api.callback; writes++) {
        assert_in_range(writes, 0, 10);
        if (strcmp(api.path, "/api/v1/nodes/node-a/status") == 0) {
            answer_node();
        } else if (strcmp(api.method, "POST") == 0) {
            creations++;
            assert_non_null(strstr(api.body, "\"GPU-whole\""));
            (void) snprintf(object, sizeof(object), "%s", api.body);
            answer(object);
        } else {
            assert_string_equal(api.method, "PATCH");
            (void) snprintf(text, sizeof(text), "%.*s,%s", (int) strlen(object) - 1, object,
                            api.body + 1);
            answer(text);
        }
    }
    assert_int_equal(creations, 1);
    assert_string_equal(publisher_trouble(w->report.publisher), "");
    check_conditions(w, object);
}

/* The processes of instances are listed under the card, too. */
static void audit(void **state) {
    static struct gpu_process processes[] = {{.pid = 1, .memory = GIB}};
    struct world *w = *state;

    for (uint32_t i = 0; i < 2; i++) {
        snapshot.devices[i].processes = processes;
        snapshot.devices[i].nprocesses = 1;
    }
    usage_update(&w->audit);
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        assert_true(w->audit.outside[i] == 0);
    snapshot.devices[3].processes = processes;
    snapshot.devices[3].nprocesses = 1;
    usage_update(&w->audit);
    assert_true(w->audit.outside[3] == GIB);
}

/* A divided card has no audit, and its processes need no mapping to those of the agent. */
static void audit_of_foreign_pids(void **state) {
    static struct gpu_process processes[] = {{.pid = 1, .memory = GIB}};
    struct world *w = *state;

    snapshot.devices[0].processes = processes;
    snapshot.devices[0].nprocesses = 1;
    assert_string_equal(audit_trouble(&w->audit), "");
    snapshot.devices[3].processes = processes;
    snapshot.devices[3].nprocesses = 1;
    assert_non_null(strstr(audit_trouble(&w->audit), "hostPID"));
}

/* A card that was divided after a share of it was given out has no driver's figures of that share.
 */
static void share_of_a_divided_card(void **state) {
    static struct slot_device shared[] = {{.uuid = "GPU-divided"}, {.uuid = "GPU-whole"}};
    static struct slot slot;
    struct world *w = *state;
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    slot.grant.devices = shared;
    slot.grant.ndevices = 2;
    HASH_ADD_STR(w->shares.slots.slots, nonce, &slot);
    get(w, "/metrics", &out);
    HASH_CLEAR(hh, w->shares.slots.slots);
    assert_int_equal(samples_of(buf_str(&out), "aliquot_container_memory_limit_bytes", ""), 2);
    assert_int_equal(samples_of(buf_str(&out), "aliquot_container_memory_driver_bytes", ""), 1);
    assert_int_equal(
        samples_of(buf_str(&out), "aliquot_container_memory_driver_bytes", "GPU-divided"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_are_of_whole_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics_of_dcgm, setup, teardown),
        cmocka_unit_test_setup_teardown(usage, setup, teardown),
        cmocka_unit_test_setup_teardown(usage_of_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(health, setup, teardown),
        cmocka_unit_test_setup_teardown(objects, setup, teardown),
        cmocka_unit_test_setup_teardown(audit, setup, teardown),
        cmocka_unit_test_setup_teardown(audit_of_foreign_pids, setup, teardown),
        cmocka_unit_test_setup_teardown(share_of_a_divided_card, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
