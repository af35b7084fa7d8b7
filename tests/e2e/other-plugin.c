/* SPDX-License-Identifier: Apache-2.0 */

/* A fake of NVIDIA's device plugin, as kubelet sees it. The tests get programs of other projects as
 * packages of Debian and as Go modules, and NVIDIA's plugin is not to be had as either.
 *
 *     other-plugin DIRECTORY RESOURCE UUID...
 *
 * Registers the resource with the kubelet of that plugin directory. As with NVIDIA's plugin, which
 * is run without arguments, the IDs are the UUIDs of cards, and a container gets the UUIDs of its
 * own in NVIDIA_VISIBLE_DEVICES. Runs until a signal ends it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "deviceplugin.pb-c.h"
#include "wire/grpc_client.h"
#include "wire/grpc_server.h"

#define ENDPOINT "other-plugin.sock"
#define CARDS_MAX 64
#define TEXT(s) ((char *) (uintptr_t) (s))

static char *const *cards; /* UUIDs */
static size_t ncards;

static size_t pack(const ProtobufCMessage *message, uint8_t **ret) {
    size_t size = protobuf_c_message_get_packed_size(message);

    *ret = malloc(size + 1);
    if (!*ret)
        abort();
    return protobuf_c_message_pack(message, *ret);
}

static void reply(struct grpc_call *call, const ProtobufCMessage *message) {
    _cleanup_free_ uint8_t *bytes = NULL;
    size_t size = pack(message, &bytes);

    grpc_call_reply(call, bytes, size);
}

/* ---- the calls of kubelet ---- */

static void handle_options(struct grpc_call *call, const uint8_t *request, size_t size,
                           void *userdata) {
    const Deviceplugin__DevicePluginOptions options = DEVICEPLUGIN__DEVICE_PLUGIN_OPTIONS__INIT;

    (void) request, (void) size, (void) userdata;
    reply(call, &options.base);
}

static void on_watch_cancel(struct grpc_call *call, void *userdata) {
    (void) userdata;
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
}

static void handle_watch(struct grpc_call *call, const uint8_t *request, size_t size,
                         void *userdata) {
    Deviceplugin__ListAndWatchResponse response = DEVICEPLUGIN__LIST_AND_WATCH_RESPONSE__INIT;
    Deviceplugin__Device devices[CARDS_MAX], *list[CARDS_MAX];
    _cleanup_free_ uint8_t *bytes = NULL;

    (void) request, (void) userdata;
    for (size_t i = 0; i < ncards; i++) {
        deviceplugin__device__init(&devices[i]);
        devices[i].id = cards[i];
        devices[i].health = TEXT("Healthy");
        list[i] = &devices[i];
    }
    response.n_devices = ncards;
    response.devices = list;
    grpc_call_on_cancel(call, on_watch_cancel, NULL);
    size = pack(&response.base, &bytes);
    (void) grpc_call_send(call, bytes, size);
}

static void handle_allocate(struct grpc_call *call, const uint8_t *bytes, size_t size,
                            void *userdata) {
    Deviceplugin__AllocateResponse response = DEVICEPLUGIN__ALLOCATE_RESPONSE__INIT;
    Deviceplugin__ContainerAllocateResponse container =
        DEVICEPLUGIN__CONTAINER_ALLOCATE_RESPONSE__INIT;
    Deviceplugin__ContainerAllocateResponse *containers[] = {&container};
    Deviceplugin__ContainerAllocateResponse__EnvsEntry env =
        DEVICEPLUGIN__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
    Deviceplugin__ContainerAllocateResponse__EnvsEntry *envs[] = {&env};
    Deviceplugin__AllocateRequest *request =
        deviceplugin__allocate_request__unpack(NULL, size, bytes);
    const Deviceplugin__ContainerAllocateRequest *wanted;
    _cleanup_buf_ struct buf value = BUF_INIT(0);

    (void) userdata;
    if (!request || request->n_container_requests != 1) {
        deviceplugin__allocate_request__free_unpacked(request, NULL);
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "not for one container");
        return;
    }
    wanted = request->container_requests[0];
    for (size_t i = 0; i < wanted->n_devices_ids; i++)
        buf_printf(&value, "%s%s", i > 0 ? "," : "", wanted->devices_ids[i]);
    env.key = TEXT("NVIDIA_VISIBLE_DEVICES");
    env.value = TEXT(buf_str(&value));
    container.n_envs = 1;
    container.envs = envs;
    response.n_container_responses = 1;
    response.container_responses = containers;
    reply(call, &response.base);
    deviceplugin__allocate_request__free_unpacked(request, NULL);
}

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", handle_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", handle_watch},
    {"/v1beta1.DevicePlugin/Allocate", handle_allocate},
};

/* ---- registration ---- */

static void on_registered(const struct grpc_result *result, void *userdata) {
    (void) userdata;
    (void) printf("registered: %s %s\n", grpc_status_name((int) result->status), result->text);
    (void) fflush(stdout);
    if (result->status != GRPC_OK)
        exit(EXIT_FAILURE);
}

static int do_register(uv_loop_t *loop, const char *dir, const char *resource, struct err *err) {
    Deviceplugin__RegisterRequest request = DEVICEPLUGIN__REGISTER_REQUEST__INIT;
    _cleanup_free_ uint8_t *bytes = NULL;
    char path[108];
    size_t size;

    request.version = TEXT("v1beta1");
    request.endpoint = TEXT(ENDPOINT);
    request.resource_name = TEXT(resource);
    (void) snprintf(path, sizeof(path), "%s/kubelet.sock", dir);
    size = pack(&request.base, &bytes);
    const struct grpc_request_options call = {.socket_path = path,
                                              .method = "/v1beta1.Registration/Register",
                                              .message = bytes,
                                              .size = size};
    return grpc_request_start(loop, &call, on_registered, NULL, NULL, err);
}

int main(int argc, char **argv) {
    uv_loop_t *loop = uv_default_loop();
    struct grpc_server *server;
    struct err err;
    char path[108];

    if (argc < 4 || argc - 3 > CARDS_MAX) {
        (void) fprintf(stderr, "usage: other-plugin DIRECTORY RESOURCE UUID...\n");
        return 2;
    }
    cards = argv + 3;
    ncards = (size_t) argc - 3;
    (void) snprintf(path, sizeof(path), "%s/" ENDPOINT, argv[1]);
    const struct grpc_server_options options = {
        .socket_path = path, .methods = methods, .n_methods = sizeof(methods) / sizeof(methods[0])};
    if (grpc_server_start(loop, &options, &server, &err) < 0 ||
        do_register(loop, argv[1], argv[2], &err) < 0) {
        (void) fprintf(stderr, "other-plugin: %s\n", err.text);
        return 1;
    }
    (void) uv_run(loop, UV_RUN_DEFAULT);
    return 0;
}
