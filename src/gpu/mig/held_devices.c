/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/held_devices.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "gpu/nvml/nvml.h"
#include "wire/json.h"

#define CHECKPOINT_MAX ((size_t) 64 << 20)
#define HELD_MAX 65536
#define ADMISSION_S 10 /* from the entry of a pod to its directory, at most */

/* Directories of logs are NAMESPACE_NAME_UID; neither name has an underscore. */
static void name_pod(const char *logs, const char *uid, char ret[static POD_NAME_MAX]) {
    _cleanup_closedir_ DIR *dir = opendir(logs);
    const struct dirent *e;
    size_t n = strlen(uid);

    (void) snprintf(ret, POD_NAME_MAX, "pod %.*s", POD_NAME_MAX - 8, uid);
    while (dir && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);
        const char *sep = strchr(e->d_name, '_');

        if (len <= n + 1 || strcmp(e->d_name + len - n, uid) != 0 ||
            e->d_name[len - n - 1] != '_' || !sep || sep >= e->d_name + len - n - 1)
            continue;
        (void) snprintf(ret, POD_NAME_MAX, "pod %.*s/%.*s", (int) (sep - e->d_name), e->d_name,
                        (int) (e->d_name + len - n - 1 - (sep + 1)), sep + 1);
        return;
    }
}

static bool is_there(const char *dir, const char *uid) {
    char path[PATH_MAX];
    struct stat st;

    (void) snprintf(path, sizeof(path), "%s/pods/%s", dir, uid);
    return !strchr(uid, '/') && stat(path, &st) == 0;
}

int held_devices_add(struct held_devices *held, const char *id, const char *pod, struct err *err) {
    struct held_device *d;

    if (held->n == HELD_MAX)
        return err_set(err, EFBIG, "more than %d devices", HELD_MAX);
    if (array_reserve(&held->list, &held->room, held->n + 1, sizeof(*held->list)) < 0)
        return err_errno(err, ENOMEM, "cannot keep the devices of pods");
    d = &held->list[held->n++];
    text_copy(d->uuid, sizeof(d->uuid), id);
    d->uuid[strcspn(d->uuid, ":")] = 0;
    text_copy(d->pod, sizeof(d->pod), pod);
    return 0;
}

static int add_ids(struct held_devices *held, struct json ids, const char *pod, struct err *err) {
    struct json_iter it = json_iter(ids);
    struct json item;

    while (json_next(&it, NULL, &item)) {
        const char *id = json_string(item);
        int r = 0;

        if (json_type(item) == JSON_ARRAY)
            r = add_ids(held, item, pod, err);
        else if (id && (strncmp(id, "MIG-", 4) == 0 || strncmp(id, "GPU-", 4) == 0))
            r = held_devices_add(held, id, pod, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Whether kubelet may not have made the directory of a pod yet that the file names. */
static bool is_fresh(const char *path) {
    struct stat st;
    time_t age;

    if (stat(path, &st) < 0)
        return false;
    age = (time_t) (clock_ns(CLOCK_REALTIME) / 1000000000u) - st.st_mtime;
    return age > -ADMISSION_S && age < ADMISSION_S;
}

static int read_entries(struct json entries, const char *dir, const char *logs, bool fresh,
                        struct held_devices *ret, struct err *err) {
    struct json_iter it = json_iter(entries);
    struct json entry;

    while (json_next(&it, NULL, &entry)) {
        const char *uid = json_string(json_get(entry, "PodUID"));
        char pod[POD_NAME_MAX];
        int r;

        if (!uid)
            return err_set(err, EBADMSG, "an entry has no PodUID");
        if (!fresh && !is_there(dir, uid))
            continue;
        name_pod(logs, uid, pod);
        r = add_ids(ret, json_get(entry, "DeviceIDs"), pod, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int held_devices_parse(const char *text, size_t len, const char *dir, const char *logs, bool fresh,
                       struct held_devices *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_held_devices_ struct held_devices held = {0};
    struct json root;
    int r = json_open(text, len, &parser, &root, err);

    if (r < 0)
        return r;
    if (json_type(JSON_PATH(root, "Data")) != JSON_OBJECT)
        return err_set(err, EBADMSG, "it is no checkpoint of kubelet");
    r = read_entries(JSON_PATH(root, "Data", "PodDeviceEntries"), dir, logs, fresh, &held, err);
    if (r < 0)
        return r;
    held_devices_done(ret);
    *ret = held;
    held = (struct held_devices){0};
    return 0;
}

int held_devices_read(const char *dir, const char *logs, struct held_devices *ret,
                      struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * CHECKPOINT_MAX);
    char path[PATH_MAX];
    bool fresh;
    int r;

    (void) snprintf(path, sizeof(path), "%s/" HELD_DEVICES_FILE, dir);
    fresh = is_fresh(path); /* before it is read: a later file is newer still */
    r = file_read(path, CHECKPOINT_MAX, &text, err);
    if (r >= 0)
        r = held_devices_parse(buf_str(&text), text.len, dir, logs, fresh, ret, err);
    return r < 0 ? err_wrap(err, "%s", path) : 0;
}

const char *held_devices_pod(const struct held_devices *held, const char *uuid, size_t n) {
    for (size_t i = 0; i < held->n; i++)
        if (strcmp(held->list[i].uuid, uuid) == 0 && n-- == 0)
            return held->list[i].pod;
    return NULL;
}

void held_devices_done(struct held_devices *held) {
    free(held->list);
    *held = (struct held_devices){0};
}

/* ---- the card ---- */

static void mark_instance(struct mig_card *card, unsigned int gi, unsigned int ci,
                          const char *pod) {
    for (uint32_t i = 0; i < card->ninstances; i++) {
        struct mig_instance *instance = &card->instances[i];

        if (instance->id != gi)
            continue;
        instance->in_use = true;
        mig_card_add_holder(instance->holders, pod);
        for (uint32_t k = 0; k < instance->ncompute; k++)
            if (instance->compute[k].id == ci)
                instance->compute[k].in_use = true;
    }
}

/* Whether pods hold that device; `part` is it, or the card. */
static void mark_device(const struct held_devices *held, const struct nvml *n, nvmlDevice_t device,
                        nvmlDevice_t part, struct mig_card *card) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    const char *pod;

    if (n->nvmlDeviceGetUUID(part, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return;
    for (size_t i = 0; (pod = held_devices_pod(held, uuid, i)); i++) {
        unsigned int gi, ci;

        if (part == device) {
            card->in_use = true;
            mig_card_add_holder(card->holders, pod);
        } else if (n->nvmlDeviceGetGpuInstanceId(part, &gi) == NVML_SUCCESS &&
                   n->nvmlDeviceGetComputeInstanceId(part, &ci) == NVML_SUCCESS) {
            mark_instance(card, gi, ci, pod);
        }
    }
}

void held_devices_mark(const struct held_devices *held, const struct nvml *n, nvmlDevice_t device,
                       struct mig_card *card) {
    unsigned int most = 0;

    mark_device(held, n, device, device, card);
    if (!card->enabled || !n->nvmlDeviceGetMaxMigDeviceCount ||
        n->nvmlDeviceGetMaxMigDeviceCount(device, &most) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < most; i++) {
        nvmlDevice_t part;

        if (n->nvmlDeviceGetMigDeviceHandleByIndex(device, i, &part) == NVML_SUCCESS)
            mark_device(held, n, device, part, card);
    }
}
