/* SPDX-License-Identifier: Apache-2.0 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/run/driver_calls.h"
#include "cli/run/run_shares.h"
#include "cli/top/data.h"
#include "share/ledger.h"
#include "share/limits.h"

#define CARDS_MAX 64
#define RUNS_MAX 256

/* One look at the machine. */
struct look {
    struct top_data *data;
    void *nvml;
    const char *uuids[CARDS_MAX]; /* of the cards of `data` */
};

/* ---- cards ---- */

static void add_card(struct look *look, unsigned index, nvmlDevice_t device) {
    LOOK_UP(look->nvml, nvmlDeviceGetName);
    LOOK_UP(look->nvml, nvmlDeviceGetUUID);
    LOOK_UP(look->nvml, nvmlDeviceGetMemoryInfo);
    LOOK_UP(look->nvml, nvmlDeviceGetUtilizationRates);
    struct top_data *data = look->data;
    char name[96] = "", uuid[96] = "";
    nvmlMemory_t memory = {0};
    nvmlUtilization_t load;
    bool tells_memory, tells_load;

    if (nvmlDeviceGetName)
        (void) nvmlDeviceGetName(device, name, sizeof(name));
    if (nvmlDeviceGetUUID)
        (void) nvmlDeviceGetUUID(device, uuid, sizeof(uuid));
    tells_memory =
        nvmlDeviceGetMemoryInfo && nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS;
    tells_load = nvmlDeviceGetUtilizationRates &&
                 nvmlDeviceGetUtilizationRates(device, &load) == NVML_SUCCESS;
    look->uuids[data->ncards] = top_text(data, "%s", uuid);
    struct top_card *card = &data->cards[data->ncards++];
    *card = (struct top_card){
        .name = top_text(data, "%u", index),
        .node = "this machine",
        .device = look->uuids[data->ncards - 1],
        .model = top_text(data, "%s", name),
        .state = tells_memory ? "Healthy" : "Unknown",
        .core = 100,
        .memory = memory.total,
        .used = tells_memory ? memory.used : TOP_UNKNOWN,
        .busy = tells_load ? load.gpu : TOP_UNKNOWN,
    };
}

static int add_cards(struct look *look, struct err *err) {
    LOOK_UP(look->nvml, nvmlInit_v2);
    LOOK_UP(look->nvml, nvmlShutdown);
    LOOK_UP(look->nvml, nvmlDeviceGetCount_v2);
    LOOK_UP(look->nvml, nvmlDeviceGetHandleByIndex_v2);
    unsigned n = 0;

    if (!nvmlInit_v2 || !nvmlShutdown || !nvmlDeviceGetCount_v2 || !nvmlDeviceGetHandleByIndex_v2 ||
        nvmlInit_v2() != NVML_SUCCESS)
        return err_set(err, ENODEV, "the driver does not answer (libnvidia-ml.so.1)");
    if (nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS)
        n = 0;
    for (unsigned i = 0; i < n && look->data->ncards < CARDS_MAX; i++) {
        nvmlDevice_t device;
        if (nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS)
            add_card(look, i, device);
    }
    (void) nvmlShutdown();
    return 0;
}

/* ---- runs ---- */

static struct top_card *find_card(const struct look *look, const char *uuid) {
    for (size_t i = 0; i < look->data->ncards; i++)
        if (strcmp(look->uuids[i], uuid) == 0)
            return &look->data->cards[i];
    return NULL;
}

static void add_device(struct look *look, const struct run_share *place,
                       const struct share_limits *limits, uint32_t i, uint64_t used) {
    struct top_data *data = look->data;
    const struct share_device *d = &limits->device[i];
    struct top_card *card = find_card(look, d->uuid);

    data->shares[data->nshares++] = (struct top_share){
        .namespace = "run",
        .pod = top_text(data, "%d", (int) place->pid),
        .container = "",
        .card = card ? card->name : top_text(data, "%s", d->uuid),
        .node = "this machine",
        .core = d->core_percent,
        .memory = d->memory_bytes,
        .used = used,
        .busy = TOP_UNKNOWN,
    };
    if (!card)
        return;
    card->pods++;
    card->taken_core += d->core_percent;
    card->taken_memory += d->memory_bytes;
}

static void add_run(const struct run_share *place, void *userdata) {
    struct look *look = userdata;
    struct share_limits limits;
    struct ledger_usage usage;
    struct ledger *ledger = NULL;
    char path[96];

    run_shares_path(place->dir, "limits", path);
    if (place->machine != run_shares_machine() || limits_read(path, &limits, NULL) < 0)
        return;
    run_shares_path(place->dir, "ledger", path);
    bool tells = ledger_open(path, &ledger, NULL) == 0 && ledger_snapshot(ledger, &usage) == 0;
    for (uint32_t i = 0; i < limits.ndevices && look->data->nshares < RUNS_MAX; i++)
        add_device(look, place, &limits, i,
                   tells ? usage.used[i] + limits.more[i].overhead_bytes : TOP_UNKNOWN);
    ledger_free(ledger);
}

int top_read_local(const struct top_source *source, struct top_data *ret, struct err *err) {
    static void *nvml;
    _cleanup_(top_data_done) struct top_data data = {.trouble = ""};
    struct look look = {.data = &data};

    (void) source;
    data.cards = calloc(CARDS_MAX, sizeof(*data.cards));
    data.shares = calloc(RUNS_MAX, sizeof(*data.shares));
    if (!data.cards || !data.shares)
        return err_errno(err, ENOMEM, "cannot hold the cards");
    if (!nvml)
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml)
        return err_set(err, ENODEV, "this machine has no NVIDIA driver (libnvidia-ml.so.1)");
    look.nvml = nvml;
    int r = add_cards(&look, err);
    if (r < 0)
        return r;
    run_shares_each(add_run, &look);
    *ret = take_struct(data);
    return 0;
}
