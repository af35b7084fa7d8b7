/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "draplugin.pb-c.h"
#include "model/dra.h"
#include "wire/proto/pack.h"

int dra_message_claims(const uint8_t *request, size_t size, struct dra_claim_ids *ret) {
    Draplugin__NodePrepareResourcesRequest *m =
        draplugin__node_prepare_resources_request__unpack(NULL, size, request);
    struct dra_claim_ids ids = {.message = m};
    int r = !m ? -EBADMSG : m->n_claims > DRA_CLAIMS_MAX ? -E2BIG : 0;

    if (r == 0)
        ids.list = calloc(m->n_claims + 1, sizeof(*ids.list));
    if (r < 0 || !ids.list) {
        dra_message_claims_done(&ids);
        return r < 0 ? r : -ENOMEM;
    }
    for (size_t i = 0; i < m->n_claims; i++)
        ids.list[ids.n++] =
            (struct dra_claim_id){m->claims[i]->namespace_, m->claims[i]->uid, m->claims[i]->name};
    *ret = ids;
    return 0;
}

void dra_message_claims_done(struct dra_claim_ids *ids) {
    draplugin__node_prepare_resources_request__free_unpacked(ids->message, NULL);
    free(ids->list);
}

/* A device is a message inside the message of its claim: its texts are pointed at, one at a time.
 */
static void put_device(Draplugin__Device *m, const struct dra_device *d, char **texts) {
    texts[0] = PB_TEXT(d->request);
    texts[1] = PB_TEXT(d->cdi);
    draplugin__device__init(m);
    m->n_request_names = 1;
    m->request_names = &texts[0];
    m->pool_name = PB_TEXT(d->pool);
    m->device_name = PB_TEXT(d->device);
    m->n_cdi_device_ids = 1;
    m->cdi_device_ids = &texts[1];
    m->share_id = PB_TEXT(d->share_id);
}

static void put_prepared(const char *uid, Draplugin__NodePrepareResourceResponse *value,
                         struct buf *out) {
    Draplugin__NodePrepareResourcesResponse m = DRAPLUGIN__NODE_PREPARE_RESOURCES_RESPONSE__INIT;
    Draplugin__PreparedEntry entry = DRAPLUGIN__PREPARED_ENTRY__INIT, *entries = &entry;

    entry.key = PB_TEXT(uid);
    entry.value = value;
    m.n_claims = 1;
    m.claims = &entries;
    pb_pack(&m.base, out);
}

/* One device and the pointers to it, and its texts. */
struct device_room {
    Draplugin__Device device;
    char *texts[2];
};

void dra_message_prepared(const char *uid, const struct dra_device *devices, size_t n,
                          const char *error, struct buf *out) {
    Draplugin__NodePrepareResourceResponse value = DRAPLUGIN__NODE_PREPARE_RESOURCE_RESPONSE__INIT;
    struct device_room *room = calloc(n + 1, sizeof(*room));
    Draplugin__Device **list = calloc(n + 1, sizeof(Draplugin__Device *));

    if (!room || !list)
        error = "out of memory";
    if (error) {
        value.error = PB_TEXT(error);
    } else {
        for (size_t i = 0; i < n; i++) {
            put_device(&room[i].device, &devices[i], room[i].texts);
            list[i] = &room[i].device;
        }
        value.n_devices = n;
        value.devices = list;
    }
    put_prepared(uid, &value, out);
    free(list);
    free(room);
}

void dra_message_unprepared(const char *uid, const char *error, struct buf *out) {
    Draplugin__NodeUnprepareResourcesResponse m =
        DRAPLUGIN__NODE_UNPREPARE_RESOURCES_RESPONSE__INIT;
    Draplugin__UnpreparedEntry entry = DRAPLUGIN__UNPREPARED_ENTRY__INIT, *entries = &entry;
    Draplugin__NodeUnprepareResourceResponse value =
        DRAPLUGIN__NODE_UNPREPARE_RESOURCE_RESPONSE__INIT;

    if (error)
        value.error = PB_TEXT(error);
    entry.key = PB_TEXT(uid);
    entry.value = &value;
    m.n_claims = 1;
    m.claims = &entries;
    pb_pack(&m.base, out);
}

void dra_message_info(const char *endpoint, struct buf *out) {
    static char *versions[] = {PB_TEXT("v1.DRAPlugin"), PB_TEXT("v1alpha1.DRAResourceHealth")};
    Draplugin__PluginInfo m = DRAPLUGIN__PLUGIN_INFO__INIT;

    m.type = PB_TEXT("DRAPlugin");
    m.name = PB_TEXT(DRA_DRIVER);
    m.endpoint = PB_TEXT(endpoint);
    m.n_supported_versions = sizeof(versions) / sizeof(versions[0]);
    m.supported_versions = versions;
    pb_pack(&m.base, out);
}

int dra_message_status(const uint8_t *request, size_t size, bool *ret_registered,
                       char ret_error[static DRA_REGISTER_TEXT_MAX]) {
    Draplugin__RegistrationStatus *m = draplugin__registration_status__unpack(NULL, size, request);

    if (!m)
        return -EBADMSG;
    *ret_registered = m->plugin_registered;
    text_copy(ret_error, DRA_REGISTER_TEXT_MAX, m->error);
    draplugin__registration_status__free_unpacked(m, NULL);
    return 0;
}

void dra_message_health(const struct dra_health *h, struct buf *out) {
    Draplugin__NodeWatchResourcesResponse m = DRAPLUGIN__NODE_WATCH_RESOURCES_RESPONSE__INIT;
    Draplugin__DeviceHealth d = DRAPLUGIN__DEVICE_HEALTH__INIT, *list = &d;
    Draplugin__DeviceIdentifier id = DRAPLUGIN__DEVICE_IDENTIFIER__INIT;

    id.pool_name = PB_TEXT(h->pool);
    id.device_name = PB_TEXT(h->device);
    d.device = &id;
    d.health = h->healthy ? DRAPLUGIN__HEALTH_STATUS__HEALTHY : DRAPLUGIN__HEALTH_STATUS__UNHEALTHY;
    d.last_updated_time = h->updated;
    d.health_check_timeout_seconds = h->timeout_s;
    d.message = PB_TEXT(h->message);
    m.n_devices = 1;
    m.devices = &list;
    pb_pack(&m.base, out);
}
