/* SPDX-License-Identifier: Apache-2.0 */

/* How busy a device is: as busy as the container's own processes keep it, and of its
 * multiprocessors in percent of the part that the container has. */

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"
#include "share/compute_core.h"

/* -- samples of processes ---------------------------------------------------------------------- */

#define SAMPLES_MAX 4096

struct samples {
    unsigned int n;
    nvmlProcessUtilizationInfo_v1_t one[SAMPLES_MAX];
};

static nvmlReturn_t read_newer(nvmlDevice_t device, unsigned long long since, struct samples *ret) {
    nvmlProcessesUtilizationInfo_t info = {
        .version = NVML_STRUCT_VERSION_OF(nvmlProcessesUtilizationInfo_t, 1),
        .processSamplesCount = SAMPLES_MAX,
        .lastSeenTimeStamp = since,
        .procUtilArray = ret->one};
    nvmlReturn_t r = driver.nvmlDeviceGetProcessesUtilizationInfo(device, &info);

    ret->n = r == NVML_SUCCESS ? info.processSamplesCount : 0;
    return r;
}

static nvmlReturn_t read_older(nvmlDevice_t device, unsigned long long since, struct samples *ret) {
    nvmlProcessUtilizationSample_t *list = calloc(SAMPLES_MAX, sizeof(*list));
    unsigned int n = SAMPLES_MAX;
    nvmlReturn_t r = NVML_ERROR_MEMORY;

    if (list)
        r = driver.nvmlDeviceGetProcessUtilization(device, list, &n, since);
    ret->n = r == NVML_SUCCESS ? n : 0;
    for (unsigned int i = 0; i < ret->n && i < SAMPLES_MAX; i++)
        ret->one[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = list[i].timeStamp,
                                                        .pid = list[i].pid,
                                                        .smUtil = list[i].smUtil,
                                                        .memUtil = list[i].memUtil,
                                                        .encUtil = list[i].encUtil,
                                                        .decUtil = list[i].decUtil};
    free(list);
    return r;
}

static nvmlReturn_t read_samples(nvmlDevice_t device, unsigned long long since,
                                 struct samples *ret) {
    nvmlReturn_t r = read_newer(device, since, ret);

    if (r == NVML_ERROR_FUNCTION_NOT_FOUND || r == NVML_ERROR_NOT_SUPPORTED)
        r = read_older(device, since, ret);
    if (ret->n > SAMPLES_MAX)
        ret->n = SAMPLES_MAX;
    return r == NVML_ERROR_NOT_FOUND ? NVML_SUCCESS : r; /* no process was busy */
}

/* Percent of the part. Only time on the multiprocessors is divided between containers. */
static unsigned int of_the_part(const struct part *part, unsigned int percent) {
    uint64_t devices = part->devices;
    int index = part_next(&devices);
    uint32_t core =
        index >= 0 && !devices ? limits_core(part->share->limits, (unsigned int) index) : 0;

    if (core > 0 && core < 100)
        percent = (percent * 100 + core / 2) / core;
    return percent < 100 ? percent : 100;
}

/* The container's own samples since then. */
static nvmlReturn_t samples_get(nvmlDevice_t device, const struct part *part,
                                unsigned long long since, struct samples *ret) {
    struct members *members;
    unsigned int kept = 0;
    nvmlReturn_t r;

    ret->n = 0;
    if (!nvml_pids_are_ours(PIDS_OF_SAMPLES))
        return NVML_ERROR_NOT_SUPPORTED;
    r = read_samples(device, since, ret);
    if (r != NVML_SUCCESS)
        return r;
    members = members_new(part);
    if (!members)
        return NVML_ERROR_MEMORY;
    for (unsigned int i = 0; i < ret->n; i++) {
        if (!members_find(members, ret->one[i].pid))
            continue;
        ret->one[kept] = ret->one[i];
        ret->one[kept].smUtil = of_the_part(part, ret->one[i].smUtil);
        kept++;
    }
    ret->n = kept;
    free(members);
    return r;
}

/* For an answer to the program: NVML has no empty list of samples. */
static nvmlReturn_t samples_new(nvmlDevice_t device, const struct part *part,
                                unsigned long long since, struct samples **ret) {
    struct samples *samples = malloc(sizeof(*samples));
    nvmlReturn_t r = samples ? samples_get(device, part, since, samples) : NVML_ERROR_MEMORY;

    if (r == NVML_SUCCESS && samples->n == 0)
        r = NVML_ERROR_NOT_FOUND;
    if (r == NVML_SUCCESS)
        *ret = samples;
    else
        free(samples);
    return r;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *process_samples_count,
                                             unsigned long long last_seen_time_stamp) {
    struct samples *samples;
    struct part part;
    nvmlReturn_t r = NVML_SUCCESS;
    unsigned int room;

    NVML_TRY(nvml_part_of(device, &part));
    if (!process_samples_count || !part.share)
        return driver.nvmlDeviceGetProcessUtilization(device, utilization, process_samples_count,
                                                      last_seen_time_stamp);
    NVML_TRY(samples_new(device, &part, last_seen_time_stamp, &samples));
    room = utilization ? *process_samples_count : 0;
    *process_samples_count = samples->n;
    if (samples->n > room)
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < samples->n; i++) {
        const nvmlProcessUtilizationInfo_v1_t *one = &samples->one[i];

        utilization[i] = (nvmlProcessUtilizationSample_t){.pid = one->pid,
                                                          .timeStamp = one->timeStamp,
                                                          .smUtil = one->smUtil,
                                                          .memUtil = one->memUtil,
                                                          .encUtil = one->encUtil,
                                                          .decUtil = one->decUtil};
    }
    free(samples);
    return r;
}

nvmlReturn_t
nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                      nvmlProcessesUtilizationInfo_t *proceses_util_info) {
    nvmlProcessesUtilizationInfo_t *info = proceses_util_info;
    struct samples *samples;
    struct part part;
    nvmlReturn_t r = NVML_SUCCESS;
    unsigned int room;

    NVML_TRY(nvml_part_of(device, &part));
    if (!info || !part.share ||
        info->version != NVML_STRUCT_VERSION_OF(nvmlProcessesUtilizationInfo_t, 1))
        return driver.nvmlDeviceGetProcessesUtilizationInfo(device, info);
    NVML_TRY(samples_new(device, &part, info->lastSeenTimeStamp, &samples));
    room = info->procUtilArray ? info->processSamplesCount : 0;
    info->processSamplesCount = samples->n;
    if (samples->n > room)
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < samples->n; i++)
        info->procUtilArray[i] = samples->one[i];
    free(samples);
    return r;
}

/* -- the whole container ----------------------------------------------------------------------- */

/* The arbiter's word, where the driver's PIDs mean nothing: the container's account of GPU time is
 * its own under any of them. */
static bool load_of_account(const struct part *part, struct load *ret) {
    static const struct grants_file *grants;
    const struct grants_file *file = __atomic_load_n(&grants, __ATOMIC_ACQUIRE);
    uint64_t devices = part->devices, ppm = 0;
    int saved = errno;
    char path[4096];

    if (!file && share_path("grants", path, sizeof(path)) && grants_map(path, &file) == 0)
        __atomic_store_n(&grants, file, __ATOMIC_RELEASE);
    errno = saved;
    for (int i = part_next(&devices); file && i >= 0; i = part_next(&devices)) {
        uint32_t load = __atomic_load_n(&file->device[i].load, __ATOMIC_RELAXED);

        if (load == 0)
            return false;
        ppm += load - 1;
    }
    if (!file)
        return false;
    *ret = (struct load){.sm = of_the_part(part, (unsigned int) ((ppm + 5000) / 10000))};
    return true;
}

/* The driver samples once a second at the slowest. */
#define LATEST_US 2000000u

static unsigned long long now_us(void) {
    struct timespec t = {0};

    (void) clock_gettime(CLOCK_REALTIME, &t);
    return (unsigned long long) t.tv_sec * 1000000u + (unsigned long long) t.tv_nsec / 1000u;
}

static bool is_latest(const struct samples *samples, const nvmlProcessUtilizationInfo_v1_t *one) {
    for (unsigned int i = 0; i < samples->n; i++)
        if (samples->one[i].pid == one->pid && samples->one[i].timeStamp > one->timeStamp)
            return false;
    return true;
}

static unsigned int sum(unsigned int a, unsigned int b) {
    return a + b < 100 ? a + b : 100;
}

nvmlReturn_t part_load(nvmlDevice_t device, const struct part *part, struct load *ret) {
    struct samples *samples = malloc(sizeof(*samples));
    nvmlReturn_t r =
        samples ? samples_get(device, part, now_us() - LATEST_US, samples) : NVML_ERROR_MEMORY;
    struct load load = {0};

    for (unsigned int i = 0; r == NVML_SUCCESS && i < samples->n; i++) {
        const nvmlProcessUtilizationInfo_v1_t *one = &samples->one[i];

        if (!is_latest(samples, one))
            continue;
        load.sm = sum(load.sm, one->smUtil);
        load.memory = sum(load.memory, one->memUtil);
        load.encoder = sum(load.encoder, one->encUtil);
        load.decoder = sum(load.decoder, one->decUtil);
        load.jpeg = sum(load.jpeg, one->jpgUtil);
        load.optical_flow = sum(load.optical_flow, one->ofaUtil);
    }
    free(samples);
    if (r == NVML_ERROR_NOT_SUPPORTED && load_of_account(part, &load))
        r = NVML_SUCCESS;
    if (r == NVML_SUCCESS)
        *ret = load;
    return r;
}

/* Puts the part's load into `load`. Returns the driver's answer where no share is asked about, and
 * the driver's error where the call fails for the card. */
#define LOAD_OF_PART(wanted, call, call_for_card)                                                  \
    do {                                                                                           \
        struct part part;                                                                          \
                                                                                                   \
        NVML_TRY(nvml_part_of(device, &part));                                                     \
        if (!(wanted) || !part.share)                                                              \
            return driver.call;                                                                    \
        NVML_TRY(driver.call_for_card);                                                            \
        NVML_TRY(part_load(device, &part, &load));                                                 \
    } while (0)

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    nvmlUtilization_t card;
    struct load load;

    LOAD_OF_PART(utilization, nvmlDeviceGetUtilizationRates(device, utilization),
                 nvmlDeviceGetUtilizationRates(device, &card));
    *utilization = (nvmlUtilization_t){.gpu = load.sm, .memory = load.memory};
    return NVML_SUCCESS;
}

#define ENGINE(symbol, member)                                                                     \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *utilization,                            \
                        unsigned int *sampling_period_us) {                                        \
        unsigned int card;                                                                         \
        struct load load;                                                                          \
                                                                                                   \
        LOAD_OF_PART(utilization, symbol(device, utilization, sampling_period_us),                 \
                     symbol(device, &card, sampling_period_us));                                   \
        *utilization = load.member;                                                                \
        return NVML_SUCCESS;                                                                       \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, encoder)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder)
ENGINE(nvmlDeviceGetJpgUtilization, jpeg)
ENGINE(nvmlDeviceGetOfaUtilization, optical_flow)

/* The domains of the performance states: graphics, memory, video, bus. The last cannot be
 * divided by process. */
nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                             nvmlGpuDynamicPstatesInfo_t *dynamic_pstates_info) {
    nvmlGpuDynamicPstatesInfo_t *info = dynamic_pstates_info, card;
    struct load load;

    LOAD_OF_PART(info, nvmlDeviceGetDynamicPstatesInfo(device, info),
                 nvmlDeviceGetDynamicPstatesInfo(device, &card));
    for (int i = 0; i < NVML_MAX_GPU_UTILIZATIONS; i++)
        card.utilization[i].percentage = 0;
    card.utilization[0].percentage = load.sm;
    card.utilization[1].percentage = load.memory;
    card.utilization[2].percentage = sum(load.encoder, load.decoder);
    *info = card;
    return NVML_SUCCESS;
}

/* -- history ----------------------------------------------------------------------------------- */

static bool load_of_type(const struct load *load, nvmlSamplingType_t type, unsigned int *ret) {
    const struct {
        nvmlSamplingType_t type;
        unsigned int value;
    } known[] = {
        {NVML_GPU_UTILIZATION_SAMPLES, load->sm},
        {NVML_MEMORY_UTILIZATION_SAMPLES, load->memory},
        {NVML_ENC_UTILIZATION_SAMPLES, load->encoder},
        {NVML_DEC_UTILIZATION_SAMPLES, load->decoder},
        {NVML_JPG_UTILIZATION_SAMPLES, load->jpeg},
        {NVML_OFA_UTILIZATION_SAMPLES, load->optical_flow},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].type == type) {
            *ret = known[i].value;
            return true;
        }
    return false;
}

/* The driver's samples are of the card; they are replaced by one, of the latest time, with the
 * container's own load. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long last_seen_time_stamp,
                                  nvmlValueType_t *sample_val_type, unsigned int *sample_count,
                                  nvmlSample_t *samples) {
    struct load load = {0};
    struct part part;
    unsigned int value = 0;
    nvmlReturn_t r = nvml_part_of(device, &part);

    if (r == NVML_SUCCESS)
        r = driver.nvmlDeviceGetSamples(device, type, last_seen_time_stamp, sample_val_type,
                                        sample_count, samples);
    if (r != NVML_SUCCESS || !part.share || !samples || !sample_count || *sample_count == 0 ||
        !load_of_type(&load, type, &value))
        return r;
    for (unsigned int i = 0; i < *sample_count; i++) {
        if (samples[i].timeStamp > samples[0].timeStamp)
            samples[0].timeStamp = samples[i].timeStamp;
        samples[i].sampleValue.ullVal = 0;
    }
    *sample_count = 1;
    r = part_load(device, &part, &load);
    if (r != NVML_SUCCESS)
        return r;
    (void) load_of_type(&load, type, &samples[0].sampleValue.uiVal);
    if (sample_val_type)
        *sample_val_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    return r;
}
