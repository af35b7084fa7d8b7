/* SPDX-License-Identifier: Apache-2.0 */

/* The DRA plugin's sockets against a kubelet that restarts, wipes them, and sends garbage. */

#include "dra-world.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/dra/messages.h"
#include "agent/dra/plugin.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "wire/grpc_server.h"

struct fixture {
    struct dra_world world;
    struct dra_plugin *plugin;
    unsigned states, detached;
    bool registered, sick, closed;
    char why[DRA_REGISTER_TEXT_MAX];
    uint8_t sent[4096]; /* the last list of health */
    size_t sent_size;
    unsigned lists;
};

static struct fixture *current;

int __real_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size);
int __wrap_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size);

int __wrap_grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size) {
    assert_in_range(size, 0, sizeof(current->sent));
    memcpy(current->sent, message, size);
    current->sent_size = size;
    current->lists++;
    return __real_grpc_call_send(call, message, size);
}

static void on_prepare(struct grpc_call *call, const struct dra_claim_ids *claims, void *userdata) {
    const struct dra_device device = {"gpu", "node-a", "gpu-0", "elasticgpu.io/share=1", "s1"};
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

    (void) userdata;
    for (size_t i = 0; i < claims->n; i++)
        dra_message_prepared(claims->list[i].uid, &device, 1, i == 0 ? NULL : "the card is gone",
                             &out);
    assert_int_equal(buf_error(&out), 0);
    grpc_call_reply(call, (const uint8_t *) buf_str(&out), out.len);
}

static void on_unprepare(struct grpc_call *call, const struct dra_claim_ids *claims,
                         void *userdata) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

    (void) userdata;
    for (size_t i = 0; i < claims->n; i++)
        dra_message_unprepared(claims->list[i].uid, i == 0 ? NULL : "later", &out);
    grpc_call_reply(call, (const uint8_t *) buf_str(&out), out.len);
}

static void health(struct buf *out, void *userdata) {
    const struct fixture *f = userdata;

    dra_message_health(
        &(struct dra_health){"node-a", "gpu-0", !f->sick, f->sick ? "XID 79" : "", 1700000000, 30},
        out);
}

static void on_state(bool registered, const char *why, void *userdata) {
    struct fixture *f = userdata;

    f->states++;
    f->registered = registered;
    (void) snprintf(f->why, sizeof(f->why), "%s", why);
}

static void on_detached(void *userdata) {
    ((struct fixture *) userdata)->detached++;
}

static void make_registry(const struct fixture *f) {
    char path[128];

    (void) snprintf(path, sizeof(path), "%s/plugins_registry", f->world.dir);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void start(struct fixture *f) {
    const struct dra_plugin_options options = {.kubelet_dir = f->world.dir,
                                               .on_prepare = on_prepare,
                                               .on_unprepare = on_unprepare,
                                               .health = health,
                                               .on_state = on_state,
                                               .on_detached = on_detached,
                                               .userdata = f};

    assert_int_equal(dra_plugin_start(&f->world.loop, &options, &f->plugin, NULL), 0);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    current = f;
    world_init(&f->world);
    *state = f;
    return 0;
}

static void on_closed(void *userdata) {
    ((struct fixture *) userdata)->closed = true;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    dra_plugin_close(f->plugin, on_closed, f);
    RUN_UNTIL(&f->world, f->closed);
    assert_int_not_equal(access(f->world.registration, F_OK), 0);
    assert_int_not_equal(access(f->world.plugin, F_OK), 0);
    world_done(&f->world);
    (void) dir_remove(f->world.dir, NULL);
    free(f);
    return 0;
}

static void tell(struct fixture *f, bool registered, const char *error) {
    Draplugin__RegistrationStatus m = DRAPLUGIN__REGISTRATION_STATUS__INIT;
    _cleanup_buf_ struct buf message = BUF_INIT(4096);
    uint8_t bytes[1024];

    m.plugin_registered = registered;
    m.error = (char *) (uintptr_t) error;
    buf_append(&message, (const char *) bytes, draplugin__registration_status__pack(&m, bytes));
    call(&f->world, f->world.registration, REGISTRATION "NotifyRegistrationStatus", &message);
    assert_int_equal(f->world.status, GRPC_OK);
}

/* What kubelet does when it finds the socket. */
static void register_plugin(struct fixture *f) {
    _cleanup_buf_ struct buf nothing = BUF_INIT(16);
    Draplugin__PluginInfo *info;

    RUN_UNTIL(&f->world, access(f->world.registration, F_OK) == 0);
    call(&f->world, f->world.registration, REGISTRATION "GetInfo", &nothing);
    assert_int_equal(f->world.status, GRPC_OK);
    info = draplugin__plugin_info__unpack(NULL, f->world.size, f->world.reply);
    assert_non_null(info);
    assert_string_equal(info->type, "DRAPlugin");
    assert_string_equal(info->name, "gpu.elasticgpu.io");
    assert_string_equal(info->endpoint, f->world.plugin);
    assert_int_equal(info->n_supported_versions, 2);
    assert_string_equal(info->supported_versions[0], "v1.DRAPlugin");
    assert_string_equal(info->supported_versions[1], "v1alpha1.DRAResourceHealth");
    draplugin__plugin_info__free_unpacked(info, NULL);
    tell(f, true, "");
    assert_true(f->registered && dra_plugin_is_registered(f->plugin));
}

/* ---- the tests ---- */

static void registers_when_kubelet_appears(void **state) {
    struct fixture *f = *state;

    start(f);
    assert_int_not_equal(access(f->world.registration, F_OK), 0);
    make_registry(f);
    register_plugin(f);
}

static void kubelet_refuses(void **state) {
    struct fixture *f = *state;

    make_registry(f);
    start(f);
    tell(f, false, "no such version");
    assert_false(f->registered || dra_plugin_is_registered(f->plugin));
    assert_string_equal(f->why, "no such version");
    tell(f, false, "");
    assert_string_equal(f->why, "kubelet gives no reason");
    register_plugin(f); /* kubelet tries again */
}

/* An agent that was killed has left both. */
static void dead_sockets_are_replaced(void **state) {
    struct fixture *f = *state;
    const char *const paths[] = {f->world.registration, f->world.plugin};
    char dir[128];

    make_registry(f);
    (void) snprintf(dir, sizeof(dir), "%s/plugins/gpu.elasticgpu.io", f->world.dir);
    assert_int_equal(dir_make(dir, 0755, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", paths[i]);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    }
    start(f);
    register_plugin(f);
}

/* Without either of the two, kubelet has to find a registration that was made after the loss. */
static void lost_sockets_are_made_again(void **state) {
    struct fixture *f = *state;
    const char *const paths[] = {f->world.registration, f->world.plugin};

    make_registry(f);
    start(f);
    register_plugin(f);
    for (size_t i = 0; i < 2; i++) {
        unsigned before = f->states;

        assert_int_equal(unlink(paths[i]), 0);
        assert_false(dra_plugin_is_registered(f->plugin));
        RUN_UNTIL(&f->world, f->states > before);
        assert_false(f->registered);
        assert_string_equal(f->why, "a socket was removed");
        RUN_UNTIL(&f->world, access(f->world.plugin, F_OK) == 0);
        register_plugin(f);
    }
}

static void directories_are_made_again(void **state) {
    struct fixture *f = *state;
    char path[128];

    make_registry(f);
    start(f);
    register_plugin(f);
    (void) snprintf(path, sizeof(path), "%s/plugins_registry", f->world.dir);
    assert_int_equal(dir_remove(path, NULL), 0);
    RUN_UNTIL(&f->world, !f->registered);
    make_registry(f);
    register_plugin(f);
    (void) snprintf(path, sizeof(path), "%s/plugins", f->world.dir);
    assert_int_equal(dir_remove(path, NULL), 0);
    RUN_UNTIL(&f->world, !f->registered);
    register_plugin(f);
    assert_int_equal(f->detached, 0);
}

static void claims_and_answers(void **state) {
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    Draplugin__NodeUnprepareResourcesResponse *gone;
    Draplugin__NodePrepareResourcesResponse *m;
    struct fixture *f = *state;

    make_registry(f);
    start(f);
    put_claim(&request, "ns", "u1", "c1");
    put_claim(&request, "ns", "u2", "c2");
    call(&f->world, f->world.plugin, SERVICE "NodePrepareResources", &request);
    assert_int_equal(f->world.status, GRPC_OK);
    m = draplugin__node_prepare_resources_response__unpack(NULL, f->world.size, f->world.reply);
    assert_non_null(m);
    assert_int_equal(m->n_claims, 2);
    assert_string_equal(m->claims[0]->key, "u1");
    assert_string_equal(m->claims[0]->value->error, "");
    assert_int_equal(m->claims[0]->value->n_devices, 1);
    assert_string_equal(m->claims[0]->value->devices[0]->request_names[0], "gpu");
    assert_string_equal(m->claims[0]->value->devices[0]->pool_name, "node-a");
    assert_string_equal(m->claims[0]->value->devices[0]->device_name, "gpu-0");
    assert_string_equal(m->claims[0]->value->devices[0]->cdi_device_ids[0],
                        "elasticgpu.io/share=1");
    assert_string_equal(m->claims[0]->value->devices[0]->share_id, "s1");
    assert_string_equal(m->claims[1]->key, "u2");
    assert_string_equal(m->claims[1]->value->error, "the card is gone");
    assert_int_equal(m->claims[1]->value->n_devices, 0);
    draplugin__node_prepare_resources_response__free_unpacked(m, NULL);
    call(&f->world, f->world.plugin, SERVICE "NodeUnprepareResources", &request);
    gone =
        draplugin__node_unprepare_resources_response__unpack(NULL, f->world.size, f->world.reply);
    assert_non_null(gone);
    assert_int_equal(gone->n_claims, 2);
    assert_string_equal(gone->claims[0]->value->error, "");
    assert_string_equal(gone->claims[1]->value->error, "later");
    draplugin__node_unprepare_resources_response__free_unpacked(gone, NULL);
}

static void send_raw(struct fixture *f, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint8_t noise[512];
    ssize_t n = -1;

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t) (i * 37 + 11);
    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    assert_int_equal(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(write(fd, noise, sizeof(noise)), sizeof(noise));
    /* The server ends the connection. */
    RUN_UNTIL(&f->world, (n = read(fd, noise, sizeof(noise))) == 0 ||
                             (n < 0 && errno != EAGAIN && errno != EINTR));
}

static void garbage_on_both_sockets(void **state) {
    _cleanup_buf_ struct buf noise = BUF_INIT(64), many = BUF_INIT(1 << 20);
    static const char *const methods[] = {SERVICE "NodePrepareResources",
                                          SERVICE "NodeUnprepareResources"};
    struct fixture *f = *state;

    make_registry(f);
    start(f);
    buf_append(&noise, "\x0a\xff\xff\xff\xff\x0f garbage", 14);
    for (size_t i = 0; i <= DRA_CLAIMS_MAX; i++)
        put_claim(&many, "ns", "u", "c");
    for (size_t i = 0; i < 2; i++) {
        call(&f->world, f->world.plugin, methods[i], &noise);
        assert_int_equal(f->world.status, GRPC_INVALID_ARGUMENT);
        assert_string_equal(f->world.text, "not a list of claims");
        call(&f->world, f->world.plugin, methods[i], &many);
        assert_int_equal(f->world.status, GRPC_INVALID_ARGUMENT);
        assert_string_equal(f->world.text, "too many claims in one request");
    }
    call(&f->world, f->world.registration, REGISTRATION "NotifyRegistrationStatus", &noise);
    assert_int_equal(f->world.status, GRPC_INVALID_ARGUMENT);
    call(&f->world, f->world.registration, SERVICE "NodePrepareResources", &noise);
    assert_int_equal(f->world.status, GRPC_UNIMPLEMENTED);
    assert_int_equal(f->states, 0);
    send_raw(f, f->world.registration);
    send_raw(f, f->world.plugin);
    register_plugin(f);
}

static void expect_health(const struct fixture *f, Draplugin__HealthStatus status,
                          const char *message) {
    Draplugin__NodeWatchResourcesResponse *m =
        draplugin__node_watch_resources_response__unpack(NULL, f->sent_size, f->sent);

    assert_non_null(m);
    assert_int_equal(m->n_devices, 1);
    assert_string_equal(m->devices[0]->device->pool_name, "node-a");
    assert_string_equal(m->devices[0]->device->device_name, "gpu-0");
    assert_int_equal(m->devices[0]->health, status);
    assert_int_equal(m->devices[0]->last_updated_time, 1700000000);
    assert_int_equal(m->devices[0]->health_check_timeout_seconds, 30);
    assert_string_equal(m->devices[0]->message, message);
    draplugin__node_watch_resources_response__free_unpacked(m, NULL);
}

/* Without a change it is said again before kubelet forgets it. */
static void health_is_streamed(void **state) {
    _cleanup_buf_ struct buf nothing = BUF_INIT(16);
    struct fixture *f = *state;
    unsigned before;

    make_registry(f);
    start(f);
    begin_call(&f->world, f->world.plugin, HEALTH "NodeWatchResources", &nothing,
               DRA_HEALTH_REPEAT_MS + 5000);
    RUN_UNTIL(&f->world, f->lists == 1);
    expect_health(f, DRAPLUGIN__HEALTH_STATUS__HEALTHY, "");
    f->sick = true;
    dra_plugin_health_changed(f->plugin);
    assert_int_equal(f->lists, 2);
    expect_health(f, DRAPLUGIN__HEALTH_STATUS__UNHEALTHY, "XID 79");
    RUN_UNTIL(&f->world, f->lists == 3);
    RUN_UNTIL(&f->world, f->world.answered);
    /* A stream that has ended is sent nothing. */
    RUN_UNTIL(&f->world,
              (before = f->lists, dra_plugin_health_changed(f->plugin), f->lists == before));
}

static void the_path_is_too_long(void **state) {
    struct fixture *f = *state;
    const struct dra_plugin_options options = {
        .kubelet_dir = "/a-directory-that-has-a-name-of-more-than-60-characters/kubelet"};
    struct dra_plugin *p;
    struct err err;

    assert_int_equal(dra_plugin_start(&f->world.loop, &options, &p, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "107 bytes"));
    start(f); /* for the teardown */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(registers_when_kubelet_appears, setup, teardown),
        cmocka_unit_test_setup_teardown(kubelet_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_sockets_are_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_sockets_are_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(directories_are_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(claims_and_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage_on_both_sockets, setup, teardown),
        cmocka_unit_test_setup_teardown(health_is_streamed, setup, teardown),
        cmocka_unit_test_setup_teardown(the_path_is_too_long, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
