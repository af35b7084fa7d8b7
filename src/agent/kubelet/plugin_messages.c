/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/plugin_messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backends/backend.h"
#include "agent/shares/cdi.h"
#include "agent/shares/cdi_guard.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "deviceplugin.pb-c.h"
#include "gpu/device.h"
#include "wire/proto/pack.h"

void message_options(struct buf *out) {
    Deviceplugin__DevicePluginOptions m = DEVICEPLUGIN__DEVICE_PLUGIN_OPTIONS__INIT;

    m.pre_start_required = true;
    m.get_preferred_allocation_available = true;
    pb_pack(&m.base, out);
}

void message_register(const struct resource *r, const char *endpoint, struct buf *out) {
    Deviceplugin__RegisterRequest m = DEVICEPLUGIN__REGISTER_REQUEST__INIT;
    Deviceplugin__DevicePluginOptions options = DEVICEPLUGIN__DEVICE_PLUGIN_OPTIONS__INIT;

    options.pre_start_required = true;
    options.get_preferred_allocation_available = true;
    m.version = PB_TEXT("v1beta1");
    m.endpoint = PB_TEXT(endpoint);
    m.resource_name = PB_TEXT(r->name);
    m.options = &options;
    pb_pack(&m.base, out);
}

static void put_device(const char *id, const char *health, int64_t numa, struct buf *out) {
    Deviceplugin__ListAndWatchResponse m = DEVICEPLUGIN__LIST_AND_WATCH_RESPONSE__INIT;
    Deviceplugin__Device d = DEVICEPLUGIN__DEVICE__INIT, *one = &d;
    Deviceplugin__TopologyInfo topology = DEVICEPLUGIN__TOPOLOGY_INFO__INIT;
    Deviceplugin__NUMANode node = DEVICEPLUGIN__NUMANODE__INIT, *nodes = &node;

    d.id = PB_TEXT(id);
    d.health = PB_TEXT(health);
    node.id = numa;
    topology.n_nodes = 1;
    topology.nodes = &nodes;
    if (numa >= 0)
        d.topology = &topology;
    m.n_devices = 1;
    m.devices = &one;
    pb_pack(&m.base, out);
}

/* Thousands of devices need no thousands of allocations: the message is the devices one after the
 * other. */
void message_list(const struct resource *r, const struct gpu_snapshot *devices, uint32_t count,
                  const bool *sick, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) {
        char id[BACKEND_ID_SIZE];

        r->backend->id(r, devices, i, id);
        put_device(id, sick && sick[i] ? "Unhealthy" : "Healthy", r->backend->numa(r, devices, id),
                   out);
    }
}

/* kubelet can have chosen a device just before it was told that the device is unhealthy. IDs that
 * are no UUIDs are of no single device. */
static bool is_refused(const struct backend_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        const struct gpu_device *d;
        char uuid[GPU_UUID_MAX];

        text_copy(uuid, sizeof(uuid), ids->ids[i]);
        uuid[strcspn(uuid, ":")] = 0;
        d = gpu_find(ids->devices, uuid);
        if (d && d->service == GPU_SERVES_NONE)
            return true;
    }
    return false;
}

static int put_container(const struct backend_ids *ids, const char *guard, struct buf *out) {
    Deviceplugin__AllocateResponse m = DEVICEPLUGIN__ALLOCATE_RESPONSE__INIT;
    Deviceplugin__ContainerAllocateResponse c = DEVICEPLUGIN__CONTAINER_ALLOCATE_RESPONSE__INIT;
    Deviceplugin__ContainerAllocateResponse *containers = &c;
    Deviceplugin__CDIDevice device = DEVICEPLUGIN__CDIDEVICE__INIT, guarded = device;
    Deviceplugin__CDIDevice *devices[] = {&device, &guarded};
    bool has_guard = guard && guard[0];
    Deviceplugin__Mount mount = DEVICEPLUGIN__MOUNT__INIT, *mounts = &mount;
    char name[BACKEND_CDI_NAME_MAX];
    int r = is_refused(ids) ? -ENODEV : ids->resource->backend->allocate(ids, name);

    if (r < 0)
        return r;
    device.name = name;
    guarded.name = PB_TEXT(CDI_GUARD_KIND "=" CDI_GUARD_DEVICE);
    c.n_cdi_devices = has_guard ? 2 : 1;
    c.cdi_devices = devices;
    mount.container_path = PB_TEXT(CDI_GUARD_BELOW);
    mount.host_path = PB_TEXT(guard);
    mount.read_only = true;
    c.n_mounts = has_guard;
    c.mounts = &mounts;
    m.n_container_responses = 1;
    m.container_responses = &containers;
    pb_pack(&m.base, out);
    return 0;
}

int message_allocate(const struct resource *r, const struct gpu_snapshot *devices,
                     const struct message_allocation *how, const uint8_t *request, size_t size,
                     struct buf *out) {
    Deviceplugin__AllocateRequest *m = deviceplugin__allocate_request__unpack(NULL, size, request);
    int result = m ? 0 : -EBADMSG;

    for (size_t i = 0; m && i < m->n_container_requests && result == 0; i++) {
        const Deviceplugin__ContainerAllocateRequest *c = m->container_requests[i];

        const struct backend_ids ids = {.resource = r,
                                        .devices = devices,
                                        .ids = (const char *const *) c->devices_ids,
                                        .n = c->n_devices_ids};

        result = put_container(&ids, how->guard, out);
        if (result == 0 && how->on_allocated)
            how->on_allocated(ids.ids, ids.n, how->userdata);
    }
    deviceplugin__allocate_request__free_unpacked(m, NULL);
    return result < 0 ? result : buf_error(out);
}

static int put_preferred(const struct resource *r, const struct gpu_snapshot *devices,
                         const Deviceplugin__ContainerPreferredAllocationRequest *q,
                         struct buf *out) {
    Deviceplugin__PreferredAllocationResponse m = DEVICEPLUGIN__PREFERRED_ALLOCATION_RESPONSE__INIT;
    Deviceplugin__ContainerPreferredAllocationResponse c =
        DEVICEPLUGIN__CONTAINER_PREFERRED_ALLOCATION_RESPONSE__INIT;
    Deviceplugin__ContainerPreferredAllocationResponse *containers = &c;
    size_t want = q->allocation_size > 0 ? (size_t) q->allocation_size : 0;
    size_t must = q->n_must_include_deviceids;
    _cleanup_free_ char **ids = NULL;

    if (want > q->n_available_deviceids)
        want = q->n_available_deviceids;
    ids = calloc(want + must + 1, sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    c.n_deviceids =
        r->backend->prefer(&(struct backend_choice){.resource = r,
                                                    .devices = devices,
                                                    .available = q->available_deviceids,
                                                    .navailable = q->n_available_deviceids,
                                                    .must = q->must_include_deviceids,
                                                    .nmust = must,
                                                    .want = want},
                           ids);
    c.deviceids = ids;
    m.n_container_responses = 1;
    m.container_responses = &containers;
    pb_pack(&m.base, out);
    return 0;
}

int message_preferred(const struct resource *r, const struct gpu_snapshot *devices,
                      const uint8_t *request, size_t size, struct buf *out) {
    Deviceplugin__PreferredAllocationRequest *m =
        deviceplugin__preferred_allocation_request__unpack(NULL, size, request);
    int result = m ? 0 : -EBADMSG;

    for (size_t i = 0; m && i < m->n_container_requests && result == 0; i++)
        result = put_preferred(r, devices, m->container_requests[i], out);
    deviceplugin__preferred_allocation_request__free_unpacked(m, NULL);
    return result < 0 ? result : buf_error(out);
}

int message_prestart(const uint8_t *request, size_t size, struct message_ids *ret) {
    Deviceplugin__PreStartContainerRequest *m =
        deviceplugin__pre_start_container_request__unpack(NULL, size, request);

    if (!m)
        return -EBADMSG;
    ret->message = m;
    ret->n = m->n_devices_ids;
    ret->ids = calloc(ret->n + 1, sizeof(*ret->ids));
    if (!ret->ids) {
        deviceplugin__pre_start_container_request__free_unpacked(m, NULL);
        return -ENOMEM;
    }
    for (size_t i = 0; i < ret->n; i++)
        ret->ids[i] = m->devices_ids[i];
    ids_sort(ret->ids, ret->n);
    return 0;
}

void message_ids_done(struct message_ids *ids) {
    deviceplugin__pre_start_container_request__free_unpacked(ids->message, NULL);
    free(ids->ids);
}
