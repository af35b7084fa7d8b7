/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's shares against what kubelet's podresources API lists. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

#include <cmocka.h>

#include "agent/cluster/keys.h"
#include "agent/cluster/pods.h"
#include "agent/kubelet/cross_check.h"
#include "agent/kubelet/kubelet.h"
#include "agent/shares/shares.h"
#include "base/file.h"
#include "fake-monitor-wraps.h"
#include "podresources.pb-c.h"
#include "wire/grpc_server.h"

#define OURS "elasticgpu.io/gpu-core"
#define TEXT(s) ((char *) (uintptr_t) (s))
#define TIMEOUT_MS 60000

static struct world {
    struct shares shares;
    struct cross_check check;
    struct slot slots[2];
    struct slot_device device;
    struct slot_whole whole;
    struct pod_entry pod; /* of which the agent knows; without a name: none */
    bool pods_unsynced;
    struct signing_key *key; /* of the scheduler */
    struct signing_verifier *verifier;
    char signature[SIGNATURE_TEXT_MAX];
    unsigned events;
    char reason[64], message[256], container[64];
    uint8_t list[4096];
    size_t size;
} w;

/* ---- the agent's parts ---- */

size_t __wrap_kubelet_find(const struct kubelet *k, const char *resource);
const struct plugin *__wrap_kubelet_plugin(const struct kubelet *k, size_t i);
const struct pod_entry *__wrap_pods_find_named(const struct pods *p, const char *namespace,
                                               const char *name);
bool __wrap_pods_synced(const struct pods *p);
const struct signing_verifier *__wrap_keys_verifier(const struct keys *k);
void __wrap_pod_events_container(struct pod_events *p, const char *namespace, const char *pod,
                                 const char *uid, const char *container, const char *reason,
                                 const char *message);

size_t __wrap_kubelet_find(const struct kubelet *k, const char *resource) {
    (void) k;
    return strcmp(resource, OURS) == 0 ? 0 : 1;
}

const struct plugin *__wrap_kubelet_plugin(const struct kubelet *k, size_t i) {
    (void) k;
    return i == 0 ? (const void *) &w : NULL;
}

const struct pod_entry *__wrap_pods_find_named(const struct pods *p, const char *namespace,
                                               const char *name) {
    (void) p, (void) namespace;
    return strcmp(w.pod.pod.name, name) == 0 ? &w.pod : NULL;
}

bool __wrap_pods_synced(const struct pods *p) {
    (void) p;
    return !w.pods_unsynced;
}

const struct signing_verifier *__wrap_keys_verifier(const struct keys *k) {
    (void) k;
    return w.verifier;
}

void __wrap_pod_events_container(struct pod_events *p, const char *namespace, const char *pod,
                                 const char *uid, const char *container, const char *reason,
                                 const char *message) {
    (void) p, (void) namespace, (void) pod, (void) uid;
    w.events++;
    (void) snprintf(w.reason, sizeof(w.reason), "%s", reason);
    (void) snprintf(w.message, sizeof(w.message), "%s", message);
    (void) snprintf(w.container, sizeof(w.container), "%s", container);
}

/* ---- what kubelet lists: one pod with one container ---- */

struct listed {
    const char *namespace, *pod, *container, *resource, *id;
    size_t ncpus;
    int64_t cpus[8];
};

static void list(const struct listed *l) {
    Podresources__ListResponse m = PODRESOURCES__LIST_RESPONSE__INIT;
    Podresources__PodResources pod = PODRESOURCES__POD_RESOURCES__INIT, *pods = &pod;
    Podresources__ContainerResources c = PODRESOURCES__CONTAINER_RESOURCES__INIT, *containers = &c;
    Podresources__ContainerDevices d = PODRESOURCES__CONTAINER_DEVICES__INIT, *devices = &d;
    char *id;

    pod.namespace_ = TEXT(l->namespace);
    pod.name = TEXT(l->pod);
    pod.n_containers = 1;
    pod.containers = &containers;
    c.name = TEXT(l->container);
    c.n_cpu_ids = l->ncpus;
    c.cpu_ids = (int64_t *) (uintptr_t) l->cpus;
    if (l->id) {
        id = TEXT(l->id);
        d.resource_name = TEXT(l->resource);
        d.n_device_ids = 1;
        d.device_ids = &id;
        c.n_devices = 1;
        c.devices = &devices;
    }
    m.n_pod_resources = l->pod ? 1 : 0;
    m.pod_resources = &pods;
    assert_in_range(podresources__list_response__get_packed_size(&m), 0, sizeof(w.list));
    w.size = podresources__list_response__pack(&m, w.list);
}

static void take(const struct listed *l) {
    list(l);
    assert_int_equal(cross_check_take(&w.check, w.list, w.size), 0);
}

static const struct listed nothing = {.namespace = ""};
static const struct listed share = {
    .namespace = "team", .pod = "pod", .container = "main", .resource = OURS, .id = "token-7"};

/* ---- the shares ---- */

static void add_slot(struct slot *slot, const char *nonce, const char *container) {
    (void) snprintf(slot->nonce, sizeof(slot->nonce), "%s", nonce);
    (void) snprintf(slot->grant.namespace, sizeof(slot->grant.namespace), "team");
    (void) snprintf(slot->grant.pod, sizeof(slot->grant.pod), "pod");
    (void) snprintf(slot->grant.container, sizeof(slot->grant.container), "%s", container);
    HASH_ADD_STR(w.shares.slots.slots, nonce, slot);
}

static int setup(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    memset(&snapshot, 0, sizeof(snapshot));
    w.check.shares = &w.shares;
    w.check.cpus = w.check.others = BUF_INIT(0);
    memset(&w.check.numa, -1, sizeof(w.check.numa));
    numa_add_list(&w.check.numa, 0, "0-3,8\n");
    numa_add_list(&w.check.numa, 1, "4-7\n");
    snapshot.ndevices = 2;
    snapshot.devices[0] =
        (struct gpu_device){.uuid = "GPU-1", .index = 5, .links = {.known = 1, .numa = 1}};
    snapshot.devices[1] =
        (struct gpu_device){.kind = GPU_MIG_INSTANCE, .uuid = "MIG-1", .parent = "GPU-1"};
    add_slot(&w.slots[0], "a", "main");
    (void) snprintf(w.device.uuid, sizeof(w.device.uuid), "GPU-1");
    w.slots[0].grant.devices = &w.device;
    w.slots[0].grant.ndevices = 1;
    return 0;
}

static int teardown(void **state) {
    (void) state;
    HASH_CLEAR(hh, w.shares.slots.slots);
    w.key = signing_key_free(w.key);
    w.verifier = signing_verifier_free(w.verifier);
    buf_done(&w.check.cpus);
    buf_done(&w.check.others);
    return 0;
}

/* ---- devices ---- */

static void test_kubelet_agrees(void **state) {
    (void) state;
    for (int i = 0; i < 4; i++)
        take(&share);
    assert_int_equal(w.check.differences, 0);
    assert_int_equal(w.events, 0);
}

/* A pod may have ended, or be admitted, at the moment of one list. */
static void test_two_lists_in_a_row(void **state) {
    struct listed other = share;

    (void) state;
    take(&nothing);
    assert_int_equal(w.check.differences, 0);
    take(&share);
    take(&nothing);
    assert_int_equal(w.events, 0);
    other.resource = "example.com/other";
    take(&other);
    assert_int_equal(w.check.differences, 1);
    assert_int_equal(w.events, 1);
    assert_string_equal(w.reason, "GPUDevicesDiffer");
    assert_non_null(strstr(w.message, "kubelet lists no device of the pod"));
    take(&nothing);
    assert_int_equal(w.check.differences, 1);
    assert_int_equal(w.events, 1); /* once */
    take(&share);
    assert_int_equal(w.check.differences, 0);
}

/* Of the pod, of that name in its namespace, and not of one that has ended. */
static void test_of_which_pod(void **state) {
    struct listed other = share;

    (void) state;
    other.namespace = "else";
    take(&other);
    take(&other);
    assert_int_equal(w.check.differences, 1);
    w.slots[0].releasing = true;
    take(&other);
    assert_int_equal(w.check.differences, 0);
    /* The share of an init container, whose devices kubelet lists as the other container's. */
    add_slot(&w.slots[1], "b", "init");
    take(&share);
    take(&share);
    assert_int_equal(w.check.differences, 0);
}

static void test_whole_devices(void **state) {
    struct listed l = share;

    (void) state;
    w.slots[0].grant.ndevices = 0;
    w.slots[0].grant.whole = &w.whole;
    w.slots[0].grant.nwhole = 1;
    (void) snprintf(w.whole.uuid, sizeof(w.whole.uuid), "MIG-1");
    l.id = "MIG-1";
    take(&l);
    l.id = "MIG-1::3";
    take(&l);
    assert_int_equal(w.slots[0].doubts, 0);
    l.id = "MIG-12";
    take(&l);
    take(&l);
    assert_int_equal(w.check.differences, 1);
    assert_string_equal(w.message, "kubelet does not list MIG-1 for the container, which has it");
    l.id = "MIG-1:2";
    take(&l);
    assert_int_equal(w.check.differences, 1);
}

static void test_no_list(void **state) {
    (void) state;
    assert_int_equal(cross_check_take(&w.check, (const uint8_t *) "\x0a\xff", 2), -EBADMSG);
    assert_int_equal(w.check.differences, 0);
}

/* ---- other plugins ---- */

static const struct listed others_job = {.namespace = "batch",
                                         .pod = "job",
                                         .container = "main",
                                         .resource = "nvidia.com/gpu",
                                         .id = "GPU-1"};

static void test_devices_of_other_plugins(void **state) {
    struct listed l = others_job;
    const struct cross_check_other *o;

    (void) state;
    take(&l);
    o = cross_check_other(&w.check, "GPU-1");
    assert_non_null(o);
    assert_string_equal(o->namespace, "batch");
    assert_string_equal(o->pod, "job");
    assert_string_equal(o->resource, "nvidia.com/gpu");
    assert_null(cross_check_other(&w.check, "MIG-1"));
    l.id = "MIG-1::3"; /* as a whole it can be that plugin's to give */
    take(&l);
    assert_int_equal(w.check.others.len, 0);
    snapshot.devices[1].offer = GPU_OFFER_SHARES;
    take(&l);
    assert_non_null(cross_check_other(&w.check, "MIG-1"));
    assert_null(cross_check_other(&w.check, "GPU-1"));
    l.id = "GPU-12";
    take(&l);
    assert_int_equal(w.check.others.len, 0);
    l.id = "GPU-1";
    l.resource = OURS;
    take(&l);
    assert_int_equal(w.check.others.len, 0);
}

/* The pod, with an assignment of the card that is signed for the pod with `uid` and for `node`. */
static void assign(const char *card, const char *uid, const char *node) {
    static char text[256];

    if (!w.key) {
        _cleanup_buf_ struct buf pem = BUF_INIT(4096);

        assert_int_equal(signing_key_generate(&w.key, NULL), 0);
        assert_int_equal(signing_key_public(w.key, &pem, NULL), 0);
        assert_int_equal(signing_verifier_load(pem.data, pem.len, &w.verifier, NULL), 0);
    }
    (void) snprintf(text, sizeof(text),
                    "{\"v\":1,\"node\":\"node-a\",\"containers\":{\"main\":[{\"index\":0,"
                    "\"uuid\":\"%s\",\"core\":100,\"memory\":1073741824}]}}",
                    card);
    assert_int_equal(assignment_sign(w.key, uid, node, text, w.signature, NULL), 0);
    w.shares.pods = (void *) &w;
    w.shares.options.node_name = "node-a";
    (void) snprintf(w.pod.pod.name, sizeof(w.pod.pod.name), "job");
    (void) snprintf(w.pod.pod.uid, sizeof(w.pod.pod.uid), "uid-job");
    w.pod.pod.assignment = text;
    w.pod.pod.signature = w.signature;
}

/* It requests nvidia.com/gpu, which both aliquot-scheduler and that plugin serve. */
static void test_a_pod_that_has_the_card_from_both(void **state) {
    (void) state;
    assign("GPU-12", "uid-job", "node-a");
    take(&others_job);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    assign("GPU-1", "uid-job", "node-a");
    take(&others_job);
    assert_null(cross_check_other(&w.check, "GPU-1"));
}

/* A tenant can write the annotation where no policy keeps it from that. */
static void test_an_assignment_that_the_scheduler_has_not_signed(void **state) {
    (void) state;
    assign("GPU-1", "uid-job", "node-a");
    w.pod.pod.signature = NULL;
    take(&others_job);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    assign("GPU-1", "uid-other", "node-a");
    take(&others_job);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    assign("GPU-1", "uid-job", "node-b");
    take(&others_job);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    assign("GPU-1", "uid-job", "node-a");
    w.verifier = signing_verifier_free(w.verifier);
    take(&others_job);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
}

/* Its device stays given until the pod has ended. */
static void test_a_pod_that_a_new_kubelet_does_not_list_yet(void **state) {
    struct listed l = others_job;

    (void) state;
    w.shares.pods = (void *) &w;
    (void) snprintf(w.pod.pod.name, sizeof(w.pod.pod.name), "job");
    take(&l);
    take(&nothing);
    take(&nothing);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    assert_int_equal(w.check.others.len, sizeof(struct cross_check_other));
    w.pod.pod.finished = true;
    take(&nothing);
    assert_null(cross_check_other(&w.check, "GPU-1"));
    w.pod.pod.finished = false;
    take(&l);
    l.id = NULL; /* listed without it */
    take(&l);
    assert_null(cross_check_other(&w.check, "GPU-1"));
}

/* By a resource that the configuration does not name any more. */
static void test_own_devices_of_a_former_resource(void **state) {
    struct listed l = share;

    (void) state;
    l.resource = "nvidia.com/former";
    l.id = "GPU-1";
    take(&l);
    assert_null(cross_check_other(&w.check, "GPU-1"));
    l.pod = "other";
    take(&l);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    take(&nothing);
    assert_null(cross_check_other(&w.check, "GPU-1"));
}

/* ---- CPUs ---- */

static const struct cross_check_cpus *cpus(void) {
    assert_int_equal(w.check.cpus.len, sizeof(struct cross_check_cpus));
    return (const void *) w.check.cpus.data;
}

static void test_cpus(void **state) {
    struct listed l = share;

    (void) state;
    take(&l); /* shared CPUs are not listed */
    assert_int_equal(w.check.cpus.len, 0);
    l.ncpus = 4;
    memcpy(l.cpus, (int64_t[]){4, 5, 6, 7}, 4 * sizeof(int64_t));
    take(&l);
    assert_int_equal(cpus()->exclusive, 4);
    assert_int_equal(cpus()->elsewhere, 0);
    assert_int_equal(w.events, 0);
    memcpy(l.cpus, (int64_t[]){3, 8, 99, 7}, 4 * sizeof(int64_t)); /* 99: of no known node */
    take(&l);
    assert_int_equal(cpus()->elsewhere, 2);
    assert_int_equal(cpus()->index, 5);
    assert_string_equal(cpus()->container, "main");
    assert_string_equal(w.reason, "CPUsOnOtherNUMANode");
    assert_string_equal(w.message, "2 of 4 exclusive CPUs are not on NUMA node 1, where GPU 5 "
                                   "(GPU-1) is: copies to it are slower");
    take(&l);
    assert_int_equal(w.events, 1);
    snapshot.devices[0].links.numa = -1;
    take(&l);
    assert_int_equal(w.check.cpus.len, 0);
}

/* An instance is where its card is. */
static void test_cpus_of_an_instance(void **state) {
    struct listed l = share;

    (void) state;
    w.slots[0].grant.ndevices = 0;
    w.slots[0].grant.whole = &w.whole;
    w.slots[0].grant.nwhole = 1;
    (void) snprintf(w.whole.uuid, sizeof(w.whole.uuid), "MIG-1");
    l.id = "MIG-1";
    l.ncpus = 1;
    l.cpus[0] = 0;
    take(&l);
    assert_int_equal(cpus()->elsewhere, 1);
    assert_string_equal(cpus()->uuid, "MIG-1");
}

/* ---- free CPUs ---- */

static size_t allocatable(const int64_t *cpus, size_t n, uint8_t ret[static 64]) {
    Podresources__AllocatableResourcesResponse m =
        PODRESOURCES__ALLOCATABLE_RESOURCES_RESPONSE__INIT;

    m.n_cpu_ids = n;
    m.cpu_ids = (int64_t *) (uintptr_t) cpus;
    assert_in_range(podresources__allocatable_resources_response__get_packed_size(&m), 0, 64);
    return podresources__allocatable_resources_response__pack(&m, ret);
}

static const char *free_cpus(void) {
    static char text[NODE_CPUS_TEXT_MAX];

    node_cpus_write(cross_check_node_cpus(&w.check), text);
    return text;
}

/* Those that kubelet can give to containers (CPU 0 it cannot, and 99 is of no known node), without
 * those of any container. */
static void test_free_cpus(void **state) {
    static const int64_t cpus[] = {1, 2, 3, 8, 4, 5, 6, 7, 99};
    struct listed l = {.namespace = "else", .pod = "other", .container = "main"};
    uint8_t answer[64];
    size_t size = allocatable(cpus, sizeof(cpus) / sizeof(cpus[0]), answer);

    (void) state;
    assert_int_equal(cross_check_take_allocatable(&w.check, answer, size), 0);
    assert_null(cross_check_node_cpus(&w.check)); /* without a list */
    take(&l);
    assert_string_equal(free_cpus(), "0=4/4,1=4/4");
    l.ncpus = 4;
    memcpy(l.cpus, (int64_t[]){2, 8, 7, 99}, 4 * sizeof(int64_t));
    take(&l);
    assert_string_equal(free_cpus(), "0=2/4,1=3/4");
    take(&l);
    assert_string_equal(free_cpus(), "0=2/4,1=3/4");
    take(&nothing);
    assert_string_equal(free_cpus(), "0=4/4,1=4/4");
    assert_int_equal(cross_check_take_allocatable(&w.check, (const uint8_t *) "\x10", 1), -EBADMSG);
    assert_int_equal(cross_check_take_allocatable(&w.check, NULL, 0), 0);
    take(&l);
    assert_string_equal(free_cpus(), ""); /* kubelet gives containers no CPUs for themselves */
}

static void test_lists_of_cpus(void **state) {
    static const struct {
        const char *list;
        int64_t in, out;
    } rows[] = {
        {"0", 0, 1},       {"2-3,5", 5, 4},
        {"7\n", 7, 8},     {"4095", 4095, 4094},
        {"1,4096", 1, 96}, {"1-4096", -1, 1},
        {"-3", -1, 3},     {"3,x", 3, 0},
        {"", -1, 0},       {"18446744073709551617", -1, 1},
        {"5-2", -1, 3},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct numa_cpus n;

        memset(&n, -1, sizeof(n));
        numa_add_list(&n, 6, rows[i].list);
        assert_int_equal(numa_of_cpu(&n, rows[i].in), rows[i].in < 0 ? -1 : 6);
        assert_int_equal(numa_of_cpu(&n, rows[i].out), -1);
        assert_int_equal(numa_count(&n), rows[i].in >= 0);
    }
}

/* ---- over kubelet's socket ---- */

static unsigned asked;

static void on_list(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) userdata;
    assert_int_equal(size, 0);
    asked++;
    grpc_call_reply(call, w.list, w.size);
}

static unsigned asked_allocatable;

static void on_allocatable(struct grpc_call *call, const uint8_t *request, size_t size,
                           void *userdata) {
    static const int64_t cpus[] = {1, 2};
    uint8_t answer[64];

    (void) request, (void) userdata;
    assert_int_equal(size, 0);
    asked_allocatable++;
    grpc_call_reply(call, answer, allocatable(cpus, 2, answer));
}

static void on_timeout(uv_timer_t *timer) {
    (void) timer;
    fail_msg("nothing happened within %d ms", TIMEOUT_MS);
}

static void on_server_closed(void *userdata) {
    *(bool *) userdata = true;
}

static void write_node(const char *dir, int node, const char *text) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s/devices/system/node/node%d", dir, node);
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    (void) snprintf(path + strlen(path), sizeof(path) - strlen(path), "/cpulist");
    assert_int_equal(file_replace(path, text, strlen(text), 0644, NULL), 0);
}

static struct {
    char dir[32], path[128];
    struct grpc_server *server;
    uv_timer_t timer;
    uv_loop_t loop;
} api;

/* A machine with CPUs 0 and 1 on one NUMA node; `second`: those of the other one, or NULL. */
static void begin(const char *second) {
    asked = asked_allocatable = 0;
    (void) snprintf(api.dir, sizeof(api.dir), "/tmp/aliquot-cross-XXXXXX");
    assert_non_null(mkdtemp(api.dir));
    write_node(api.dir, 0, "0-1\n");
    if (second)
        write_node(api.dir, 1, second);
    (void) snprintf(api.path, sizeof(api.path), "%s/pod-resources", api.dir);
    assert_int_equal(dir_make(api.path, 0755, NULL), 0);
    (void) snprintf(api.path, sizeof(api.path), "%s/pod-resources/kubelet.sock", api.dir);
    assert_int_equal(uv_loop_init(&api.loop), 0);
    (void) uv_timer_init(&api.loop, &api.timer);
    (void) uv_timer_start(&api.timer, on_timeout, TIMEOUT_MS, 0);
    w.shares.loop = &api.loop;
    w.check.sys_dir = api.dir;
    buf_done(&w.check.cpus);
    list(&nothing);
}

/* kubelet begins to answer these many of the two calls. */
static void serve(size_t n) {
    static const struct grpc_method methods[] = {
        {"/v1.PodResourcesLister/List", on_list},
        {"/v1.PodResourcesLister/GetAllocatableResources", on_allocatable}};
    struct grpc_server_options options = {
        .socket_path = api.path, .methods = methods, .n_methods = n};

    assert_int_equal(grpc_server_start(&api.loop, &options, &api.server, NULL), 0);
}

static void end(void) {
    bool closed = false;

    cross_check_stop(&w.check);
    grpc_server_close(api.server, on_server_closed, &closed);
    uv_close((uv_handle_t *) &api.timer, NULL);
    uv_close((uv_handle_t *) &w.check.timer, NULL);
    (void) uv_run(&api.loop, UV_RUN_DEFAULT);
    assert_true(closed);
    assert_int_equal(uv_loop_close(&api.loop), 0);
    assert_int_equal(dir_remove(api.dir, NULL), 0);
}

/* Without an answer it tries again; a doubt is settled soon, and not after a minute. */
static void test_over_the_socket(void **state) {
    (void) state;
    begin("2\n");
    cross_check_start(&w.check, &api.loop, api.dir);
    assert_int_equal(numa_of_cpu(&w.check.numa, 1), 0);
    assert_int_equal(numa_of_cpu(&w.check.numa, 2), 1);
    assert_int_equal(numa_of_cpu(&w.check.numa, 3), -1);
    while (w.check.failed == 0)
        (void) uv_run(&api.loop, UV_RUN_ONCE);
    serve(2);
    cross_check_changed(&w.check);
    while (w.events == 0)
        (void) uv_run(&api.loop, UV_RUN_ONCE);
    assert_int_equal(asked, 2);
    assert_int_equal(asked_allocatable, 2);
    assert_int_equal(w.check.failed, 1);
    assert_string_equal(free_cpus(), "0=1/1,1=1/1");
    cross_check_changed(&w.check);
    end();
}

static void wait_failed(uint64_t times) {
    while (w.check.failed < times)
        (void) uv_run(&api.loop, UV_RUN_ONCE);
}

/* The card is not offered while the pod is there, nor kept for ever. */
static void test_a_pod_that_ends_while_lists_fail(void **state) {
    (void) state;
    begin(NULL);
    cross_check_start(&w.check, &api.loop, api.dir);
    w.shares.pods = (void *) &w;
    (void) snprintf(w.pod.pod.name, sizeof(w.pod.pod.name), "job");
    take(&others_job);
    wait_failed(1);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    w.pod.pod.finished = w.pods_unsynced = true;
    wait_failed(2);
    assert_non_null(cross_check_other(&w.check, "GPU-1"));
    w.pods_unsynced = false;
    wait_failed(3);
    assert_null(cross_check_other(&w.check, "GPU-1"));
    serve(1);
    end();
}

static void first_list(const char *second, size_t methods) {
    begin(second);
    serve(methods);
    cross_check_start(&w.check, &api.loop, api.dir);
    while (!w.check.listed)
        (void) uv_run(&api.loop, UV_RUN_ONCE);
    assert_int_equal(w.check.failed, 0);
    assert_string_equal(free_cpus(), "");
    end();
}

static void test_a_kubelet_without_allocatable(void **state) {
    (void) state;
    first_list("2\n", 1);
}

/* All CPUs are as near to the cards: it is not asked. */
static void test_one_numa_node(void **state) {
    (void) state;
    first_list(NULL, 2);
    assert_int_equal(asked_allocatable, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_kubelet_agrees),
        T(test_two_lists_in_a_row),
        T(test_of_which_pod),
        T(test_whole_devices),
        T(test_no_list),
        T(test_cpus),
        T(test_lists_of_cpus),
        T(test_cpus_of_an_instance),
        T(test_devices_of_other_plugins),
        T(test_a_pod_that_has_the_card_from_both),
        T(test_an_assignment_that_the_scheduler_has_not_signed),
        T(test_a_pod_that_a_new_kubelet_does_not_list_yet),
        T(test_own_devices_of_a_former_resource),
        T(test_over_the_socket),
        T(test_a_pod_that_ends_while_lists_fail),
        T(test_a_kubelet_without_allocatable),
        T(test_one_numa_node),
        T(test_free_cpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
