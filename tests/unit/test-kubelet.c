/* SPDX-License-Identifier: Apache-2.0 */

/* The device plugins against a kubelet of our own making: one that is restarted, loses streams,
 * wipes sockets and takes its directory away, when and as often as the test wants. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/backends/backend.h"
#include "agent/kubelet/plugin_messages.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/step.h"
#include "base/text.h"
#include "fail-malloc.h"
#include "kubelet-world.h"

static void set_cards(struct fixture *f, uint32_t n) {
    f->devices.ndevices = n;
    for (uint32_t i = 0; i < n; i++)
        f->devices.devices[i] = (struct gpu_device){.healthy = true};
    kubelet_update(f->kubelet, true);
}

/* All plugins registered: their server's sockets exist and kubelet has heard of each. */
static void settle(struct fixture *f) {
    unsigned before = f->registers;

    kubelet_up(f);
    set_cards(f, 2);
    RUN_UNTIL(f, f->registers == before + resources_count);
    (void) snprintf(f->first, sizeof(f->first), "%s", f->endpoint);
}

/* ---- the tests ---- */

static void registers_when_kubelet_appears(void **state) {
    struct fixture *f = *state;
    uint64_t start;

    set_cards(f, 2);
    RUN_UNTIL(f, uv_run(&f->loop, UV_RUN_NOWAIT) >= 0);
    start = uv_hrtime();
    settle(f);
    print_message("registered %zu resources in %.2f ms\n", resources_count,
                  (double) (uv_hrtime() - start) / 1e6);
}

/* kubelet's socket is there a moment before it listens: a call in between must be repeated
 * soon. */
static void kubelet_does_not_listen_yet(void **state) {
    struct fixture *f = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int kubelet = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint64_t start;
    int fd = -1;

    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/kubelet.sock", f->plugins);
    set_cards(f, 2);
    RUN_UNTIL(f, uv_run(&f->loop, UV_RUN_NOWAIT) >= 0);
    assert_int_equal(bind(kubelet, (struct sockaddr *) &address, sizeof(address)), 0);
    start = uv_hrtime();
    RUN_UNTIL(f, uv_hrtime() - start > 20000000u);
    assert_int_equal(listen(kubelet, 8), 0);
    RUN_UNTIL(f, (fd = accept(kubelet, NULL, NULL)) >= 0);
    assert_true(uv_hrtime() - start < 1000000000u); /* without the repetition, a second at least */
    (void) close(fd);
}

static void no_cards_no_registration(void **state) {
    struct fixture *f = *state;

    kubelet_up(f);
    for (int i = 0; i < 20; i++)
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->registers, 0);
    set_cards(f, 1);
    RUN_UNTIL(f, f->registers == resources_count);
}

/* For an unhealthy card as many IDs are unhealthy as it has, and none that a container has. A part
 * of a card has none. */
static void ids_of_an_unhealthy_card(void **state) {
    static struct gpu_snapshot snapshot = {
        .ndevices = 3,
        .devices = {{.healthy = true}, {.healthy = false}, {.kind = GPU_MIG_INSTANCE}}};
    static bool held[200], sick[200];
    uint32_t n = 0;

    (void) state;
    assert_int_equal(backend_shares.list(&resources[0], &snapshot), 200);
    held[199] = held[100] = true;
    backend_shares.health(&resources[0], &snapshot, &(struct backend_held){200, held, 0}, sick);
    for (size_t i = 0; i < 200; i++) {
        assert_false(held[i] && sick[i]);
        n += sick[i];
    }
    assert_int_equal(n, 100);
    assert_true(sick[98] && sick[99] && sick[198]);
    assert_false(sick[97]);
}

/* What containers have of the unhealthy card is not for others, and what the other card has is: its
 * 100, beside the two that are held. */
static void ids_held_of_an_unhealthy_card(void **state) {
    static struct gpu_snapshot snapshot = {.ndevices = 2,
                                           .devices = {{.healthy = true}, {.healthy = false}}};
    static bool held[200], sick[200];
    uint32_t free = 0;

    (void) state;
    held[0] = held[1] = true;
    backend_shares.health(&resources[0], &snapshot, &(struct backend_held){200, held, 2}, sick);
    for (size_t i = 0; i < 200; i++)
        free += !held[i] && !sick[i];
    assert_int_equal(free, 100);
}

/* The cards that kubelet could not be told of are told of at the next poll. */
static void no_memory_for_the_list(void **state) {
    struct fixture *f = *state;

    kubelet_up(f);
    fail_malloc_at(1);
    set_cards(f, 2);
    assert_true(fail_malloc_end());
    set_cards(f, 2);
    RUN_UNTIL(f, f->registers == resources_count);
}

/* kubelet removes every socket of its directory before it makes its own. */
static void kubelet_restart(void **state) {
    struct fixture *f = *state;

    settle(f);
    for (int i = 0; i < 10; i++) {
        unsigned before = f->registers;
        char path[160];

        kubelet_down(f);
        (void) snprintf(path, sizeof(path), "%s/%s", f->plugins, f->endpoint);
        (void) unlink(path);
        kubelet_up(f);
        RUN_UNTIL(f, f->registers >= before + resources_count);
        assert_string_not_equal(f->endpoint, f->first);
        (void) snprintf(f->first, sizeof(f->first), "%s", f->endpoint);
    }
}

static void own_socket_removed(void **state) {
    struct fixture *f = *state;
    char path[160];

    settle(f);
    (void) snprintf(path, sizeof(path), "%s/%s", f->plugins, f->endpoint);
    assert_int_equal(unlink(path), 0);
    RUN_UNTIL(f, strcmp(f->endpoint, f->first) != 0);
}

/* A watcher that goes away is how a lost stream looks; kubelet does not come back by itself. */
static void stream_lost(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf nothing = BUF_INIT(16);
    uint64_t start;

    settle(f);
    call(f, "/v1beta1.DevicePlugin/ListAndWatch", &nothing, 100);
    assert_int_equal(f->result.status, GRPC_DEADLINE_EXCEEDED);
    start = uv_hrtime();
    RUN_UNTIL(f, strcmp(f->endpoint, f->first) != 0);
    assert_true(uv_hrtime() - start < 2000000000u); /* the time after a registration without one */
}

static void directory_made_again(void **state) {
    struct fixture *f = *state;
    unsigned before;

    settle(f);
    kubelet_down(f);
    assert_int_equal(dir_remove(f->plugins, NULL), 0);
    for (int i = 0; i < 5; i++)
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(mkdir(f->plugins, 0755), 0);
    before = f->registers;
    kubelet_up(f);
    RUN_UNTIL(f, f->registers >= before + resources_count);
}

static void allocate_names_are_unique(void **state) {
    static const char *const ids[] = {"c-0001", "c-0002"};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    char first[64] = "";

    settle(f);
    put_ids(&request, true, ids, 2);
    for (int i = 0; i < 3; i++) {
        Deviceplugin__AllocateResponse *m;
        char nonce[NONCE_LEN + 1];

        call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
        assert_int_equal(f->result.status, GRPC_OK);
        m = deviceplugin__allocate_response__unpack(NULL, f->result.size, f->reply);
        assert_int_equal(m->n_container_responses, 1);
        assert_int_equal(m->container_responses[0]->n_cdi_devices, 2);
        assert_true(nonce_of_cdi_name(m->container_responses[0]->cdi_devices[0]->name, nonce));
        assert_string_not_equal(nonce, first);
        (void) snprintf(first, sizeof(first), "%s", nonce);
        deviceplugin__allocate_response__free_unpacked(m, NULL);
    }
}

/* A runtime that applies no CDI cannot mount the file: its parent is of sysfs. */
static void allocate_guards_against_a_runtime_without_cdi(void **state) {
    static const char *const ids[] = {"c-0001"};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    Deviceplugin__AllocateResponse *m;
    const Deviceplugin__Mount *mount;

    settle(f);
    put_ids(&request, true, ids, 1);
    call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
    assert_int_equal(f->result.status, GRPC_OK);
    m = deviceplugin__allocate_response__unpack(NULL, f->result.size, f->reply);
    assert_int_equal(m->container_responses[0]->n_mounts, 1);
    mount = m->container_responses[0]->mounts[0];
    assert_string_equal(mount->container_path, "/sys/class/mem/aliquot");
    assert_string_equal(mount->host_path, GUARD);
    assert_true(mount->read_only);
    /* An agent without the guard, which starts the container again, writes the share's file only.
     */
    assert_string_equal(m->container_responses[0]->cdi_devices[1]->name, "elasticgpu.io/guard=cdi");
    deviceplugin__allocate_response__free_unpacked(m, NULL);
}

static void expect_allocate(struct fixture *f, const char *id, int status) {
    _cleanup_buf_ struct buf request = BUF_INIT(4096);

    put_ids(&request, true, &id, 1);
    call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
    assert_int_equal(f->result.status, status);
}

/* kubelet can have chosen an instance just before it is withdrawn for a repartition. After its
 * restart it has forgotten that it was told. */
static void allocate_of_what_is_withdrawn_is_refused(void **state) {
    struct fixture *f = *state;
    struct gpu_device *d = &f->devices.devices[1];

    settle(f);
    d->kind = GPU_MIG_INSTANCE;
    text_copy(d->uuid, sizeof(d->uuid), "MIG-a");
    expect_allocate(f, "MIG-a", GRPC_OK);
    d->service = GPU_SERVES_NONE;
    kubelet_update(f->kubelet, false);
    expect_allocate(f, "MIG-a", GRPC_FAILED_PRECONDITION);
    expect_allocate(f, "MIG-a::1", GRPC_FAILED_PRECONDITION);
    expect_allocate(f, "MIG-b", GRPC_OK);
    kubelet_down(f);
    settle(f);
    d->kind = GPU_MIG_INSTANCE;
    text_copy(d->uuid, sizeof(d->uuid), "MIG-a");
    d->service = GPU_SERVES_NONE;
    expect_allocate(f, "MIG-a", GRPC_FAILED_PRECONDITION);
}

static void prestart_gets_sorted_ids(void **state) {
    static const char *const ids[] = {"c-0009", "c-0002", "c-0005"};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096);

    settle(f);
    put_ids(&request, false, ids, 3);
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &request, 5000);
    assert_int_equal(f->result.status, GRPC_FAILED_PRECONDITION);
    assert_int_equal(f->prestart_ids, 3);
    assert_string_equal(f->prestart_first, "c-0002");
}

static void garbage_is_refused(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(64);

    settle(f);
    buf_append(&request, "\xff\xff\xff\xff\xff\xff", 6);
    call(f, "/v1beta1.DevicePlugin/Allocate", &request, 5000);
    assert_int_equal(f->result.status, GRPC_INVALID_ARGUMENT);
    call(f, "/v1beta1.DevicePlugin/PreStartContainer", &request, 5000);
    assert_int_equal(f->result.status, GRPC_INVALID_ARGUMENT);
    call(f, "/v1beta1.DevicePlugin/GetPreferredAllocation", &request, 5000);
    assert_int_equal(f->result.status, GRPC_INVALID_ARGUMENT);
    call(f, "/v1beta1.DevicePlugin/Nonsense", &request, 5000);
    assert_int_equal(f->result.status, GRPC_UNIMPLEMENTED);
}

static void checkpoint_is_noticed(void **state) {
    struct fixture *f = *state;
    char path[160];

    settle(f);
    (void) snprintf(path, sizeof(path), "%s/" CHECKPOINT_FILE, f->plugins);
    assert_int_equal(file_replace(path, "{}", 2, 0600, NULL), 0);
    RUN_UNTIL(f, f->checkpoints > 0);
}

static struct backend_held told; /* without its list */
static uint32_t told_held;       /* IDs that are true in it */

static void remember_held(const struct resource *r, const struct gpu_snapshot *s,
                          const struct backend_held *held, bool *ret_sick) {
    (void) r, (void) s, (void) ret_sick;
    told = *held;
    told_held = 0;
    for (uint32_t i = 0; i < held->count; i++)
        told_held += held->ids[i];
}

/* Both containers of the pod have the same IDs, as kubelet gives those of an init container again.
 */
static void write_checkpoint(struct fixture *f, const char *ids) {
    unsigned before = f->checkpoints;
    char path[160], text[512];

    (void) snprintf(path, sizeof(path), "%s/" CHECKPOINT_FILE, f->plugins);
    (void) snprintf(
        text, sizeof(text),
        "{\"Data\":{\"PodDeviceEntries\":["
        "{\"PodUID\":\"u\",\"ContainerName\":\"init\",\"ResourceName\":\"example.com/w\","
        "\"DeviceIDs\":[%s],\"AllocResp\":\"\"},"
        "{\"PodUID\":\"u\",\"ContainerName\":\"main\",\"ResourceName\":\"example.com/w\","
        "\"DeviceIDs\":[%s],\"AllocResp\":\"\"}]}}",
        ids, ids);
    assert_int_equal(file_replace(path, text, strlen(text), 0600, NULL), 0);
    RUN_UNTIL(f, f->checkpoints > before);
}

/* What containers have of an unhealthy card counts once, and anew when kubelet has written what
 * they have, or when they have ended, which kubelet does not write. */
static void held_of_an_unhealthy_card(void **state) {
    static struct backend backend;
    static struct resource row = {.name = "example.com/w",
                                  .socket = "w",
                                  .letter = 'w',
                                  .per_card = CORE_PER_CARD,
                                  .backend = &backend};
    struct fixture *f = *state;

    settle(f);
    backend = backend_shares;
    backend.health = remember_held;
    assert_int_equal(kubelet_add(f->kubelet, &row), 0);
    f->unhealthy_percent = 50;
    write_checkpoint(f, "\"w-0001\",\"w-0002\",\"w-0003\"");
    f->devices.devices[1].healthy = false;
    kubelet_update(f->kubelet, true);
    assert_int_equal(told.count, 200);
    assert_int_equal(told.of_unhealthy, 2); /* of three, rounded up */
    write_checkpoint(f, "\"w-0001\"");
    kubelet_update(f->kubelet, true);
    assert_int_equal(told.of_unhealthy, 1);
    assert_int_equal(told_held, 1);
    told.of_unhealthy = 7;
    kubelet_update(f->kubelet, true);
    assert_int_equal(told.of_unhealthy, 7); /* nothing was written */
    f->ended = true;
    kubelet_held_changed(f->kubelet);
    kubelet_update(f->kubelet, true);
    assert_int_equal(told.of_unhealthy, 0);
    assert_int_equal(told_held, 0);
}

/* ---- while other work holds the loop ---- */

struct caller {
    uv_loop_t loop; /* of its own: that of the plugin does not run */
    bool answered;
    int status;
};

static void on_caller_result(const struct grpc_result *result, void *userdata) {
    struct caller *c = userdata;

    c->answered = true;
    c->status = (int) result->status;
}

/* Begins a call of kubelet on a connection that the plugin has accepted. */
static void begin_call(struct fixture *f, struct caller *c, const char *method,
                       const struct buf *message, unsigned timeout_ms) {
    char path[160];
    struct grpc_request_options options = {.socket_path = path,
                                           .method = method,
                                           .timeout_ms = timeout_ms,
                                           .message = (const uint8_t *) buf_str(message),
                                           .size = message->len};

    (void) snprintf(path, sizeof(path), "%s/%s", f->plugins, f->endpoint);
    *c = (struct caller){.status = -1};
    assert_int_equal(uv_loop_init(&c->loop), 0);
    assert_int_equal(grpc_request_start(&c->loop, &options, on_caller_result, c, NULL, NULL), 0);
    for (int i = 0; i < 3; i++) /* the connection comes, and nothing on it yet */
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
    for (int i = 0; i < 3; i++)
        (void) uv_run(&c->loop, UV_RUN_NOWAIT);
}

static void end_call(struct caller *c) {
    (void) uv_run(&c->loop, UV_RUN_DEFAULT);
    assert_true(c->answered);
    assert_int_equal(uv_loop_close(&c->loop), 0);
}

static void allocate_is_answered_between_steps(void **state) {
    static const char *const ids[] = {"c-0001", "c-0002"};
    struct fixture *f = *state;
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    struct caller c;

    settle(f);
    put_ids(&request, true, ids, 2);
    begin_call(f, &c, "/v1beta1.DevicePlugin/Allocate", &request, TIMEOUT_MS);
    assert_false(c.answered);
    (void) usleep(1000); /* the time between two services of kubelet's calls */
    step_end();          /* of work that takes long, in a callback of the loop */
    end_call(&c);
    assert_int_equal(c.status, GRPC_OK);
}

static void preferred_is_quick_and_right(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(4096);
    /* container_requests{available: c-0003 c-0001 c-0002, must_include: c-0002, size: 2} */
    static const uint8_t request[] = "\x0a\x22\x0a\x06"
                                     "c-0003\x0a\x06"
                                     "c-0001\x0a\x06"
                                     "c-0002\x12\x06"
                                     "c-0002\x18\x02";
    Deviceplugin__PreferredAllocationResponse *m;

    (void) state;
    assert_int_equal(message_preferred(&resources[0], NULL, request, sizeof(request) - 1, &out), 0);
    m = deviceplugin__preferred_allocation_response__unpack(NULL, out.len,
                                                            (const uint8_t *) out.data);
    assert_int_equal(m->container_responses[0]->n_deviceids, 2);
    assert_string_equal(m->container_responses[0]->deviceids[0], "c-0002");
    assert_string_equal(m->container_responses[0]->deviceids[1], "c-0003");
    deviceplugin__preferred_allocation_response__free_unpacked(m, NULL);
}

/* The computed size is an upper bound, and exact when all are unhealthy and have a NUMA node. */
static void list_size_is_computed(void **state) {
    static const bool all[200] = {[0 ... 199] = true};
    static const struct gpu_snapshot none;
    static const struct gpu_snapshot one = {.ndevices = 1,
                                            .devices = {{.links = {.known = 1, .numa = 7}}}};
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

    (void) state;
    message_list(&resources[0], &one, 200, all, &out);
    assert_int_equal(out.len, resource_message_size(&resources[0], 200));
    buf_reset(&out);
    message_list(&resources[0], &none, 200, NULL, &out);
    assert_int_equal(out.len, resource_message_size(&resources[0], 200) - 200 * (2 + 6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(registers_when_kubelet_appears, setup, teardown),
        cmocka_unit_test_setup_teardown(kubelet_does_not_listen_yet, setup, teardown),
        cmocka_unit_test_setup_teardown(no_cards_no_registration, setup, teardown),
        cmocka_unit_test(ids_of_an_unhealthy_card),
        cmocka_unit_test(ids_held_of_an_unhealthy_card),
        cmocka_unit_test_setup_teardown(no_memory_for_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown(kubelet_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(own_socket_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(directory_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(allocate_names_are_unique, setup, teardown),
        cmocka_unit_test_setup_teardown(allocate_of_what_is_withdrawn_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(allocate_guards_against_a_runtime_without_cdi, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(prestart_gets_sorted_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(checkpoint_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(held_of_an_unhealthy_card, setup, teardown),
        cmocka_unit_test_setup_teardown(allocate_is_answered_between_steps, setup, teardown),
        cmocka_unit_test(preferred_is_quick_and_right),
        cmocka_unit_test(list_size_is_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
