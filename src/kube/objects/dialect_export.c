/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/dialect_export.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "wire/json_write.h"

#define SECOND UINT64_C(1000000000)

/* The part of an annotation's key behind the slash; with a longer one the API server
 * would refuse every later update of the pod. */
#define KEY_NAME_MAX 63

/* Variables for every card; with more cards there is one for all of them. */
#define ENV_CARDS_MAX 16

typedef unsigned long long ull;

/* ---- going through a pod ---- */

static const struct assigned_container *part_of(const struct export_pod *p, uint32_t i,
                                                const struct dialect *d) {
    return &dialects[p->containers[i].dialect] == d
               ? assignment_find(p->assignment, p->containers[i].container)
               : NULL;
}

/* "0,1" */
static void put_indexes(const struct assigned_container *c, struct buf *out) {
    for (uint32_t i = 0; i < c->ndevices; i++)
        buf_printf(out, "%s%u", i ? "," : "", c->devices[i].index);
}

static void put_text(struct json_writer *w, const char *prefix, const char *name,
                     const char *text) {
    char key[160];
    if (strlen(name) > KEY_NAME_MAX)
        return;
    (void) snprintf(key, sizeof(key), "%s%s", prefix, name);
    json_put_string(w, key, text);
}

static void put_number(struct json_writer *w, const char *prefix, const char *name,
                       uint64_t number) {
    char text[24];
    (void) snprintf(text, sizeof(text), "%llu", (ull) number);
    put_text(w, prefix, name, text);
}

static void put_buf(struct json_writer *w, const char *prefix, const char *name,
                    const struct buf *text) {
    if (buf_error(text) == 0)
        put_text(w, prefix, name, buf_str(text));
}

/* ---- annotations ---- */

static void annotate_elastic(const struct export_pod *p, const struct dialect *d,
                             struct json_writer *w) {
    json_put_string(w, "elasticgpu.io/assumed", "true");
    (void) d; /* the same keys for all spellings */
    for (uint32_t i = 0; i < p->ncontainers; i++) {
        const struct dialect *spelling = &dialects[p->containers[i].dialect];
        const struct assigned_container *c =
            spelling->exported == EXPORT_ELASTIC ? part_of(p, i, spelling) : NULL;
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        char name[96];
        if (!c)
            continue;
        (void) snprintf(name, sizeof(name), "container-%s", c->name);
        put_indexes(c, &text);
        put_buf(w, "elasticgpu.io/", name, &text);
    }
}

/* The tools of gpushare count in GiB, and read the cards of a pod from `allocation` or, if it has
 * none, its one card from IDX. */
static void annotate_gpushare(const struct export_pod *p, const struct dialect *d,
                              struct json_writer *w) {
    _cleanup_buf_ struct buf indexes = BUF_INIT(0), allocation = BUF_INIT(0);
    struct json_writer inner = {.out = &allocation};
    uint64_t pod = 0, card = 0;
    json_object_begin(&inner, NULL);
    for (uint32_t i = 0; i < p->ncontainers; i++) {
        const struct assigned_container *c = part_of(p, i, d);
        char key[16];
        if (!c || p->containers[i].phase != CONTAINER_APP)
            continue;
        (void) snprintf(key, sizeof(key), "%u", p->containers[i].ordinal);
        json_object_begin(&inner, key);
        for (uint32_t j = 0; j < c->ndevices; j++) {
            (void) snprintf(key, sizeof(key), "%u", c->devices[j].index);
            json_put_u64(&inner, key, c->devices[j].memory / GIB);
            pod += c->devices[j].memory / GIB;
        }
        json_object_end(&inner);
        card = p->card_memory(c->devices[0].uuid, p->userdata) / GIB;
        if (indexes.len == 0)
            put_indexes(c, &indexes);
    }
    json_object_end(&inner);
    if (indexes.len == 0)
        return; /* init containers only, of which their tools know nothing */
    put_buf(w, "", "ALIYUN_COM_GPU_MEM_IDX", &indexes);
    put_number(w, "", "ALIYUN_COM_GPU_MEM_DEV", card);
    put_number(w, "", "ALIYUN_COM_GPU_MEM_POD", pod);
    put_text(w, "", "ALIYUN_COM_GPU_MEM_ASSIGNED", "true");
    put_number(w, "", "ALIYUN_COM_GPU_MEM_ASSUME_TIME", p->now_ns);
    put_number(w, "", "ALIYUN_COM_GPU_MEM_ASSIGN_TIME", p->now_ns);
    put_buf(w, "", "scheduler.framework.gpushare.allocation", &allocation);
}

static void annotate_gpu_manager(const struct export_pod *p, const struct dialect *d,
                                 struct json_writer *w) {
    for (uint32_t i = 0; i < p->ncontainers; i++) {
        const struct assigned_container *c = part_of(p, i, d);
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        char name[48];
        if (!c || p->containers[i].phase != CONTAINER_APP)
            continue;
        (void) snprintf(name, sizeof(name), "predicate-gpu-idx-%u", p->containers[i].ordinal);
        put_indexes(c, &text);
        put_buf(w, d->prefix, name, &text);
    }
    put_text(w, d->prefix, "predicate-node", p->assignment->node);
    put_number(w, d->prefix, "predicate-time", p->now_ns);
    put_text(w, d->prefix, "gpu-assigned", "true");
}

/* "UUID,NVIDIA,MiB,percent:" for each card, ";" behind each container, volcano: between them; also
 * for those without a card that precede one with a card. */
static void put_hami_devices(const struct export_pod *p, const struct dialect *d, bool between,
                             struct buf *out) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < p->ncontainers; i++) {
        const struct assigned_container *c = part_of(p, i, d);
        if (!c || p->containers[i].phase != CONTAINER_APP)
            continue;
        for (; next < p->containers[i].ordinal; next++)
            buf_putc(out, ';');
        for (uint32_t j = 0; j < c->ndevices; j++)
            buf_printf(out, "%s,NVIDIA,%llu,%u:", c->devices[j].uuid,
                       (ull) (c->devices[j].memory / MIB), c->devices[j].core);
        if (between)
            continue;
        buf_putc(out, ';');
        next++;
    }
}

static void annotate_hami(const struct export_pod *p, const struct dialect *d,
                          struct json_writer *w) {
    const bool volcano = strcmp(d->prefix, "hami.io/") != 0;
    _cleanup_buf_ struct buf devices = BUF_INIT(0);
    put_hami_devices(p, d, volcano, &devices);
    put_text(w, d->prefix, "vgpu-node", p->assignment->node);
    put_number(w, d->prefix, "vgpu-time", p->now_ns / SECOND);
    put_number(w, d->prefix, "bind-time", p->now_ns / SECOND);
    put_text(w, d->prefix, "bind-phase", "success");
    put_buf(w, d->prefix, volcano ? "devices-to-allocate" : "vgpu-devices-to-allocate", &devices);
    put_buf(w, d->prefix, volcano ? "vgpu-ids-new" : "vgpu-devices-allocated", &devices);
}

static void put_koordinator_device(struct json_writer *w, const struct export_pod *p,
                                   const struct assigned_device *device) {
    uint64_t card = p->card_memory(device->uuid, p->userdata);
    json_object_begin(w, NULL);
    json_put_u64(w, "minor", device->index);
    json_object_begin(w, "resources");
    json_put_stringf(w, "koordinator.sh/gpu-core", "%u", device->core);
    json_put_stringf(w, "koordinator.sh/gpu-memory", "%llu", (ull) device->memory);
    if (card > 0)
        json_put_stringf(w, "koordinator.sh/gpu-memory-ratio", "%llu",
                         (ull) (((unsigned __int128) device->memory * 100 + card / 2) / card));
    json_object_end(w);
    json_put_string(w, "id", device->uuid);
    json_object_end(w);
}

static void annotate_koordinator(const struct export_pod *p, const struct dialect *d,
                                 struct json_writer *w) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer inner = {.out = &text};
    json_object_begin(&inner, NULL);
    json_array_begin(&inner, "gpu");
    for (uint32_t i = 0; i < p->ncontainers; i++) {
        const struct assigned_container *c = part_of(p, i, d);
        for (uint32_t j = 0; c && j < c->ndevices; j++)
            put_koordinator_device(&inner, p, &c->devices[j]);
    }
    json_array_end(&inner);
    json_object_end(&inner);
    put_buf(w, "scheduling.koordinator.sh/", "device-allocated", &text);
}

static void annotate_kai(const struct export_pod *p, const struct dialect *d,
                         struct json_writer *w) {
    bool whole = false;
    for (uint32_t i = 0; i < p->ncontainers; i++)
        whole |= part_of(p, i, d) && p->containers[i].whole;
    json_put_string(w, "received-resource-type", whole ? "Regular" : "Fraction");
}

/* ---- environment ---- */

#define PUT(...)                                                                                   \
    do {                                                                                           \
        (void) snprintf(text, sizeof(text), __VA_ARGS__);                                          \
        int r = put(text, userdata);                                                               \
        if (r < 0)                                                                                 \
            return r;                                                                              \
    } while (0)

typedef int env_put(const char *variable, void *userdata);

static int env_gpushare(const struct export_part *parts, size_t n, env_put *put, void *userdata) {
    char text[EXPORT_ENV_MAX];
    uint64_t container = 0, pod = 0;
    for (size_t i = 0; i < n; i++) {
        container += parts[i].memory / GIB;
        pod += parts[i].pod_memory / GIB;
    }
    PUT("ALIYUN_COM_GPU_MEM_IDX=%u", parts[0].index);
    PUT("ALIYUN_COM_GPU_MEM_POD=%llu", (ull) pod);
    PUT("ALIYUN_COM_GPU_MEM_CONTAINER=%llu", (ull) container);
    PUT("ALIYUN_COM_GPU_MEM_DEV=%llu", (ull) (parts[0].card_memory / GIB));
    return 0;
}

static int env_hami(const struct export_part *parts, size_t n, env_put *put, void *userdata) {
    char text[EXPORT_ENV_MAX];
    if (n > ENV_CARDS_MAX)
        PUT("CUDA_DEVICE_MEMORY_LIMIT=%llum", (ull) (parts[0].memory / MIB));
    for (size_t i = 0; n <= ENV_CARDS_MAX && i < n; i++)
        PUT("CUDA_DEVICE_MEMORY_LIMIT_%zu=%llum", i, (ull) (parts[i].memory / MIB));
    if (parts[0].core > 0)
        PUT("CUDA_DEVICE_SM_LIMIT=%u", parts[0].core);
    return 0;
}

static int env_kai(const struct export_part *parts, size_t n, env_put *put, void *userdata) {
    char text[EXPORT_ENV_MAX];
    uint64_t card = parts[0].card_memory, cents = parts[0].core;
    (void) n;
    if (cents == 0 && card > 0)
        cents = (uint64_t) ((unsigned __int128) parts[0].memory * 100 / card);
    PUT("GPU_PORTION=%llu.%02llu", (ull) (cents / 100), (ull) (cents % 100));
    return 0;
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*annotate)(const struct export_pod *, const struct dialect *, struct json_writer *);
    int (*env)(const struct export_part *, size_t, env_put *, void *);
} kinds[EXPORT_KINDS] = {
    [EXPORT_NONE] = {"none", NULL, NULL},
    [EXPORT_ELASTIC] = {"elastic-gpu", annotate_elastic, NULL},
    [EXPORT_GPUSHARE] = {"gpushare", annotate_gpushare, env_gpushare},
    [EXPORT_GPU_MANAGER] = {"gpu-manager", annotate_gpu_manager, NULL},
    [EXPORT_HAMI] = {"hami", annotate_hami, env_hami},
    [EXPORT_KOORDINATOR] = {"koordinator", annotate_koordinator, NULL},
    [EXPORT_KAI] = {"kai", annotate_kai, env_kai},
};

void export_annotate(const struct export_pod *pod, struct json_writer *w) {
    bool kind_done[EXPORT_KINDS] = {false},
         row_done[DIALECT_COUNT] = {false}; /* rows with a prefix */
    for (uint32_t i = 0; i < pod->ncontainers; i++) {
        const struct dialect *d = &dialects[pod->containers[i].dialect];
        bool *done = d->prefix ? &row_done[pod->containers[i].dialect] : &kind_done[d->exported];
        if (!kinds[d->exported].annotate || *done)
            continue;
        *done = true;
        kinds[d->exported].annotate(pod, d, w);
    }
}

int export_env(enum export_kind kind, const struct export_part *parts, size_t n,
               int (*put)(const char *variable, void *userdata), void *userdata) {
    if (n == 0 || kind >= EXPORT_KINDS || !kinds[kind].env)
        return 0;
    return kinds[kind].env(parts, n, put, userdata);
}

const char *export_kind_name(enum export_kind kind) {
    return kinds[kind < EXPORT_KINDS ? kind : EXPORT_NONE].name;
}

enum export_kind export_kind_find(const char *name) {
    for (size_t i = 0; name && i < EXPORT_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return (enum export_kind) i;
    return EXPORT_NONE;
}
