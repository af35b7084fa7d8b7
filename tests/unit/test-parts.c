/* SPDX-License-Identifier: Apache-2.0 */

/* What the pages of the agent say of a node with a card in MIG mode: no figure counts an instance
 * beside the card that it is a part of, and no share is given of either. */

#include "agent/cluster/access.h"
#include "agent/report/metrics.h"
#include "metrics-page.h"
#include "parts-world.h"

/* The answer to GET with more lines of a head, with its head. */
static void get_with(struct world *w, const char *path, const char *lines, struct buf *out) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) http_server_port(w->report.http)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char request[256], part[4096];
    ssize_t n = -1;

    (void) snprintf(request, sizeof(request),
                    "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", path, lines);
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

static void get(struct world *w, const char *path, struct buf *out) {
    get_with(w, path, "", out);
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
    assert_true(page_sum(buf_str(&out), "aliquot_gpu_memory_total_bytes") == (double) (2 * CARD));
    assert_true(page_sum(buf_str(&out), "aliquot_gpu_memory_capacity_bytes") == (double) CARD);
    assert_non_null(strstr(buf_str(&out), "UUID=\"GPU-divided\""));
    assert_true(page_sum(buf_str(&out), "aliquot_gpu_instance_memory_total_bytes") ==
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
    assert_true(page_sum(page, "DCGM_FI_DEV_FB_USED") == (3 + 1) * 1024);
    assert_true(page_sum(page, "DCGM_FI_DEV_POWER_USAGE") == 300);
    assert_int_equal(page_labelled(page, "DCGM_FI_DEV_FB_USED", "GPU_I_ID=\"2\""), 1);
    assert_int_equal(page_labelled(page, "DCGM_FI_DEV_FB_USED", "UUID=\"GPU-divided\""), 2);
    assert_int_equal(page_labelled(page, "DCGM_FI_DEV_FB_USED", "UUID=\"GPU-whole\""), 1);
    assert_int_equal(page_labelled(page, "DCGM_FI_DEV_FB_USED", "GPU_I"), 2);
}

/* What dcgm-exporter says of a whole card it says of a card in MIG mode or of its instances. */
static void no_figure_of_dcgm_is_lost(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    unsigned n = 0;

    get(*state, "/metrics", &out);
    for (size_t i = 0; i < agent_vocabularies_count; i++) {
        const struct vocabulary *v = agent_vocabularies[i];

        for (size_t k = 0; v->name && strcmp(v->name, "dcgm") == 0 && k < v->nmetrics; k++) {
            const char *name = v->metrics[k].name;

            if (page_labelled(buf_str(&out), name, "UUID=\"GPU-whole\"") == 0)
                continue;
            n++;
            if (page_labelled(buf_str(&out), name, "UUID=\"GPU-divided\"") == 0)
                fail_msg("%s: neither of the divided card nor of its instances", name);
        }
    }
    assert_true(n > 25);
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
    const char *body;

    assert_int_equal(slot_store_load(&w->shares.slots, w->dir, no_bad, NULL, NULL), 0);
    assert_int_equal(slot_grant_whole(&pod, "main", &mine, 1, &grant, NULL), 0);
    assert_int_equal(
        slot_fill(&w->shares.slots, "00000000000000000000000000000001", &grant, &slot, NULL), 0);
    text_copy(snapshot.devices[2].mig.profile, sizeof(snapshot.devices[2].mig.profile), "1g.10gb");
    get(w, "/usage", &out);
    slot_store_done(&w->shares.slots);
    body = strstr(buf_str(&out), "\r\n\r\n");
    assert_int_equal(json_open(body, strlen(body), &parser, &root, NULL), 0);
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

/* An unhealthy instance is a problem of the node, under its own name, and none of the agent. */
static void health(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    snapshot.devices[2].healthy = false;
    get(*state, "/healthz", &out);
    assert_non_null(strstr(buf_str(&out), "MIG instance 1 (MIG-1) is unhealthy"));
    assert_non_null(strstr(buf_str(&out), "is kubelet running?"));
    buf_reset(&out);
    get(*state, "/readyz", &out);
    assert_null(strstr(buf_str(&out), "is unhealthy"));
    assert_non_null(strstr(buf_str(&out), "is kubelet running?"));
}

static void expect_in(struct world *w, const char *path, const char *text, bool there) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    get(w, path, &out);
    assert_int_equal(strstr(buf_str(&out), text) != NULL, there);
}

/* A driver that has not answered yet keeps the agent from being ready; one that answers no more is
 * a problem of the node, also before its child is ended for it. */
static void driver_without_answer(void **state) {
    struct world *w = *state;

    w->shares.driver = (const void *) w;
    expect_in(w, "/readyz", "the GPU driver has not answered yet", true);
    expect_in(w, "/healthz", "the GPU driver does not answer", false);
    monitor_complete = true;
    expect_in(w, "/readyz", "the GPU driver", false);
    expect_in(w, "/healthz", "the GPU driver does not answer", true);
    monitor_complete = false;
    w->shares.driver = NULL;
}

static void give_in_shares(struct gpu_device *instance) {
    instance->offer = GPU_OFFER_SHARES;
    instance->mig.ci_slices = instance->mig.card_slices = 7;
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

/* Of an instance in shares they are judged as those of a card are. */
static void audit_of_an_instance_in_shares(void **state) {
    static struct gpu_process processes[] = {{.pid = 1, .memory = GIB}};
    struct world *w = *state;

    give_in_shares(&snapshot.devices[1]);
    for (uint32_t i = 0; i < 3; i++) {
        snapshot.devices[i].processes = processes;
        snapshot.devices[i].nprocesses = 1;
    }
    usage_update(&w->audit);
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        assert_true(w->audit.outside[i] == (i == 1 ? GIB : 0));
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
    snapshot.devices[3].nprocesses = 0;
    give_in_shares(&snapshot.devices[1]);
    snapshot.devices[1].processes = processes;
    snapshot.devices[1].nprocesses = 1;
    assert_non_null(strstr(audit_trouble(&w->audit), "hostPID"));
    /* The agent has found a context of its own on a card. */
    snapshot.devices[3].context_bytes = 1;
    assert_string_equal(audit_trouble(&w->audit), "");
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
    assert_int_equal(page_labelled(buf_str(&out), "aliquot_container_memory_limit_bytes", ""), 2);
    assert_int_equal(page_labelled(buf_str(&out), "aliquot_container_memory_driver_bytes", ""), 1);
    assert_int_equal(
        page_labelled(buf_str(&out), "aliquot_container_memory_driver_bytes", "GPU-divided"), 0);
}

/* It is reported as one of a card is. The driver reports no load of its processes: none is shown.
 */
static void share_of_an_instance(void **state) {
    static struct slot_device part = {
        .uuid = "MIG-0", .core = 20, .pod_core = 20, .memory = GIB, .pod_memory = GIB};
    static struct slot slot = {.grant = {.pod_uid = "u1", .devices = &part, .ndevices = 1}};
    struct world *w = *state;
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    give_in_shares(&snapshot.devices[1]);
    snapshot.devices[1].sample.gpu_percent = GPU_NOT_TOLD;
    HASH_ADD_STR(w->shares.slots.slots, nonce, &slot);
    get(w, "/metrics", &out);
    get(w, "/usage", &out);
    HASH_CLEAR(hh, w->shares.slots.slots);
    assert_int_equal(
        page_labelled(buf_str(&out), "aliquot_container_memory_driver_bytes",
                      "gpu=\"0\",uuid=\"MIG-0\",GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"2\"}"),
        1);
    assert_int_equal(page_labelled(buf_str(&out), "aliquot_container_utilization_percent", ""), 0);
    assert_non_null(strstr(buf_str(&out), "\"memoryGranted\":1073741824,"));
    assert_non_null(strstr(buf_str(&out),
                           "\"holders\":[{\"namespace\":\"\",\"pod\":\"\","
                           "\"podUID\":\"u1\",\"container\":\"\",\"core\":20,\"memory\":"));
}

/* The test is what knows of tokens. */
static struct {
    enum access_verdict verdict;
    char token[16];
    unsigned char address[16];
} access_known;

void __wrap_access_ask(struct access *access, const char *token,
                       const unsigned char address[static 16], access_cb on_verdict,
                       void *userdata);
void __wrap_access_stop(struct access *access);

void __wrap_access_ask(struct access *access, const char *token,
                       const unsigned char address[static 16], access_cb on_verdict,
                       void *userdata) {
    assert_ptr_equal(access, &access_known);
    (void) snprintf(access_known.token, sizeof(access_known.token), "%s", token);
    memcpy(access_known.address, address, sizeof(access_known.address));
    on_verdict(access_known.verdict, "the reason", userdata);
}

void __wrap_access_stop(struct access *access) {
    (void) access;
}

static void expect_status(struct world *w, const char *path, const char *lines, const char *status,
                          const char *text) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    char head[64];

    (void) snprintf(head, sizeof(head), "HTTP/1.1 %s ", status);
    get_with(w, path, lines, &out);
    if (strncmp(buf_str(&out), head, strlen(head)) != 0 || !strstr(buf_str(&out), text))
        fail_msg("%s: no %s with '%s' in: %s", path, status, text, buf_str(&out));
}

static void pages_for_clients_with_a_token(void **state) {
    static const char *const pages[] = {"/usage", "/history", "/metrics"};
    static const unsigned char loopback[16] = {[12] = 127, [15] = 1};
    struct world *w = *state;

    w->report.usage_asks_token = w->report.metrics_asks_token = true;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        w->report.access = NULL;
        expect_status(w, pages[i], "", "401", "WWW-Authenticate: Bearer");
        expect_status(w, pages[i], "", "401", "this page asks for a token");
        expect_status(w, pages[i], "Authorization: Basic abc\r\n", "401", "asks for a token");
        expect_status(w, pages[i], "Authorization: Bearer \r\n", "401", "asks for a token");
        expect_status(w, pages[i], "Authorization: Bearer t\r\n", "503", "not been reached yet");
        w->report.access = (struct access *) &access_known;
        access_known.verdict = ACCESS_ALLOWED;
        expect_status(w, pages[i], "Authorization: bearer  t.1\r\n", "200", "");
        assert_string_equal(access_known.token, "t.1");
        assert_memory_equal(access_known.address, loopback, sizeof(loopback));
        expect_status(w, pages[i], "X-Aliquot-Token: t.2\r\nAuthorization: Bearer t.1\r\n", "200",
                      "");
        assert_string_equal(access_known.token, "t.2");
        access_known.verdict = ACCESS_UNKNOWN;
        expect_status(w, pages[i], "X-Aliquot-Token: t\r\n", "401", "does not take this token");
        access_known.verdict = ACCESS_FORBIDDEN;
        expect_status(w, pages[i], "X-Aliquot-Token: t\r\n", "403", "ClusterRole aliquot-figures");
        access_known.verdict = ACCESS_BUSY;
        expect_status(w, pages[i], "X-Aliquot-Token: t\r\n", "429", "Retry-After: 1");
        access_known.verdict = ACCESS_NO_ANSWER;
        expect_status(w, pages[i], "X-Aliquot-Token: t\r\n", "503", "the reason");
        access_known.verdict = ACCESS_NO_RIGHT;
        expect_status(w, pages[i], "X-Aliquot-Token: t\r\n", "503", "ClusterRole aliquot-agent");
    }
    expect_status(w, "/livez", "", "200", "ok");
    w->report.usage_asks_token = w->report.metrics_asks_token = false;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        expect_status(w, pages[i], "", "200", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_are_of_whole_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics_of_dcgm, setup, teardown),
        cmocka_unit_test_setup_teardown(no_figure_of_dcgm_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(usage, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_for_clients_with_a_token, setup, teardown),
        cmocka_unit_test_setup_teardown(usage_of_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(health, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_without_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(audit, setup, teardown),
        cmocka_unit_test_setup_teardown(audit_of_an_instance_in_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(audit_of_foreign_pids, setup, teardown),
        cmocka_unit_test_setup_teardown(share_of_a_divided_card, setup, teardown),
        cmocka_unit_test_setup_teardown(share_of_an_instance, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
