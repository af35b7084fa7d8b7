/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A device plugin that does what interop_test.go tells it, to try our gRPC with kubelet's own
 * client library. Usage: plugin SOCKET. Orders come as device IDs of Allocate:
 *     push N           send a list of N devices to every watcher
 *     register SOCKET  call Register there and print the result
 *     get SOCKET       call podresources Get there and print the result
 *     close            close the server and exit
 * What happens is printed, one line an event.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"
#include "deviceplugin.pb-c.h"
#include "podresources.pb-c.h"
#include "wire/grpc_client.h"
#include "wire/grpc_server.h"

#define WATCHERS_MAX 8

struct plugin {
    uv_loop_t *loop;
    struct grpc_server *server;
    struct grpc_call *watchers[WATCHERS_MAX];
};

static void say(const char *what, const char *detail) {
    printf("%s %s\n", what, detail);
    fflush(stdout);
}

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

static void handle_options(struct grpc_call *call, const uint8_t *request, size_t size,
                           void *userdata) {
    (void) request, (void) size, (void) userdata;
    Deviceplugin__DevicePluginOptions options = DEVICEPLUGIN__DEVICE_PLUGIN_OPTIONS__INIT;
    options.pre_start_required = 1;
    reply(call, &options.base);
}

/* ---- ListAndWatch ---- */

static void push(struct grpc_call *call, uint64_t n) {
    Deviceplugin__NUMANode node = DEVICEPLUGIN__NUMANODE__INIT;
    Deviceplugin__NUMANode *nodes[] = {&node};
    Deviceplugin__TopologyInfo topology = DEVICEPLUGIN__TOPOLOGY_INFO__INIT;
    topology.n_nodes = 1;
    topology.nodes = nodes;
    _cleanup_free_ Deviceplugin__Device *devices = calloc(n + 1, sizeof(*devices));
    _cleanup_free_ Deviceplugin__Device **list = calloc(n + 1, sizeof(*list));
    _cleanup_free_ char *ids = calloc(n + 1, 16);
    if (!devices || !list || !ids)
        abort();
    for (uint64_t i = 0; i < n; i++) {
        deviceplugin__device__init(&devices[i]);
        (void) snprintf(ids + i * 16, 16, "dev-%06u", (unsigned) i);
        devices[i].id = ids + i * 16;
        devices[i].topology = &topology;
        list[i] = &devices[i];
    }
    char healthy[] = "Healthy";
    for (uint64_t i = 0; i < n; i++)
        devices[i].health = healthy;
    Deviceplugin__ListAndWatchResponse response = DEVICEPLUGIN__LIST_AND_WATCH_RESPONSE__INIT;
    response.n_devices = n;
    response.devices = list;

    _cleanup_free_ uint8_t *bytes = NULL;
    size_t size = pack(&response.base, &bytes);
    if (grpc_call_send(call, bytes, size) < 0)
        say("push", "failed");
}

static void on_watch_cancel(struct grpc_call *call, void *userdata) {
    struct plugin *plugin = userdata;
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (plugin->watchers[i] == call)
            plugin->watchers[i] = NULL;
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
    say("watch", "cancelled");
}

static void handle_watch(struct grpc_call *call, const uint8_t *request, size_t size,
                         void *userdata) {
    (void) request, (void) size;
    struct plugin *plugin = userdata;
    for (size_t i = 0; i < WATCHERS_MAX; i++) {
        if (plugin->watchers[i])
            continue;
        plugin->watchers[i] = call;
        grpc_call_on_cancel(call, on_watch_cancel, plugin);
        push(call, 2);
        return;
    }
    grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "too many watchers");
}

/* ---- orders ---- */

static void on_registered(const struct grpc_result *result, void *userdata) {
    (void) userdata;
    char line[256];
    (void) snprintf(line, sizeof(line), "%s %s", grpc_status_name((int) result->status),
                    result->text);
    say("registered", line);
}

static void call_register(struct plugin *plugin, const char *socket_path) {
    Deviceplugin__DevicePluginOptions options = DEVICEPLUGIN__DEVICE_PLUGIN_OPTIONS__INIT;
    Deviceplugin__RegisterRequest request = DEVICEPLUGIN__REGISTER_REQUEST__INIT;
    char version[] = "v1beta1", endpoint[] = "plugin.sock", resource[] = "example.com/thing";
    request.version = version;
    request.endpoint = endpoint;
    request.resource_name = resource;
    options.pre_start_required = 1;
    request.options = &options;
    _cleanup_free_ uint8_t *bytes = NULL;
    size_t size = pack(&request.base, &bytes);
    const struct grpc_request_options call = {
        .socket_path = socket_path,
        .method = "/v1beta1.Registration/Register",
        .message = bytes,
        .size = size,
        .timeout_ms = 5000,
    };
    struct err err;
    if (grpc_request_start(plugin->loop, &call, on_registered, plugin, NULL, &err) < 0)
        say("registered", err.text);
}

static void on_get(const struct grpc_result *result, void *userdata) {
    (void) userdata;
    char line[512];
    if (result->status != GRPC_OK) {
        (void) snprintf(line, sizeof(line), "%s %s", grpc_status_name((int) result->status),
                        result->text);
        say("got", line);
        return;
    }
    Podresources__GetResponse *response =
        podresources__get_response__unpack(NULL, result->size, result->message);
    if (!response || !response->pod_resources) {
        say("got", "nothing");
    } else {
        const Podresources__PodResources *pod = response->pod_resources;
        const Podresources__ContainerResources *container =
            pod->n_containers > 0 ? pod->containers[0] : NULL;
        size_t n = container ? container->n_devices : 0;
        (void) snprintf(line, sizeof(line), "%s/%s %s devices=%zu size=%zu", pod->namespace_,
                        pod->name, container ? container->name : "-", n, result->size);
        say("got", line);
    }
    podresources__get_response__free_unpacked(response, NULL);
}

static void call_get(struct plugin *plugin, const char *socket_path) {
    Podresources__GetRequest request = PODRESOURCES__GET_REQUEST__INIT;
    char name[] = "pod-a", namespace[] = "ns-a";
    request.pod_name = name;
    request.pod_namespace = namespace;
    _cleanup_free_ uint8_t *bytes = NULL;
    size_t size = pack(&request.base, &bytes);
    const struct grpc_request_options call = {
        .socket_path = socket_path,
        .method = "/v1.PodResourcesLister/Get",
        .message = bytes,
        .size = size,
    };
    struct err err;
    if (grpc_request_start(plugin->loop, &call, on_get, plugin, NULL, &err) < 0)
        say("got", err.text);
}

static void on_closed(void *userdata) {
    (void) userdata;
    say("server", "closed");
}

static void obey(struct plugin *plugin, char *const *words, size_t n) {
    const char *argument = n > 1 ? words[1] : "";
    uint64_t count;
    if (strcmp(words[0], "push") == 0 && num_parse_u64(argument, 1000000, &count) == 0) {
        for (size_t i = 0; i < WATCHERS_MAX; i++)
            if (plugin->watchers[i])
                push(plugin->watchers[i], count);
    } else if (strcmp(words[0], "register") == 0) {
        call_register(plugin, argument);
    } else if (strcmp(words[0], "get") == 0) {
        call_get(plugin, argument);
    } else if (strcmp(words[0], "close") == 0) {
        grpc_server_close(plugin->server, on_closed, plugin);
    }
}

static void handle_allocate(struct grpc_call *call, const uint8_t *bytes, size_t size,
                            void *userdata) {
    struct plugin *plugin = userdata;
    Deviceplugin__AllocateRequest *request =
        deviceplugin__allocate_request__unpack(NULL, size, bytes);
    if (!request || request->n_container_requests != 1 ||
        request->container_requests[0]->n_devices_ids == 0) {
        deviceplugin__allocate_request__free_unpacked(request, NULL);
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "100% wrong: \xc3\xa4\n");
        return;
    }
    char key[] = "ORDER";
    Deviceplugin__ContainerAllocateResponse__EnvsEntry env =
        DEVICEPLUGIN__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
    Deviceplugin__ContainerAllocateResponse__EnvsEntry *envs[] = {&env};
    env.key = key;
    env.value = request->container_requests[0]->devices_ids[0];
    Deviceplugin__ContainerAllocateResponse container =
        DEVICEPLUGIN__CONTAINER_ALLOCATE_RESPONSE__INIT;
    Deviceplugin__ContainerAllocateResponse *containers[] = {&container};
    container.n_envs = 1;
    container.envs = envs;
    Deviceplugin__AllocateResponse response = DEVICEPLUGIN__ALLOCATE_RESPONSE__INIT;
    response.n_container_responses = 1;
    response.container_responses = containers;
    reply(call, &response.base);
    obey(plugin, request->container_requests[0]->devices_ids,
         request->container_requests[0]->n_devices_ids);
    deviceplugin__allocate_request__free_unpacked(request, NULL);
}

/* ---- a deferred answer ---- */

struct later {
    uv_timer_t timer;
    struct grpc_call *call;
};

static void on_later_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void on_later(uv_timer_t *timer) {
    struct later *later = timer->data;
    Deviceplugin__PreStartContainerResponse response =
        DEVICEPLUGIN__PRE_START_CONTAINER_RESPONSE__INIT;
    say("prestart", grpc_call_is_live(later->call) ? "answered" : "cancelled");
    reply(later->call, &response.base);
    uv_close((uv_handle_t *) timer, on_later_closed);
}

static void handle_prestart(struct grpc_call *call, const uint8_t *request, size_t size,
                            void *userdata) {
    (void) request, (void) size;
    struct plugin *plugin = userdata;
    struct later *later = calloc(1, sizeof(*later));
    if (!later)
        abort();
    later->call = call;
    (void) uv_timer_init(plugin->loop, &later->timer);
    later->timer.data = later;
    say("deadline", grpc_call_time_left(call) == UINT64_MAX ? "none" : "set");
    (void) uv_timer_start(&later->timer, on_later, 50, 0);
}

/* ---- preferred allocation: counts what came, to try requests above 4 MiB ---- */

static void handle_preferred(struct grpc_call *call, const uint8_t *bytes, size_t size,
                             void *userdata) {
    (void) userdata;
    Deviceplugin__PreferredAllocationRequest *request =
        deviceplugin__preferred_allocation_request__unpack(NULL, size, bytes);
    char count[32];
    char *ids[] = {count};
    (void) snprintf(count, sizeof(count), "%zu",
                    request && request->n_container_requests > 0
                        ? request->container_requests[0]->n_available_deviceids
                        : 0);
    Deviceplugin__ContainerPreferredAllocationResponse container =
        DEVICEPLUGIN__CONTAINER_PREFERRED_ALLOCATION_RESPONSE__INIT;
    Deviceplugin__ContainerPreferredAllocationResponse *containers[] = {&container};
    container.n_deviceids = 1;
    container.deviceids = ids;
    Deviceplugin__PreferredAllocationResponse response =
        DEVICEPLUGIN__PREFERRED_ALLOCATION_RESPONSE__INIT;
    response.n_container_responses = 1;
    response.container_responses = containers;
    reply(call, &response.base);
    deviceplugin__preferred_allocation_request__free_unpacked(request, NULL);
}

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", handle_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", handle_watch},
    {"/v1beta1.DevicePlugin/Allocate", handle_allocate},
    {"/v1beta1.DevicePlugin/PreStartContainer", handle_prestart},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", handle_preferred},
};

int main(int argc, char **argv) {
    struct plugin plugin = {.loop = uv_default_loop()};
    struct err err;
    if (argc != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
        return 2;
    }
    const struct grpc_server_options options = {
        .socket_path = argv[1],
        .methods = methods,
        .n_methods = sizeof(methods) / sizeof(methods[0]),
        .userdata = &plugin,
    };
    if (grpc_server_start(plugin.loop, &options, &plugin.server, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    say("server", "ready");
    (void) uv_run(plugin.loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(plugin.loop);
    return 0;
}
