/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "gpu/device.h"
#include "gpu/nvml/context.h"
#include "gpu/nvml/errors.h"
#include "gpu/nvml/events.h"
#include "gpu/nvml/instance.h"
#include "gpu/nvml/links.h"
#include "gpu/nvml/nvml.h"
#include "gpu/nvml/rates.h"
#include "gpu/nvml/traits.h"
#include "gpu/nvml/worker_protocol.h"

/* The driver reports a process's utilisation only with a new sample (every 1/6 to 1 s); until then
 * the last one is used. */
#define UTILIZATION_AGE_NS 1200000000u

#define UTILIZATION_MAX 128 /* processes of one card whose last sample is kept */

struct utilization {
    unsigned long long seen; /* time stamp of the last sample; 0: there was none */
    uint64_t at;             /* when it came, CLOCK_MONOTONIC */
    unsigned int count;
    struct {
        uint32_t pid, percent;
    } last[UTILIZATION_MAX];
};

#define LINKS_AGE_MS 60000
#define INSTANCES_MAX 16 /* ids of GPU instances of one card whose rates are read are below */
#define LIMITS_MAX 256   /* requests; the channel holds fewer */

struct worker {
    struct nvml nvml;
    uint32_t sequence;
    uint64_t left_out;  /* cards (bits, by index) for which this poll makes no call */
    bool hears_of_xids; /* the thread that hears of events runs */
    struct gpu_links links;
    uint64_t links_ms; /* when they were read; 0: never */
    struct utilization utilization[GPU_CARDS_MAX];
    struct gpu_rates rates[GPU_CARDS_MAX];
    struct gpu_rates instance_rates[GPU_CARDS_MAX][INSTANCES_MAX]; /* by card and id */
    nvmlProcessInfo_v2_t list[GPU_PROCESSES_MAX];
    nvmlProcessUtilizationInfo_v1_t samples[GPU_PROCESSES_MAX];
    nvmlProcessUtilizationSample_t older[GPU_PROCESSES_MAX];
    struct gpu_message_process processes[GPU_PROCESSES_MAX];
    size_t nprocesses;
    bool unknown_memory;          /* of one of them the driver does not tell what it holds */
    struct gpu_message_poll poll; /* requested, if `asked` */
    bool asked;
    struct gpu_message_limit limits[LIMITS_MAX]; /* requested */
    size_t nlimits;
};

static bool send_message(struct worker *w, union gpu_message *msg, uint32_t type, uint32_t index,
                         size_t size) {
    msg->header = (struct gpu_message_header){
        .magic = GPU_MESSAGE_MAGIC, .type = type, .sequence = w->sequence, .index = index};
    return send(GPU_WORKER_FD, msg, size, MSG_NOSIGNAL) == (ssize_t) size;
}

static int fail(struct worker *w, const char *text) {
    union gpu_message msg = {0};

    (void) snprintf(msg.text.text, sizeof(msg.text.text), "%s", text);
    (void) send_message(w, &msg, GPU_MESSAGE_FAILED, 0, sizeof(msg.text));
    return EXIT_FAILURE;
}

/* ---- processes ---- */

/* A process that computes and draws is in both lists, each time with all of its memory. */
static void add_process(struct worker *w, const nvmlProcessInfo_v2_t *p) {
    bool unknown = p->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL;
    uint64_t bytes = unknown ? 0 : p->usedGpuMemory;

    w->unknown_memory = w->unknown_memory || unknown;
    for (size_t i = 0; i < w->nprocesses; i++) {
        if (w->processes[i].pid != p->pid)
            continue;
        if (w->processes[i].memory < bytes)
            w->processes[i].memory = bytes;
        return;
    }
    if (w->nprocesses < GPU_PROCESSES_MAX)
        w->processes[w->nprocesses++] =
            (struct gpu_message_process){.pid = p->pid, .memory = bytes};
}

typedef nvmlReturn_t (*list_fn)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);

static void add_list(struct worker *w, nvmlDevice_t device, list_fn fn) {
    unsigned int count = GPU_PROCESSES_MAX;

    if (!fn || fn(device, &count, w->list) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < count && i < GPU_PROCESSES_MAX; i++)
        add_process(w, &w->list[i]);
}

/* The samples of a card since its last one: the first *ret_count of w->samples. */
static nvmlReturn_t read_samples(struct worker *w, nvmlDevice_t device, unsigned long long since,
                                 unsigned int *ret_count) {
    nvmlProcessesUtilizationInfo_t info = {
        .version = NVML_STRUCT_VERSION_OF(nvmlProcessesUtilizationInfo_t, 1),
        .processSamplesCount = GPU_PROCESSES_MAX,
        .lastSeenTimeStamp = since,
        .procUtilArray = w->samples};
    nvmlReturn_t r;

    if (!w->nvml.nvmlDeviceGetProcessesUtilizationInfo)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    r = w->nvml.nvmlDeviceGetProcessesUtilizationInfo(device, &info);
    *ret_count = info.processSamplesCount;
    return r;
}

/* The same by the older function, which has no samples of Blackwell cards. */
static nvmlReturn_t read_older(struct worker *w, nvmlDevice_t device, unsigned long long since,
                               unsigned int *ret_count) {
    nvmlReturn_t r;

    *ret_count = GPU_PROCESSES_MAX;
    if (!w->nvml.nvmlDeviceGetProcessUtilization)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    r = w->nvml.nvmlDeviceGetProcessUtilization(device, w->older, ret_count, since);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < *ret_count && i < GPU_PROCESSES_MAX; i++)
        w->samples[i] = (nvmlProcessUtilizationInfo_v1_t){.pid = w->older[i].pid,
                                                          .timeStamp = w->older[i].timeStamp,
                                                          .smUtil = w->older[i].smUtil};
    return r;
}

/* The samples that came since the last call take the place of all that were kept. */
static void keep_utilization(struct utilization *u, const nvmlProcessUtilizationInfo_v1_t *samples,
                             unsigned int count) {
    u->count = 0;
    u->at = clock_ns(CLOCK_MONOTONIC);
    for (unsigned int s = 0; s < count; s++) {
        unsigned int i = 0;

        if (samples[s].timeStamp > u->seen)
            u->seen = samples[s].timeStamp;
        while (i < u->count && u->last[i].pid != samples[s].pid)
            i++;
        if (samples[s].smUtil > 100 || i == UTILIZATION_MAX)
            continue;
        u->last[i].pid = samples[s].pid;
        u->last[i].percent = samples[s].smUtil;
        u->count += i == u->count;
    }
}

/* NOT_FOUND means that nothing new is known: after a while every process then has 0. */
static void add_utilization(struct worker *w, nvmlDevice_t device, uint32_t index,
                            struct gpu_sample *card) {
    struct utilization *u = &w->utilization[index];
    unsigned int count;
    nvmlReturn_t r;

    if (w->nprocesses == 0)
        return;
    r = read_samples(w, device, u->seen, &count);
    if (r != NVML_SUCCESS && r != NVML_ERROR_NOT_FOUND)
        r = read_older(w, device, u->seen, &count);
    if (r == NVML_SUCCESS)
        keep_utilization(u, w->samples, count < GPU_PROCESSES_MAX ? count : GPU_PROCESSES_MAX);
    else if (clock_ns(CLOCK_MONOTONIC) - u->at > UTILIZATION_AGE_NS)
        u->count = 0;
    card->loads_untold = u->seen == 0 && card->gpu_percent != GPU_NOT_TOLD && card->gpu_percent > 0;
    for (unsigned int k = 0; k < u->count; k++)
        for (size_t i = 0; i < w->nprocesses; i++)
            if (w->processes[i].pid == u->last[k].pid)
                w->processes[i].sm_percent = u->last[k].percent;
}

/* Of a card, or of an instance. */
static void list_processes(struct worker *w, nvmlDevice_t device) {
    const struct nvml *n = &w->nvml;

    w->nprocesses = 0;
    w->unknown_memory = false;
    add_list(w, device,
             n->nvmlDeviceGetComputeRunningProcesses_v3
                 ? n->nvmlDeviceGetComputeRunningProcesses_v3
                 : n->nvmlDeviceGetComputeRunningProcesses_v2);
    add_list(w, device,
             n->nvmlDeviceGetGraphicsRunningProcesses_v3
                 ? n->nvmlDeviceGetGraphicsRunningProcesses_v3
                 : n->nvmlDeviceGetGraphicsRunningProcesses_v2);
    add_list(w, device, n->nvmlDeviceGetMPSComputeRunningProcesses_v3);
}

static bool put_processes(struct worker *w, uint32_t index) {
    for (size_t at = 0; at < w->nprocesses; at += GPU_PACKET_PROCESSES) {
        union gpu_message msg = {0};
        size_t left = w->nprocesses - at;

        msg.processes.count =
            (uint32_t) (left < GPU_PACKET_PROCESSES ? left : GPU_PACKET_PROCESSES);
        memcpy(msg.processes.processes, w->processes + at,
               msg.processes.count * sizeof(w->processes[0]));
        if (!send_message(w, &msg, GPU_MESSAGE_PROCESSES, index, sizeof(msg.processes)))
            return false;
    }
    return true;
}

/* ---- a card ---- */

static bool check_call(struct worker *w, struct gpu_message_device *d, nvmlReturn_t code,
                       const char *call) {
    if (code == NVML_SUCCESS)
        return true;
    d->status = (int32_t) code;
    (void) snprintf(d->error, sizeof(d->error), "%s: %s", call, w->nvml.error_string(code));
    return false;
}

static bool read_identity(struct worker *w, nvmlDevice_t device, struct gpu_message_device *d) {
    const struct nvml *n = &w->nvml;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    nvmlPciInfo_t pci = {0};
    unsigned int minor = 0;

    if (!check_call(w, d, n->nvmlDeviceGetUUID(device, uuid, sizeof(uuid)), "nvmlDeviceGetUUID") ||
        !check_call(w, d, n->nvmlDeviceGetName(device, d->model, sizeof(d->model)),
                    "nvmlDeviceGetName") ||
        !check_call(w, d, n->nvmlDeviceGetMinorNumber(device, &minor), "nvmlDeviceGetMinorNumber"))
        return false;
    if (!uuid[0] || strlen(uuid) >= sizeof(d->uuid) || minor > INT32_MAX)
        return check_call(w, d, NVML_ERROR_UNKNOWN, "identity");
    memcpy(d->uuid, uuid, strlen(uuid) + 1);
    d->model[sizeof(d->model) - 1] = 0;
    d->minor = (int32_t) minor;
    if (n->nvmlDeviceGetPciInfo_v3 && n->nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS)
        (void) snprintf(d->pci, sizeof(d->pci), "%.*s", (int) sizeof(pci.busId) - 1, pci.busId);
    gpu_traits_read(n, device, &d->traits);
    return true;
}

/* ---- XIDs ---- */

/* In the thread of events. The agent polls at once; the poll shows the processes concerned and
 * whether the card still answers. */
static void on_xid(uint32_t index, const nvmlEventData_t *event, void *userdata) {
    union gpu_message msg = {0};

    (void) userdata;
    if (index >= GPU_CARDS_MAX)
        return;
    msg.event = (struct gpu_message_event){
        .header = {.magic = GPU_MESSAGE_MAGIC, .type = GPU_MESSAGE_EVENT, .index = index},
        .xid = (uint32_t) event->eventData,
        .gi = event->gpuInstanceId,
        .ci = event->computeInstanceId};
    (void) send(GPU_WORKER_FD, &msg, sizeof(msg.event), MSG_NOSIGNAL);
}

/* Memory in use, and the driver's reserve. Drivers before 510 do not separate them: false, and both
 * results are unchanged. */
static bool read_allocated(struct worker *w, nvmlDevice_t device, uint64_t *ret,
                           uint64_t *ret_reserved) {
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION_OF(nvmlMemory_v2_t, 2)};

    if (!w->nvml.nvmlDeviceGetMemoryInfo_v2 ||
        w->nvml.nvmlDeviceGetMemoryInfo_v2(device, &memory) != NVML_SUCCESS)
        return false;
    *ret = memory.used;
    *ret_reserved = memory.reserved;
    return true;
}

static bool read_memory(struct worker *w, nvmlDevice_t device, struct gpu_message_device *d) {
    nvmlMemory_t memory = {0};

    if (!check_call(w, d, w->nvml.nvmlDeviceGetMemoryInfo(device, &memory),
                    "nvmlDeviceGetMemoryInfo"))
        return false;
    d->memory = memory.total;
    d->sample.loads_untold = 0;
    d->sample.memory_used = memory.used;
    d->sample.memory_free = memory.free;
    d->sample.memory_allocated = memory.used;
    d->sample.memory_reserved = 0;
    d->sample.attributable =
        read_allocated(w, device, &d->sample.memory_allocated, &d->sample.memory_reserved);
    if (d->sample.memory_reserved > memory.used)
        d->sample.memory_reserved = memory.used;
    d->sample.memory_most = d->sample.memory_allocated;
    return true;
}

/* After the processes: memory that was given back or taken meanwhile can be in their figures and
 * not in the card's, or the other way round. */
static void read_memory_again(struct worker *w, nvmlDevice_t device, struct gpu_message_device *d) {
    uint64_t now = 0, reserved = 0;
    bool known = d->sample.attributable && read_allocated(w, device, &now, &reserved);

    d->sample.attributable = known && !w->unknown_memory;
    d->sample.memory_untold = w->unknown_memory;
    if (!known) {
        d->sample.memory_most = d->sample.memory_used;
        return;
    }
    if (now > d->sample.memory_most)
        d->sample.memory_most = now;
    if (now < d->sample.memory_allocated)
        d->sample.memory_allocated = now;
}

static uint32_t told(nvmlReturn_t code, const unsigned int *value) {
    return code == NVML_SUCCESS ? *value : GPU_NOT_TOLD;
}

/* A card without these figures is as healthy as any. */
static void read_load(struct worker *w, nvmlDevice_t device, struct gpu_sample *ret) {
    const struct nvml *n = &w->nvml;
    nvmlUtilization_t load = {0};
    unsigned int v = 0, period = 0;

    if (n->nvmlDeviceGetUtilizationRates &&
        n->nvmlDeviceGetUtilizationRates(device, &load) == NVML_SUCCESS) {
        ret->gpu_percent = load.gpu;
        ret->memory_percent = load.memory;
    }
    if (n->nvmlDeviceGetTemperature)
        ret->temperature = told(n->nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &v), &v);
    if (n->nvmlDeviceGetPowerUsage)
        ret->power_mw = told(n->nvmlDeviceGetPowerUsage(device, &v), &v);
    if (n->nvmlDeviceGetClockInfo) {
        ret->sm_clock = told(n->nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &v), &v);
        ret->memory_clock = told(n->nvmlDeviceGetClockInfo(device, NVML_CLOCK_MEM, &v), &v);
    }
    if (n->nvmlDeviceGetEncoderUtilization)
        ret->encoder_percent = told(n->nvmlDeviceGetEncoderUtilization(device, &v, &period), &v);
    if (n->nvmlDeviceGetDecoderUtilization)
        ret->decoder_percent = told(n->nvmlDeviceGetDecoderUtilization(device, &v, &period), &v);
}

static void put_reading(uint32_t index, void *userdata) {
    union gpu_message msg = {0};

    (void) send_message(userdata, &msg, GPU_MESSAGE_READING, index, sizeof(msg.header));
}

/* Links fail and come back seldom, and reading all of them takes many calls, of every card. */
static void read_links(struct worker *w, uint32_t count) {
    if (w->left_out || (w->links_ms != 0 && w->links.count == count &&
                        clock_ms(CLOCK_MONOTONIC) - w->links_ms < LINKS_AGE_MS))
        return;
    gpu_links_read(&w->nvml, count, put_reading, w, &w->links);
    w->links_ms = clock_ms(CLOCK_MONOTONIC);
}

static bool put_links(struct worker *w, uint32_t index) {
    union gpu_message msg = {0};

    msg.links.links = w->links.of[index];
    return send_message(w, &msg, GPU_MESSAGE_LINKS, index, sizeof(msg.links));
}

static bool is_divided(struct worker *w, nvmlDevice_t device) {
    unsigned int current = 0, pending = 0;

    return w->nvml.nvmlDeviceGetMigMode &&
           w->nvml.nvmlDeviceGetMigMode(device, &current, &pending) == NVML_SUCCESS && current != 0;
}

/* The driver knows them of GPU instances: they are the device's if it is all of one. */
static void read_instance_rates(struct worker *w, nvmlDevice_t card, uint32_t index,
                                struct gpu_message_device *d) {
    if (d->mig.gi < INSTANCES_MAX && d->mig.gi_slices > 0 && d->mig.ci_slices == d->mig.gi_slices)
        gpu_rates_read(&w->nvml, card, d->mig.gi, d->uuid, &w->instance_rates[index][d->mig.gi],
                       &d->sample);
}

/* What takes out the card takes out its instances. The driver reports no utilisation of a process
 * on an instance. */
static bool put_instance(struct worker *w, nvmlDevice_t card, uint32_t index, unsigned int n,
                         const struct gpu_message_device *of) {
    union gpu_message msg = {0};
    struct gpu_message_device *d = &msg.device;
    nvmlDevice_t instance = NULL;
    bool healthy;

    d->recovery_action = GPU_NOT_TOLD;
    memset(&d->errors, 0xff, sizeof(d->errors));
    memset(&d->sample, 0xff, sizeof(d->sample));
    if (!instance_read(&w->nvml, card, n, of, d, &instance))
        return true;
    healthy = read_memory(w, instance, d) && of->status == 0;
    if (of->status != 0) {
        d->status = of->status;
        memcpy(d->error, of->error, sizeof(d->error));
    }
    if (healthy) {
        read_instance_rates(w, card, index, d);
        list_processes(w, instance);
        read_memory_again(w, instance, d);
    }
    return send_message(w, &msg, GPU_MESSAGE_DEVICE, n, sizeof(msg.device)) &&
           (!healthy || put_processes(w, n));
}

static bool put_instances(struct worker *w, nvmlDevice_t card, uint32_t index,
                          const struct gpu_message_device *of) {
    unsigned int count = of->divided && of->uuid[0] ? instance_count(&w->nvml, card) : 0;

    for (unsigned int n = 0; n < count; n++)
        if (!put_instance(w, card, index, n, of))
            return false;
    return true;
}

/* Cards are independent: a failure is recorded and the next card is read.
 * ret_answers: whether any call on it succeeded. */
static bool put_device(struct worker *w, uint32_t index, bool *ret_answers) {
    union gpu_message msg = {0};
    struct gpu_message_device *d = &msg.device;
    nvmlDevice_t device = NULL;
    bool healthy;

    d->minor = -1;
    d->recovery_action = GPU_NOT_TOLD;
    memset(&d->errors, 0xff, sizeof(d->errors)); /* GPU_NOT_TOLD until it is read below */
    memset(&d->sample, 0xff, sizeof(d->sample));
    healthy = check_call(w, d, w->nvml.nvmlDeviceGetHandleByIndex_v2(index, &device),
                         "nvmlDeviceGetHandleByIndex");
    if (healthy) {
        d->divided = is_divided(w, device);
        gpu_errors_read(&w->nvml, device, &d->errors, &d->recovery_action, &d->sample);
    }
    healthy = healthy && read_identity(w, device, d) && read_memory(w, device, d);
    *ret_answers = healthy || d->uuid[0];
    if (healthy) {
        read_load(w, device, &d->sample);
        gpu_rates_read(&w->nvml, device, NVML_NO_INSTANCE, d->uuid, &w->rates[index], &d->sample);
        list_processes(w, device);
        add_utilization(w, device, index, &d->sample);
        read_memory_again(w, device, d);
    }
    return send_message(w, &msg, GPU_MESSAGE_DEVICE, index, sizeof(msg.device)) &&
           (!healthy || (put_links(w, index) && put_processes(w, index))) &&
           put_instances(w, device, index, d);
}

/* ---- control groups ---- */

static nvmlReturn_t find_device(struct worker *w, const struct gpu_message_limit *msg,
                                nvmlDevice_t *ret) {
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    nvmlReturn_t code;

    if (msg->header.index >= GPU_CARDS_MAX)
        return NVML_ERROR_NOT_FOUND;
    put_reading(msg->header.index, w);
    code = w->nvml.nvmlDeviceGetHandleByIndex_v2(msg->header.index, ret);
    if (code == NVML_SUCCESS)
        code = w->nvml.nvmlDeviceGetUUID(*ret, text, sizeof(text));
    return code == NVML_SUCCESS && strcmp(text, msg->uuid) != 0 ? NVML_ERROR_NOT_FOUND : code;
}

/* Only the hard limit: below a soft one the driver may end programs under MPS. */
static nvmlReturn_t set_limit(struct worker *w, struct gpu_message_limit *msg) {
    nvmlSetMemoryLimits_v1_t limits = {.nameSpace = msg->cgroup, .hardLimit = msg->bytes};
    nvmlGetMemoryLimits_v1_t before = {.nameSpace = msg->cgroup};
    nvmlDevice_t device = NULL;
    nvmlReturn_t code;

    msg->before = msg->bytes;
    if (!w->nvml.nvmlDeviceSetMemoryLimits_v1)
        return NVML_ERROR_NOT_SUPPORTED;
    code = find_device(w, msg, &device);
    if (code != NVML_SUCCESS)
        return code;
    if (w->nvml.nvmlDeviceGetMemoryLimits_v1 &&
        w->nvml.nvmlDeviceGetMemoryLimits_v1(device, &before) == NVML_SUCCESS)
        msg->before = before.hardLimit;
    return w->nvml.nvmlDeviceSetMemoryLimits_v1(device, &limits);
}

/* Returns whether the agent is still there. */
static bool set_memory_limit(struct worker *w, const struct gpu_message_limit *request) {
    union gpu_message msg = {.limit = *request};
    nvmlReturn_t code = set_limit(w, &msg.limit);

    msg.limit.status = (int32_t) code;
    (void) snprintf(msg.limit.error, sizeof(msg.limit.error), "%s", w->nvml.error_string(code));
    return send_message(w, &msg, GPU_MESSAGE_LIMIT, request->header.index, sizeof(msg.limit));
}

/* ---- requests ---- */

static int take_request(struct worker *w, const union gpu_message *msg, size_t size) {
    switch (gpu_message_check(msg, size)) {
    case GPU_MESSAGE_LIMIT:
        w->limits[w->nlimits++] = msg->limit;
        return 0;
    case GPU_MESSAGE_POLL:
        w->poll = msg->poll;
        w->asked = true;
        if (msg->poll.drops_limits)
            w->nlimits = 0;
        return 0;
    default:
        return -EBADMSG;
    }
}

/* All requests that have come: a later one may drop an earlier one. -EPIPE: the agent is gone;
 * -EBADMSG: what it sent is no request. */
static int receive_requests(struct worker *w, bool wait) {
    union gpu_message msg;
    int r = 0;

    while (r == 0 && w->nlimits < LIMITS_MAX) {
        ssize_t n = recv(GPU_WORKER_FD, &msg, sizeof(msg), wait ? 0 : MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        r = n <= 0 ? -EPIPE : take_request(w, &msg, (size_t) n);
        wait = false;
    }
    return r;
}

/* Between two, requests are received, which may drop the others. */
static int set_memory_limits(struct worker *w) {
    struct gpu_message_limit next;
    int r = 0;

    while (r == 0 && w->nlimits > 0) {
        next = w->limits[0];
        memmove(w->limits, w->limits + 1, --w->nlimits * sizeof(w->limits[0]));
        r = set_memory_limit(w, &next) ? receive_requests(w, false) : -EPIPE;
    }
    return r;
}

/* ---- a poll ---- */

/* Limits that were requested while cards are read. */
static bool superseded(struct worker *w) {
    return receive_requests(w, false) < 0 || set_memory_limits(w) < 0 || w->asked;
}

/* DEVICE and what belongs to it, for each card. 0: all; 1: the agent has sent another poll;
 * negative: the agent is gone. */
static int put_devices(struct worker *w, uint32_t count, unsigned *ret_answers) {
    for (uint32_t i = 0; i < count && i < GPU_CARDS_MAX; i++) {
        bool answered = false;

        if (w->left_out >> i & 1)
            continue;
        if (superseded(w))
            return 1;
        put_reading(i, w);
        if (!put_device(w, i, &answered))
            return -1;
        *ret_answers += answered;
    }
    return 0;
}

/* 0: go on; 1: the agent is gone; -1: the driver is. */
static int answer_poll(struct worker *w) {
    union gpu_message msg = {0};
    unsigned int count = 0;
    unsigned int answers = 0;
    nvmlReturn_t code = w->nvml.nvmlDeviceGetCount_v2(&count);
    int r;

    if (code != NVML_SUCCESS) {
        char text[160];

        (void) snprintf(text, sizeof(text), "nvmlDeviceGetCount: %s", w->nvml.error_string(code));
        (void) fail(w, text);
        return -1;
    }
    if (w->nvml.nvmlSystemGetDriverVersion)
        (void) w->nvml.nvmlSystemGetDriverVersion(msg.text.text,
                                                  NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
    if (!send_message(w, &msg, GPU_MESSAGE_DRIVER, 0, sizeof(msg.text)))
        return 1;
    read_links(w, count < GPU_CARDS_MAX ? count : GPU_CARDS_MAX);
    r = put_devices(w, count, &answers);
    if (r != 0)
        return r < 0 ? 1 : 0;
    memset(&msg, 0, sizeof(msg));
    if (!send_message(w, &msg, GPU_MESSAGE_END, 0, sizeof(msg.header)))
        return 1;
    /* Not one card answers: the driver was unloaded below us. A new process will see the new one.
     */
    return count > 0 && answers == 0 && w->left_out == 0 ? -1 : 0;
}

/* ---- service ---- */

/* Without events, polls find a failed card later. */
static void hear_of_xids(struct worker *w) {
    if (!w->hears_of_xids)
        (void) gpu_events_start(&(struct gpu_events_options){.nvml = &w->nvml,
                                                             .on_xid = on_xid,
                                                             .reading = put_reading,
                                                             .userdata = w,
                                                             .left_out = w->left_out});
    w->hears_of_xids = true;
}

static int serve(struct worker *w) {
    int r;

    while ((r = receive_requests(w, !w->asked)) == 0 && (r = set_memory_limits(w)) == 0) {
        if (!w->asked)
            continue;
        w->asked = false;
        w->sequence = w->poll.header.sequence;
        w->left_out = w->poll.left_out;
        hear_of_xids(w);
        r = answer_poll(w);
        if (r != 0)
            return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    return r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- contexts ---- */

static void report_context(const char *uuid, uint64_t bytes, void *userdata) {
    union gpu_message msg = {0};

    text_copy(msg.context.uuid, sizeof(msg.context.uuid), uuid);
    msg.context.bytes = bytes;
    (void) send_message(userdata, &msg, GPU_MESSAGE_CONTEXT, 0, sizeof(msg.context));
}

/* In a process of its own: what CUDA leaves behind in a process is many times what NVML needs, and
 * no poll shall wait for it. Before this process has loaded the driver, which survives no fork. */
static void measure_contexts(struct worker *w, const char *library) {
    (void) signal(SIGCHLD, SIG_IGN); /* no wait(2) for it */
    if (fork() != 0)
        return;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) prctl(PR_SET_NAME, "aliquot-context");
    (void) gpu_context_measure(library, report_context, w);
    _exit(EXIT_SUCCESS);
}

/* Of this process, CUDA opens no other device. */
static int probe(struct worker *w, const char *library, const char *uuid) {
    union gpu_message msg = {0};
    struct err err = {0};

    (void) prctl(PR_SET_NAME, "aliquot-probe");
    if (setenv("CUDA_VISIBLE_DEVICES", uuid, 1) < 0)
        (void) err_set(&err, errno, "cannot restrict CUDA to the device: %s", strerror(errno));
    if (err.text[0] || gpu_context_probe(library, &err) < 0)
        return fail(w, err.text);
    return send_message(w, &msg, GPU_MESSAGE_END, 0, sizeof(msg.header)) ? EXIT_SUCCESS
                                                                         : EXIT_FAILURE;
}

int gpu_worker_main(int argc, char **argv) {
    static struct worker w;
    struct err err;
    nvmlReturn_t code;

    if (argc < 3 || argc > 5 || fcntl(GPU_WORKER_FD, F_GETFD) < 0) {
        (void) fprintf(stderr, "%s is started by the agent itself\n", GPU_WORKER_COMMAND);
        return EXIT_FAILURE;
    }
    /* The agent's death is the end of the socket too, but the child does not read it while a call
     * hangs. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) prctl(PR_SET_NAME, "aliquot-nvml");
    if (argc == 5 && strcmp(argv[3], GPU_WORKER_PROBE) == 0)
        return probe(&w, argv[2], argv[4]);
    if (argc == 4 && strcmp(argv[3], GPU_WORKER_MEASURE) == 0)
        measure_contexts(&w, argv[2]);
    if (nvml_load(argv[2], &w.nvml, &err) < 0)
        return fail(&w, err.text);
    code = w.nvml.nvmlInit_v2();
    if (code != NVML_SUCCESS) {
        (void) snprintf(err.text, sizeof(err.text), "nvmlInit: %s", w.nvml.error_string(code));
        return fail(&w, err.text);
    }
    gpu_links_init(&w.links);
    return serve(&w);
}
