/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/errors.h"

#include <stddef.h>
#include <string.h>

#define NVLINKS_MAX 36 /* of one card, of any model to date */

/* All in one call of the driver. */
struct reading {
    struct gpu_errors errors;
    struct gpu_sample sample;
    uint32_t recovery_action;
};

static const struct {
    unsigned int id;
    size_t offset, size; /* in struct reading */
} fields[] = {
#define FIELD(id, member)                                                                          \
    { id, offsetof(struct reading, member), sizeof(((struct reading *) 0)->member) }
    FIELD(NVML_FI_DEV_ECC_SBE_VOL_TOTAL, errors.corrected),
    FIELD(NVML_FI_DEV_ECC_DBE_VOL_TOTAL, errors.uncorrected),
    FIELD(NVML_FI_DEV_ECC_SBE_AGG_TOTAL, errors.corrected_total),
    FIELD(NVML_FI_DEV_ECC_DBE_AGG_TOTAL, errors.uncorrected_total),
    FIELD(NVML_FI_DEV_RETIRED_SBE, errors.retired_single),
    FIELD(NVML_FI_DEV_RETIRED_DBE, errors.retired_double),
    FIELD(NVML_FI_DEV_RETIRED_PENDING, errors.retirement_pending),
    FIELD(NVML_FI_DEV_REMAPPED_COR, errors.remapped_correctable),
    FIELD(NVML_FI_DEV_REMAPPED_UNC, errors.remapped_uncorrectable),
    FIELD(NVML_FI_DEV_REMAPPED_PENDING, errors.remap_pending),
    FIELD(NVML_FI_DEV_REMAPPED_FAILURE, errors.remap_failed),
    FIELD(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, recovery_action),
    FIELD(NVML_FI_DEV_MEMORY_TEMP, sample.memory_temperature),
    FIELD(NVML_FI_DEV_PCIE_REPLAY_COUNTER, sample.pcie_replays),
    FIELD(NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, sample.energy_mj),
#undef FIELD
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* The type is the driver's choice, and differs between its releases. Values beyond the member are
 * not reported. */
static uint64_t value_of(const nvmlFieldValue_t *field) {
    switch (field->valueType) {
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        return field->value.uiVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
        return field->value.ulVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return field->value.ullVal;
    case NVML_VALUE_TYPE_SIGNED_INT:
        return field->value.siVal >= 0 ? (uint64_t) field->value.siVal : UINT64_MAX;
    default:
        return UINT64_MAX;
    }
}

static void read_fields(const struct nvml *n, nvmlDevice_t card, struct reading *ret) {
    nvmlFieldValue_t values[FIELDS] = {0};

    for (size_t i = 0; i < FIELDS; i++)
        values[i].fieldId = fields[i].id;
    if (!n->nvmlDeviceGetFieldValues ||
        n->nvmlDeviceGetFieldValues(card, (int) FIELDS, values) != NVML_SUCCESS)
        return;
    for (size_t i = 0; i < FIELDS; i++) {
        uint64_t value = value_of(&values[i]);

        if (values[i].nvmlReturn == NVML_SUCCESS &&
            value <= UINT64_MAX >> (64 - 8 * fields[i].size))
            memcpy((char *) ret + fields[i].offset, &value, fields[i].size);
    }
}

static void read_banks(const struct nvml *n, nvmlDevice_t card, struct gpu_errors *ret) {
    nvmlRowRemapperHistogramValues_t banks = {0};

    if (!n->nvmlDeviceGetRowRemapperHistogram ||
        n->nvmlDeviceGetRowRemapperHistogram(card, &banks) != NVML_SUCCESS)
        return;
    ret->banks_max = banks.max;
    ret->banks_high = banks.high;
    ret->banks_partial = banks.partial;
    ret->banks_low = banks.low;
    ret->banks_none = banks.none;
}

static void read_sram(const struct nvml *n, nvmlDevice_t card, struct gpu_errors *ret) {
    nvmlEccSramErrorStatus_v1_t status = {
        .version = NVML_STRUCT_VERSION_OF(nvmlEccSramErrorStatus_v1_t, 1)};

    if (n->nvmlDeviceGetSramEccErrorStatus &&
        n->nvmlDeviceGetSramEccErrorStatus(card, &status) == NVML_SUCCESS)
        ret->sram_exceeded = status.bThresholdExceeded != 0;
}

static uint32_t count_nvlinks(const struct nvml *n, nvmlDevice_t card) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    uint32_t active = 0;
    unsigned int link = 0;

    while (n->nvmlDeviceGetNvLinkState && link < NVLINKS_MAX &&
           n->nvmlDeviceGetNvLinkState(card, link, &state) == NVML_SUCCESS) {
        active += state == NVML_FEATURE_ENABLED;
        link++;
    }
    return link > 0 ? active : GPU_NOT_TOLD;
}

void gpu_errors_read(const struct nvml *nvml, nvmlDevice_t card, struct gpu_errors *ret,
                     uint32_t *ret_recovery_action, struct gpu_sample *ret_sample) {
    struct reading reading;

    memset(&reading, 0xff, sizeof(reading));
    read_fields(nvml, card, &reading);
    read_banks(nvml, card, &reading.errors);
    read_sram(nvml, card, &reading.errors);
    reading.errors.nvlinks = count_nvlinks(nvml, card);
    *ret = reading.errors;
    *ret_recovery_action = reading.recovery_action;
    ret_sample->memory_temperature = reading.sample.memory_temperature;
    ret_sample->pcie_replays = reading.sample.pcie_replays;
    ret_sample->energy_mj = reading.sample.energy_mj;
}
