/* SPDX-License-Identifier: Apache-2.0 */

/* What the agent writes to the API server of a node with a card in MIG mode: each card and instance
 * has its GPU object. */

#include "kube/objects/node.h"
#include "parts-world.h"

static uint64_t node_memory = CARD; /* that the node offers in shares */

/* The node as it was written: parts of its metadata and its status, as JSON members. */
static struct { char annotations[512], capacity[1024], conditions[2048]; } node;

static void keep(const char *part, char *ret, size_t size) {
    const char *start = strstr(api.body, part);

    if (start)
        (void) snprintf(ret, size, ",%.*s", (int) strlen(start) - 2, start);
}

static void answer_node(void) {
    char text[2 * sizeof(api.body)], memory[64];

    (void) snprintf(memory, sizeof(memory), "\"" RESOURCE_MEMORY "\":\"%llu\"",
                    (unsigned long long) node_memory);
    if (strstr(api.body, "\"capacity\""))
        assert_non_null(strstr(api.body, memory));
    keep("\"annotations\"", node.annotations, sizeof(node.annotations));
    keep("\"capacity\"", node.capacity, sizeof(node.capacity));
    keep("\"conditions\"", node.conditions, sizeof(node.conditions));
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"%s},"
                    "\"status\":{\"nodeInfo\":{}%s%s}}",
                    node.annotations, node.capacity, node.conditions);
    answer(text);
}

/* ---- GPU objects ---- */

static void answer_write(void) {
    if (strstr(api.path, "/nodes/"))
        answer_node();
    else
        answer_object();
}

/* The next write, and its answer. */
static void expect_write(const char *method, const char *path, const char *part) {
    assert_non_null(api.callback);
    assert_string_equal(api.method, method);
    assert_string_equal(api.path, path);
    if (!strstr(api.body, part))
        fail_msg("%s is not in %s", part, api.body);
    answer_write();
}

#define NODES "/api/v1/nodes?"
#define NODE "/api/v1/nodes/node-a/status"
#define OBJECT GPU_OBJECTS_PATH "/node-a-"

static void answer_all(const struct world *w) {
    for (unsigned writes = 0; api.callback; writes++) {
        assert_in_range(writes, 0, 20);
        answer_write();
    }
    assert_string_equal(publisher_trouble(w->report.publisher), "");
}

/* The Node as the watch finds it. */
static void find_node(const char *text) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    nmade = 0;
    memset(&node, 0, sizeof(node));
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    reflector_show(reflector_of(NODES), KUBE_ADDED, root);
    reflector_list_ends(reflector_of(GPU_OBJECTS_PATH));
}

/* The node's capacity and its GPU objects, written until nothing is left to write. */
static void write_all(struct world *w) {
    find_node("{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"}}");
    answer_all(w);
}

static void update(struct world *w) {
    judge_devices();
    publisher_update(w->report.publisher);
}

/* State and reason of a card, and the node's condition, are written when they change. */
static void check_conditions(struct world *w) {
    update(w);
    assert_null(api.callback);
    snapshot.devices[3].healthy = false;
    (void) snprintf(snapshot.devices[3].reason, sizeof(snapshot.devices[3].reason), "lost");
    update(w);
    expect_write("PATCH", NODE,
                 "\"type\":\"GPUHealthy\",\"status\":\"False\",\"reason\":\"NotHealthy\","
                 "\"message\":\"3 of 4 GPUs and instances are healthy: GPU 1 is Unhealthy, "
                 "lost\"");
    expect_write("PATCH", OBJECT "01/status",
                 "\"state\":\"Unhealthy\",\"reason\":\"lost\",\"since\":\"20");
    assert_null(api.callback);
    snapshot.devices[3].healthy = true;
    update(w);
    expect_write("PATCH", NODE,
                 "\"type\":\"GPUHealthy\",\"status\":\"True\",\"reason\":\"Healthy\","
                 "\"message\":\"4 of 4 GPUs and instances are healthy\"");
    expect_write("PATCH", OBJECT "01/status", "\"state\":\"Healthy\",\"reason\":null");
    assert_null(api.callback);
    monitor_text = "it is too old";
    update(w);
    expect_write("PATCH", NODE,
                 "\"type\":\"GPUHealthy\",\"status\":\"False\",\"reason\":\"DriverNotAnswering\","
                 "\"message\":\"the GPU driver does not answer: it is too old\"");
    assert_null(api.callback);
    monitor_text = "";
    update(w);
    expect_write("PATCH", NODE, "\"type\":\"GPUHealthy\",\"status\":\"True\"");
    assert_null(api.callback);
}

static void expect_object(const char *name, const char *part) {
    unsigned i = find_made(name);

    assert_true(i < nmade);
    if (!strstr(objects_made[i].head, part))
        fail_msg("%s is not in %s", part, objects_made[i].head);
}

/* An instance is where its card is. Links are known later than the card. */
static void numa_node_of_instances(void **state) {
    struct world *w = *state;

    write_all(w);
    snapshot.devices[0].links = (struct gpu_connections){.known = 2, .numa = 1};
    update(w);
    answer_all(w);
    expect_object("node-a-00", "\"numaNode\":1,\"links\":[");
    expect_object("node-a-00-gi2-ci0", "\"numaNode\":1");
    expect_object("node-a-00-gi0-ci0", "\"numaNode\":1");
    snapshot.devices[0].links.known = 0;
    update(w);
    assert_null(api.callback);
}

/* Written when they change, and once kubelet has answered. */
static void free_cpus(void **state) {
    struct world *w = *state;

    write_all(w);
    assert_string_equal(node.annotations, "");
    w->cross_check.listed = true;
    update(w);
    assert_null(api.callback); /* containers have no CPUs for themselves */
    w->cross_check.node_cpus = (struct node_cpus){.all = {4, 8}, .free = {0, 3}};
    update(w);
    expect_write("PATCH", NODE,
                 "{\"metadata\":{\"annotations\":{"
                 "\"elasticgpu.io/exclusive-cpus\":\"0=0/4,1=3/8\"}}}");
    assert_null(api.callback);
    update(w);
    assert_null(api.callback);
    memset(&w->cross_check.node_cpus, 0, sizeof(w->cross_check.node_cpus));
    update(w);
    expect_write("PATCH", NODE, "\"elasticgpu.io/exclusive-cpus\":null");
    assert_null(api.callback);
}

/* One of each card and each instance; only the whole card offers shares. */
static void objects(void **state) {
    struct world *w = *state;

    write_all(w);
    assert_int_equal(nmade, 4);
    expect_object("node-a-00", "\"mig\":{\"mode\":\"Enabled\"}");
    expect_object("node-a-00-gi2-ci0",
                  "\"parent\":\"GPU-divided\",\"mig\":{\"profile\":\"3g.40gb\",\"gpuInstance\":2,"
                  "\"computeInstance\":0,\"start\":4,\"size\":4,\"computeSlices\":3}");
    expect_object("node-a-00-gi0-ci0", "\"uuid\":\"MIG-1\"");
    expect_object("node-a-01", "\"uuid\":\"GPU-whole\"");
    check_conditions(w);
}

/* An XID of one instance is that instance's; a reason of the card is that of all its instances. */
static void health_of_instances(void **state) {
    struct world *w = *state;
    const struct gpu_xid x = {.uuid = "GPU-divided", .gi = 2, .ci = 0, .xid = 48};

    write_all(w);
    assert_true(health_cards_xid(&health_cards, &x));
    update(w);
    expect_write("PATCH", NODE, "3 of 4 GPUs and instances are healthy: MIG instance 0 is ");
    expect_write("PATCH", OBJECT "00-gi2-ci0/status",
                 "\"lastXid\":48,\"capacity\":{\"elasticgpu.io/gpu-core\":\"0\","
                 "\"elasticgpu.io/gpu-memory\":\"0\"}");
    assert_null(api.callback);
    snapshot.devices[0].healthy = false;
    (void) snprintf(snapshot.devices[0].reason, sizeof(snapshot.devices[0].reason), "lost");
    update(w);
    expect_write("PATCH", NODE, "1 of 4 GPUs and instances are healthy");
    expect_write("PATCH", OBJECT "00/status", "\"reason\":\"lost\"");
    expect_write("PATCH", OBJECT "00-gi0-ci0/status", "\"reason\":\"lost\"");
    assert_null(api.callback);
}

/* Instances that are destroyed and made: an equal name is another object, and events of the former
 * one do not count against it. */
static void instances_come_and_go(void **state) {
    struct world *w = *state;
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    char old[64];

    write_all(w);
    (void) snprintf(old, sizeof(old),
                    "{\"metadata\":{\"name\":\"node-a-00-gi0-ci0\",\"uid\":\"%s\"}}",
                    objects_made[find_made("node-a-00-gi0-ci0")].uid);
    (void) snprintf(snapshot.devices[2].uuid, sizeof(snapshot.devices[2].uuid), "MIG-new");
    update(w);
    expect_write("DELETE", OBJECT "00-gi0-ci0", "\"preconditions\":{\"uid\":\"uid-");
    expect_write("POST", GPU_OBJECTS_PATH, "\"uuid\":\"MIG-new\"");
    expect_write("PATCH", OBJECT "00-gi0-ci0/status", "\"state\":\"Healthy\"");
    assert_int_equal(json_open(old, strlen(old), &parser, &root, NULL), 0);
    reflector_show(reflector_of(GPU_OBJECTS_PATH), KUBE_DELETED, root);
    assert_null(api.callback);
    /* A card that cannot be read does not show which instances are left. */
    snapshot.devices[2] = snapshot.devices[3];
    snapshot.ndevices = 3;
    snapshot.devices[0].healthy = false;
    update(w);
    while (api.callback) {
        assert_string_equal(api.method, "PATCH");
        answer_write();
    }
    assert_int_equal(nmade, 4);
    snapshot.devices[0].healthy = true;
    update(w);
    expect_write("PATCH", NODE, "3 of 3 GPUs and instances are healthy");
    expect_write("PATCH", OBJECT "00/status", "\"state\":\"Healthy\"");
    expect_write("PATCH", OBJECT "00-gi2-ci0/status", "\"state\":\"Healthy\"");
    expect_write("DELETE", OBJECT "00-gi0-ci0", "");
    assert_null(api.callback);
    assert_int_equal(nmade, 3);
}

/* ---- status.mig ---- */

static struct {
    bool known;
    const struct mig_report *report; /* of the divided card */
} on_demand;

static bool report_mig(const char *uuid, void *userdata, const struct mig_report **ret) {
    bool divided = strcmp(uuid, "GPU-divided") == 0;

    (void) userdata;
    *ret = divided ? on_demand.report : NULL;
    return !divided || on_demand.known;
}

/* The object of the divided card, with `mig` as a member of its status. */
static void put_divided(const char *mig, char ret[static 3 * sizeof(api.body)]) {
    unsigned i = find_made("node-a-00");

    assert_true(i < nmade);
    (void) snprintf(ret, 3 * sizeof(api.body), "%.*s,%.*s%s}}",
                    (int) strlen(objects_made[i].head) - 1, objects_made[i].head,
                    (int) strlen(objects_made[i].status) - 3, objects_made[i].status + 1, mig);
}

/* As the former agent has left it. */
static void show_divided(const char *mig) {
    char text[3 * sizeof(api.body)];
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    put_divided(mig, text);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    reflector_show(reflector_of(GPU_OBJECTS_PATH), KUBE_MODIFIED, root);
}

static void expect_mig(const char *part, const char *mig) {
    char text[3 * sizeof(api.body)];

    assert_non_null(api.callback);
    assert_string_equal(api.path, OBJECT "00/status");
    if (!strstr(api.body, part))
        fail_msg("%s is not in %s", part, api.body);
    put_divided(mig, text);
    answer(text);
    assert_null(api.callback);
}

#define REPORT(observed)                                                                           \
    ",\"mig\":{\"dynamic\":true,\"shares\":false,\"observed\":" observed                           \
    ",\"profiles\":[],\"instances\":[],\"failed\":[]}"

/* Until an agent has read the card, status.mig stays as the former one wrote it. A card that is not
 * divided on demand any more has none. */
static void orders_over_a_restart(void **state) {
    static const struct mig_report report = {.observed = 8};
    struct world *w = *state;

    write_all(w);
    w->report.mig_report = report_mig;
    on_demand.known = false;
    on_demand.report = NULL;
    show_divided(REPORT("7"));
    assert_null(api.callback);
    on_demand.known = true;
    on_demand.report = &report;
    publisher_update(w->report.publisher);
    expect_mig("\"mig\":{\"dynamic\":true,\"shares\":false,\"observed\":8,", REPORT("8"));
    on_demand.report = NULL;
    publisher_update(w->report.publisher);
    expect_mig("\"mig\":null", "");
}

/* An instance that the configuration gives out in shares is a smaller card. */
static void shares_of_an_instance(void **state) {
    snapshot.devices[1].offer = GPU_OFFER_SHARES;
    snapshot.devices[1].mig.ci_slices = 3;
    snapshot.devices[1].mig.card_slices = 7;
    node_memory = CARD + 40 * GIB;
    write_all(*state);
    assert_non_null(strstr(objects_made[find_made("node-a-00-gi2-ci0")].status,
                           "\"capacity\":{\"elasticgpu.io/gpu-core\":\"42\","
                           "\"elasticgpu.io/gpu-memory\":\"40Gi\"}"));
    node_memory = CARD;
}

static const struct gpu_orders *orders_of(const struct world *w, uint32_t device) {
    const struct gpu_orders *found =
        publisher_orders(w->report.publisher, &snapshot.devices[device]);

    assert_non_null(found);
    return found;
}

/* Before any GPU object is: pods are bound to objects that are Healthy on a node that is ready. */
static void an_agent_before_was_ready(void **state) {
    static const char ready[] =
        "\"conditions\":[{\"type\":\"" NODE_AGENT_CONDITION "\",\"status\":\"True\"}]";
    struct world *w = *state;
    char text[256];

    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"},\"status\":{%s}}", ready);
    find_node(text);
    (void) snprintf(node.conditions, sizeof(node.conditions), ",%s", ready);
    expect_write("PATCH", NODE, "\"capacity\"");
    expect_write("PATCH", NODE,
                 "\"type\":\"" NODE_AGENT_CONDITION
                 "\",\"status\":\"False\",\"reason\":\"Starting\"");
    assert_int_equal(nmade, 0);
    answer_all(w);
    assert_int_equal(nmade, 4);
}

/* A node that had cards before it was booted, and one that has never had any. */
static void no_driver(void **state) {
    struct world *w = *state;

    memset(&snapshot, 0, sizeof(snapshot));
    node_memory = 0;
    monitor_text = "no GPU driver was found on this node";
    find_node("{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"}}");
    answer_all(w);
    assert_null(strstr(node.conditions, "GPUHealthy"));
    find_node("{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\"},\"status\":{\"conditions\":[{"
              "\"type\":\"GPUHealthy\",\"status\":\"True\","
              "\"message\":\"4 of 4 GPUs and instances are healthy\"}]}}");
    while (api.callback && !strstr(api.body, "GPUHealthy"))
        answer_write();
    expect_write("PATCH", NODE,
                 "\"type\":\"GPUHealthy\",\"status\":\"False\",\"reason\":\"DriverNotAnswering\","
                 "\"message\":\"the GPU driver does not answer: no GPU driver was found on this "
                 "node\"");
    answer_all(w);
    monitor_text = "";
    node_memory = CARD;
}

static void show(const char *path, const char *text) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    reflector_show(reflector_of(path), KUBE_MODIFIED, root);
}

/* The i-th object with this version and this status. */
static void versioned(unsigned i, const char *version, const char *status,
                      char ret[static 3 * sizeof(api.body)]) {
    const char *head = objects_made[i].head + strlen("{\"metadata\":{");

    (void) snprintf(ret, 3 * sizeof(api.body), "{\"metadata\":{\"resourceVersion\":\"%s\",%.*s,%s",
                    version, (int) strlen(head) - 1, head, status + 1);
}

/* The watch shows what others have written after the agent's write, and then comes its answer. */
static void an_answer_after_what_came_later(void **state) {
    struct world *w = *state;
    char written[3 * sizeof(api.body)], later[3 * sizeof(api.body)];
    unsigned i;

    write_all(w);
    w->cross_check.listed = true;
    w->cross_check.node_cpus = (struct node_cpus){.all = {4, 8}, .free = {0, 3}};
    update(w);
    assert_string_equal(api.path, NODE);
    (void) snprintf(written, sizeof(written),
                    "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\",\"resourceVersion\":\"99\"},"
                    "\"status\":{\"nodeInfo\":{}%s%s}}",
                    node.capacity, node.conditions);
    show(NODES, "{\"metadata\":{\"name\":\"node-a\",\"uid\":\"u\",\"resourceVersion\":\"100\"}}");
    answer(written);
    expect_write("PATCH", NODE, "\"capacity\""); /* there is none any more */
    answer_all(w);

    i = find_made("node-a-01");
    snapshot.devices[3].healthy = false;
    update(w);
    expect_write("PATCH", NODE, "3 of 4 GPUs and instances are healthy");
    assert_string_equal(api.path, OBJECT "01/status");
    versioned(i, "101", api.body, written);
    versioned(i, "102", objects_made[i].status, later);
    show(GPU_OBJECTS_PATH, later);
    answer(written);
    expect_write("PATCH", OBJECT "01/status", "\"state\":\"Unhealthy\"");
    assert_null(api.callback);
}

/* The orders of users are at the object of the device. */
static void orders(void **state) {
    struct world *w = *state;
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    char text[sizeof(objects_made[0].head)];
    unsigned i;

    assert_null(publisher_orders(w->report.publisher, &snapshot.devices[0]));
    write_all(w);
    assert_string_equal(orders_of(w, 1)->set_healthy, "");
    i = find_made("node-a-00-gi2-ci0");
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"annotations\":{\"" GPU_SET_HEALTHY "\":\"now\"},%s",
                    objects_made[i].head + strlen("{\"metadata\":{"));
    text_copy(objects_made[i].head, sizeof(objects_made[i].head), text);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    reflector_show(reflector_of(GPU_OBJECTS_PATH), KUBE_MODIFIED, root);
    expect_write("PATCH", OBJECT "00-gi2-ci0/status", ""); /* the event had none */
    assert_string_equal(orders_of(w, 1)->set_healthy, "now");
    assert_string_equal(orders_of(w, 0)->set_healthy, "");
    assert_null(api.callback);
}

static unsigned orders_read;

static void on_orders(void *userdata) {
    (void) userdata;
    assert_null(api.callback); /* nothing is written yet */
    orders_read++;
}

/* They are followed before what they change is written. */
static void orders_are_told(void **state) {
    struct world *w = *state;

    orders_read = 0;
    w->report.on_orders = on_orders;
    assert_false(publisher_has_orders(w->report.publisher));
    write_all(w);
    assert_true(publisher_has_orders(w->report.publisher));
    assert_int_equal(orders_read, 1);
}

/* How an order to reset the card has ended, which its state does not say. */
static void end_of_an_order(void **state) {
    struct health_card *card = &health_cards.cards[3];
    struct world *w = *state;

    write_all(w);
    assert_string_equal(card->uuid, "GPU-whole");
    text_copy(card->reset.text, sizeof(card->reset.text), "now");
    card->health.ordered = HEALTH_ORDERED_AWAITED;
    update(w);
    assert_null(api.callback);
    card->health.ordered = HEALTH_ORDERED_FAILED;
    text_copy(card->health.ordered_failure, sizeof(card->health.ordered_failure), "no");
    update(w);
    expect_write("PATCH", OBJECT "01/status",
                 "\"reset\":{\"order\":\"now\",\"result\":\"Failed\",\"message\":\"no\"}");
    assert_null(api.callback);
    card->health.ordered = HEALTH_ORDERED_NONE; /* the machine has been restarted */
    update(w);
    assert_null(api.callback);
    card->health.ordered = HEALTH_ORDERED_DONE;
    update(w);
    expect_write("PATCH", OBJECT "01/status",
                 "\"reset\":{\"order\":\"now\",\"result\":\"Succeeded\",\"message\":null}");
    assert_null(api.callback);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(objects, setup, teardown),
        cmocka_unit_test_setup_teardown(numa_node_of_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(free_cpus, setup, teardown),
        cmocka_unit_test_setup_teardown(health_of_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(instances_come_and_go, setup, teardown),
        cmocka_unit_test_setup_teardown(orders_over_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_of_an_instance, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_before_was_ready, setup, teardown),
        cmocka_unit_test_setup_teardown(no_driver, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_after_what_came_later, setup, teardown),
        cmocka_unit_test_setup_teardown(orders, setup, teardown),
        cmocka_unit_test_setup_teardown(orders_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(end_of_an_order, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
