/* SPDX-License-Identifier: Apache-2.0 */

/* What pods of other projects ask, as their own documentation writes them, read to the end: from
 * the text of a Pod to its container requests. docs/dialects.md names the sources. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants them first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/objects/dialect_export.h"
#include "kube/objects/pod.h"
#include "model/dialect.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define MIB ((uint64_t) 1 << 20)
#define GIB ((uint64_t) 1 << 30)

/* One container "main" with these limits, in a pod with this metadata. */
struct readme {
    const char *limits;
    const char *meta; /* further fields of metadata, or NULL */
    enum request_problem problem;
    struct container_request req;
    const char *env; /* entries, or NULL */
    struct dialect_pair mixed;
};

#define LIMIT(mib) "{\"name\":\"NVIDIA_GPU_MEMORY_LIMIT\",\"value\":\"" mib "\"}"
#define SLOT "\"elasticgpu.io/slot\":1,"
#define Q "tke.cloud.tencent.com/qgpu-"

static const struct readme readmes[] = {
    /* Elastic GPU */
    {SLOT "\"elasticgpu.io/gpu-memory\":\"256Mi\"",
     .req = {.memory = 256 * MIB, .slot = true, .dialect = DIALECT_NATIVE}},
    {"\"elasticgpu.io/gpu-core\":\"200\"",
     .req = {.cards = 2, .whole = true, .dialect = DIALECT_NATIVE}},
    {"\"elasticgpu.io/gpu-core\":\"10\",\"elasticgpu.io/gpu-memory\":\"4Gi\"",
     .req = {.core = 10, .memory = 4 * GIB, .dialect = DIALECT_NATIVE}},
    {"\"elasticgpu.io/gpu-core\":30,\"elasticgpu.io/gpu-memory\":\"4Gi\","
     "\"elasticgpu.io/gpu-count\":2",
     .req = {.cards = 2, .core = 30, .memory = 4 * GIB, .dialect = DIALECT_NATIVE}},
    {SLOT "\"elasticgpu.io/gpu-count\":3",
     .req = {.cards = 3, .whole = true, .dialect = DIALECT_NATIVE}},
    {SLOT "\"elasticgpu.io/gpu-tflops\":20", .req = {.tflops = 20, .dialect = DIALECT_NATIVE}},
    {"\"elasticgpu.io/gpu-core\":\"150\"", .problem = REQUEST_CORE_STEP},
    {"\"elasticgpu.io/gpu-core\":100,\"elasticgpu.io/gpu-count\":2", .problem = REQUEST_SPLIT},
    {"\"elasticgpu.io/gpu-core\":150,\"elasticgpu.io/gpu-count\":2", .problem = REQUEST_CORE_STEP},
    {SLOT "\"elasticgpu.io/gpu-memory\":\"256\"", .problem = REQUEST_MEMORY_SMALL},
    {"\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-tflops\":20", .problem = REQUEST_TWICE},
    {SLOT "\"elasticgpu.com/gpu-core\":20,\"elasticgpu.com/gpu-memory\":256",
     .req = {.core = 20, .memory = 256 * MIB, .dialect = DIALECT_ELASTIC_COM}},
    {SLOT "\"gpushare.provisioner.elasticgpu.io/gpu-core\":10,"
          "\"gpushare.provisioner.elasticgpu.io/gpu-memory\":4",
     .req = {.core = 10, .memory = 4 * GIB, .dialect = DIALECT_ELASTIC_GPUSHARE}},
    /* qGPU; an online pod asks for memory only, an offline one for what is left */
    {"\"" Q "core\":30,\"" Q "memory\":10",
     .req = {.core = 30, .memory = 10 * GIB, .dialect = DIALECT_QGPU}},
    {"\"" Q "core\":200", .req = {.cards = 2, .whole = true, .dialect = DIALECT_QGPU}},
    /* its page on several cards (product/457/127667) */
    {"\"" Q "core\":160,\"" Q "memory\":60",
     .req = {.cards = 2, .core = 80, .memory = 30 * GIB, .dialect = DIALECT_QGPU}},
    {"\"" Q "core\":121,\"" Q "memory\":31",
     .req = {.cards = 2, .core = 60, .memory = 15 * GIB, .dialect = DIALECT_QGPU}},
    {"\"" Q "core\":250", .req = {.cards = 3, .core = 83, .dialect = DIALECT_QGPU}},
    {"\"" Q "core\":101", .req = {.cards = 2, .core = 50, .dialect = DIALECT_QGPU}},
    {"\"" Q "core\":160,\"" Q "memory\":1", .problem = REQUEST_MEMORY_ZERO},
    {"\"" Q "core\":6401", .problem = REQUEST_CORE_RANGE},
    {"\"" Q "core\":\"99999999999999999999\"", .problem = REQUEST_CORE_RANGE},
    {SLOT "\"" Q "core-greedy\":10,\"" Q "memory\":5",
     .req = {.memory = 5 * GIB, .slot = true, .offline = true, .dialect = DIALECT_QGPU}},
    {SLOT "\"" Q "memory\":5", .req = {.memory = 5 * GIB, .slot = true, .dialect = DIALECT_QGPU}},
    {SLOT "\"" Q "core-greedy\":10",
     .req = {.memory_percent = 10, .slot = true, .offline = true, .dialect = DIALECT_QGPU}},
    {SLOT "\"" Q "core-greedy\":200", .problem = REQUEST_CORE_EACH_RANGE},
    /* gpushare, cGPU */
    {SLOT "\"aliyun.com/gpu-mem\":3",
     .req = {.memory = 3 * GIB, .slot = true, .dialect = DIALECT_GPUSHARE}},
    {SLOT "\"aliyun.com/gpu-mem\":6,\"aliyun.com/gpu-core.percentage\":30",
     .req = {.memory = 6 * GIB, .core = 30, .dialect = DIALECT_GPUSHARE}},
    {SLOT "\"aliyun.com/gpu-mem\":8", "\"labels\":{\"aliyun.com/gpu-count\":\"2\"}",
     .req = {.cards = 2, .memory = 4 * GIB, .slot = true, .dialect = DIALECT_GPUSHARE}},
    {SLOT "\"aliyun.com/gpu-mem\":8,\"aliyun.com/gpu-count\":4",
     .req = {.cards = 4, .memory = 2 * GIB, .slot = true, .dialect = DIALECT_GPUSHARE}},
    {SLOT "\"aliyun.com/gpu-count\":4", .problem = REQUEST_SPLIT},
    {SLOT "\"aliyun.com/gpu-mem\":3", "\"labels\":{\"aliyun.com/gpu-count\":\"65\"}",
     .problem = REQUEST_CARDS_RANGE},
    {SLOT "\"aliyun.com/gpu-mem\":3", "\"labels\":{\"aliyun.com/gpu-count\":\"many\"}",
     .problem = REQUEST_NOT_A_NUMBER},
    /* gpu-manager, and its fork with MiB */
    {SLOT "\"tencent.com/vcuda-core\":50,\"tencent.com/vcuda-memory\":30",
     "\"annotations\":{\"tencent.com/vcuda-core-limit\":\"50\"}",
     .req = {.core = 50, .memory = 7680 * MIB, .dialect = DIALECT_GPU_MANAGER}},
    {SLOT "\"tencent.com/vcuda-core\":200,\"tencent.com/vcuda-memory\":60",
     .req = {.cards = 2, .whole = true, .memory_floor = 15 * GIB, .dialect = DIALECT_GPU_MANAGER}},
    {SLOT "\"tencent.com/vcuda-core\":150", .problem = REQUEST_CORE_STEP},
    {SLOT "\"tencent.com/vcuda-core\":250", .problem = REQUEST_CORE_STEP},
    {SLOT "\"nvidia.com/vcuda-core\":50,\"nvidia.com/vcuda-memory\":2048",
     "\"annotations\":{\"nvidia.com/vcuda-core-limit\":\"50\"}",
     .req = {.core = 50, .memory = 2 * GIB, .dialect = DIALECT_VCUDA}},
    {SLOT "\"nvidia.com/vcuda-core\":200",
     .req = {.cards = 2, .whole = true, .dialect = DIALECT_VCUDA}},
    {SLOT "\"nvidia.com/vcuda-core\":150", .problem = REQUEST_CORE_STEP},
    {SLOT "\"nvidia.com/vcuda-core\":250", .problem = REQUEST_CORE_STEP},
    /* NVIDIA's container toolkit: a limit of memory in MiB, by the environment */
    {SLOT "\"nvidia.com/gpu\":1",
     .req = {.memory = 4096 * MIB, .slot = true, .dialect = DIALECT_HAMI}, .env = LIMIT("4096")},
    {SLOT "\"nvidia.com/gpu\":2,\"nvidia.com/gpucores\":30",
     .req = {.cards = 2, .core = 30, .memory = 512 * MIB, .dialect = DIALECT_HAMI},
     .env = LIMIT("4096") "," LIMIT("512")},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000",
     .req = {.memory = 3000 * MIB, .slot = true, .dialect = DIALECT_HAMI}, .env = LIMIT("4096")},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":50",
     .req = {.memory_percent = 50, .slot = true, .dialect = DIALECT_HAMI}, .env = LIMIT("4096")},
    {SLOT "\"nvidia.com/gpu\":1", .problem = REQUEST_NOT_A_NUMBER, .env = LIMIT("4GB")},
    {SLOT "\"nvidia.com/gpu\":1",
     .req = {.whole = true, .as_replica = true, .dialect = DIALECT_HAMI},
     .env = "{\"name\":\"NVIDIA_GPU_MEMORY_LIMIT\",\"valueFrom\":{}}"},
    {SLOT "\"nvidia.com/gpu\":1",
     .req = {.whole = true, .as_replica = true, .dialect = DIALECT_HAMI}, .env = LIMIT("")},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":0",
     .req = {.memory = 4096 * MIB, .slot = true, .dialect = DIALECT_HAMI}, .env = LIMIT("4096")},
    {"\"elasticgpu.io/gpu-core\":10", .req = {.core = 10, .dialect = DIALECT_NATIVE},
     .env = LIMIT("4096")},
    /* HAMi, and NVIDIA's own whole cards */
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000,\"nvidia.com/gpucores\":30",
     .req = {.core = 30, .memory = 3000 * MIB, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":2,\"nvidia.com/gpumem\":3000",
     .req = {.cards = 2, .memory = 3000 * MIB, .slot = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":2,\"nvidia.com/gpumem-percentage\":50,\"nvidia.com/gpucores\":30",
     .req = {.cards = 2, .core = 30, .memory_percent = 50, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":2,\"nvidia.com/gpumem-percentage\":100,\"nvidia.com/gpucores\":100",
     .req = {.cards = 2, .whole = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":2",
     .req = {.cards = 2, .whole = true, .as_replica = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpumem\":3000",
     .req = {.memory = 3000 * MIB, .slot = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpucores\":30",
     .req = {.core = 30, .memory_percent = 100, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000,\"nvidia.com/gpucores\":100",
     .req = {.core = 100, .memory = 3000 * MIB, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":0,\"nvidia.com/gpucores\":0",
     .req = {.whole = true, .as_replica = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000,\"nvidia.com/priority\":0",
     .req = {.memory = 3000 * MIB, .slot = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000,\"nvidia.com/priority\":1",
     .req = {.memory = 3000 * MIB, .slot = true, .offline = true, .dialect = DIALECT_HAMI}},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":101",
     .problem = REQUEST_PERCENT_RANGE},
    {SLOT "\"nvidia.com/gpu\":1,\"nvidia.com/gpucores\":101", .problem = REQUEST_CORE_EACH_RANGE},
    {"\"nvidia.com/gpu\":1", .problem = REQUEST_SLOT_MISSING},
    /* volcano */
    {SLOT "\"volcano.sh/vgpu-number\":2,\"volcano.sh/vgpu-memory\":1024",
     .req = {.cards = 2, .memory = GIB, .slot = true, .dialect = DIALECT_VOLCANO}},
    {SLOT "\"volcano.sh/vgpu-number\":1,\"volcano.sh/vgpu-memory-percentage\":50,"
          "\"volcano.sh/vgpu-cores\":50",
     .req = {.core = 50, .memory_percent = 50, .dialect = DIALECT_VOLCANO}},
    {SLOT "\"volcano.sh/vgpu-number\":1", .req = {.whole = true, .dialect = DIALECT_VOLCANO}},
    /* koordinator */
    {SLOT "\"koordinator.sh/gpu\":100", .req = {.whole = true, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu\":50",
     .req = {.core = 50, .memory_percent = 50, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu\":200",
     .req = {.cards = 2, .whole = true, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu-shared\":1,\"koordinator.sh/gpu-core\":50,"
          "\"koordinator.sh/gpu-memory-ratio\":50",
     .req = {.core = 50, .memory_percent = 50, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu.shared\":2,\"koordinator.sh/gpu-core\":100,"
          "\"koordinator.sh/gpu-memory-ratio\":100",
     .req = {.cards = 2, .core = 50, .memory_percent = 50, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu.shared\":2,\"koordinator.sh/gpu-core\":60,"
          "\"koordinator.sh/gpu-memory\":\"16Gi\"",
     .req = {.cards = 2, .core = 30, .memory = 8 * GIB, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu-core\":100,\"koordinator.sh/gpu-memory-ratio\":100",
     .req = {.whole = true, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu-core\":100,\"koordinator.sh/gpu-memory-ratio\":40",
     .req = {.core = 100, .memory_percent = 40, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu-core\":50,\"koordinator.sh/gpu-memory\":\"8Gi\"",
     .req = {.core = 50, .memory = 8 * GIB, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu-memory-ratio\":200",
     .req = {.cards = 2, .memory_percent = 100, .slot = true, .dialect = DIALECT_KOORDINATOR}},
    {SLOT "\"koordinator.sh/gpu\":150", .problem = REQUEST_CORE_STEP},
    {SLOT "\"koordinator.sh/gpu\":50,\"koordinator.sh/gpu-core\":50", .problem = REQUEST_TWICE},
    {SLOT "\"koordinator.sh/gpu-core\":50,\"koordinator.sh/gpu-memory-ratio\":200",
     .problem = REQUEST_SPLIT},
    {SLOT "\"koordinator.sh/gpu-memory\":\"8Gi\",\"koordinator.sh/gpu-memory-ratio\":50",
     .problem = REQUEST_TWICE},
    {SLOT "\"koordinator.sh/gpu.shared\":3,\"koordinator.sh/gpu-core\":100",
     .problem = REQUEST_SPLIT},
    {SLOT "\"koordinator.sh/gpu.shared\":3,\"koordinator.sh/gpu-core\":100,"
          "\"koordinator.sh/gpu-memory\":\"24Gi\"",
     .problem = REQUEST_SPLIT},
    /* NVIDIA time-slicing and MIG */
    {SLOT "\"nvidia.com/gpu.shared\":1",
     .req = {.replicas = 1, .slot = true, .dialect = DIALECT_TIME_SLICING}},
    {SLOT "\"nvidia.com/gpu.shared\":1024",
     .req = {.replicas = 1024, .slot = true, .dialect = DIALECT_TIME_SLICING}},
    {SLOT "\"nvidia.com/gpu.shared\":0", .problem = REQUEST_REPLICAS_RANGE},
    {SLOT "\"nvidia.com/gpu.shared\":1025", .problem = REQUEST_REPLICAS_RANGE},
    {SLOT "\"nvidia.com/mig-1g.10gb\":1", .problem = REQUEST_MIG},
    {"\"nvidia.com/mig-1g.10gb\":1,\"elasticgpu.io/gpu-core\":10", .problem = REQUEST_MIG},
    /* KAI */
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"0.5\"}",
     .req = {.core = 50, .memory_percent = 50, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-memory\":\"2000\"}",
     .req = {.memory = 2000 * MIB, .slot = true, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1",
     "\"annotations\":{\"gpu-fraction\":\"0.333\",\"gpu-fraction-num-devices\":\"2\"}",
     .req = {.cards = 2, .core = 33, .memory_percent = 33, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"1\"}",
     .req = {.whole = true, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"0.001\"}",
     .req = {.core = 1, .memory_percent = 1, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\".25\"}",
     .req = {.core = 25, .memory_percent = 25, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"1.00\"}",
     .req = {.whole = true, .dialect = DIALECT_KAI}},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\".\"}",
     .problem = REQUEST_FRACTION},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"1.001\"}",
     .problem = REQUEST_FRACTION},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"1.5\"}",
     .problem = REQUEST_FRACTION},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-fraction\":\"0\"}",
     .problem = REQUEST_FRACTION},
    {"\"elasticgpu.io/slot\":1",
     "\"annotations\":{\"gpu-fraction\":\"0.5\",\"gpu-memory\":\"2000\"}",
     .problem = REQUEST_FRACTION},
    {"\"elasticgpu.io/slot\":1", "\"annotations\":{\"gpu-memory\":\"8796093022208\"}",
     .problem = REQUEST_FRACTION}, /* more bytes than a number has */
    {"\"cpu\":1", "\"annotations\":{\"gpu-fraction\":\"0.5\"}", .problem = REQUEST_SLOT_MISSING},
    {"\"elasticgpu.io/slot\":0", "\"annotations\":{\"gpu-fraction\":\"0.5\"}",
     .problem = REQUEST_SLOT_MISSING},
    {"\"elasticgpu.io/slot\":1",
     "\"annotations\":{\"gpu-fraction\":\"0.5\",\"gpu-fraction-container-name\":\"other\"}",
     .problem = REQUEST_SLOT_ALONE},
    {SLOT "\"aliyun.com/gpu-mem\":3", "\"annotations\":{\"gpu-fraction\":\"0.5\"}",
     .problem = REQUEST_MIXED_DIALECTS, .mixed = {DIALECT_GPUSHARE, DIALECT_KAI}},
};

#define READMES (sizeof(readmes) / sizeof(readmes[0]))

/* The names of resources, annotations and variables. */
static const char *const names[] = {
#define QUANTITY(id, resource, kind, unit, meaning) resource,
#define ANNOTATION(id, key, part, meaning) key,
#define VARIABLE(id, variable, kind, unit, meaning) variable,
#include "model/dialects.def"
};

/* Quantities are texts in an API object; the table leaves out their quotation marks. */
static void quote_numbers(const char *limits, struct buf *out) {
    for (bool value = false; *limits; limits++) {
        bool digit = *limits >= '0' && *limits <= '9';
        bool begin = digit && limits[-1] == ':';
        value |= begin;
        if (begin)
            buf_printf(out, "\"");
        if (value && !digit) {
            value = false;
            buf_printf(out, "\"");
        }
        buf_append(out, limits, 1);
        if (value && limits[1] == '\0')
            buf_printf(out, "\"");
    }
}

static void read_pod(const char *text, struct pod *ret) {
    struct json_parser *parser = json_parser_new();
    struct json object;
    struct err err;
    if (json_parse(parser, text, strlen(text), &object, &err) < 0 ||
        pod_parse(object, ret, &err) < 0)
        fail_msg("%s: %s", err.text, text);
    json_parser_free(parser);
}

static void read_readme(const struct readme *r, struct pod *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"%s%s},"
               "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{",
               r->meta ? "," : "", r->meta ? r->meta : "");
    quote_numbers(r->limits, &text);
    buf_printf(&text, "}},\"env\":[%s]}]}}", r->env ? r->env : "");
    read_pod(buf_str(&text), ret);
}

static bool same(const struct container_request *a, const struct container_request *b) {
    return a->cards == (b->cards > 0 ? b->cards : 1) && a->whole == b->whole &&
           a->core == b->core && a->memory == b->memory && a->memory_percent == b->memory_percent &&
           a->tflops == b->tflops && a->memory_floor == b->memory_floor && a->slot == b->slot &&
           a->offline == b->offline && a->dialect == b->dialect && a->replicas == b->replicas &&
           a->as_replica == b->as_replica &&
           a->as_cards == (b->dialect == DIALECT_HAMI && !b->whole);
}

static void test_readmes(void **state) {
    (void) state;
    for (size_t i = 0; i < READMES; i++) {
        const struct readme *r = &readmes[i];
        struct pod pod;
        read_readme(r, &pod);
        const struct container_request *a = &pod.request.containers[0];
        if (pod.problem != r->problem || pod.mixed.one != r->mixed.one ||
            pod.mixed.other != r->mixed.other)
            fail_msg("%s: %#x: %s", r->limits, (unsigned) pod.problem,
                     request_problem_text(pod.problem, pod.mixed));
        if (pod.problem != REQUEST_OK)
            assert_string_equal(pod.problem_container,
                                pod.problem == REQUEST_FRACTION_CONTAINER ? "?" : "main");
        else if (pod.request.n != 1 || !same(a, &r->req) || strcmp(a->container, "main") != 0)
            fail_msg("%s: n %u, cards %u, whole %d, core %u, memory %llu, percent %u, tflops %u, "
                     "floor %llu, slot %d, offline %d, dialect %u, replicas %u, as replica %d",
                     r->limits, pod.request.n, a->cards, a->whole, a->core,
                     (unsigned long long) a->memory, a->memory_percent, a->tflops,
                     (unsigned long long) a->memory_floor, a->slot, a->offline, a->dialect,
                     a->replicas, a->as_replica);
        pod_done(&pod);
    }
}

/* Each resource, annotation and variable of the table is in the request of a README, and each
 * dialect in one that is served. */
static void test_readmes_are_whole(void **state) {
    (void) state;
    bool served[DIALECT_COUNT] = {false};
    for (size_t i = 0; i < READMES; i++)
        if (readmes[i].problem == REQUEST_OK)
            served[readmes[i].req.dialect] = true;
    for (size_t d = 0; d < DIALECT_COUNT; d++)
        if (!served[d])
            fail_msg("readmes: no request of %s", dialects[d].name);
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        char quoted[128];
        bool found = false;
        (void) snprintf(quoted, sizeof(quoted), "\"%s\"", names[n]);
        for (size_t i = 0; i < READMES && !found; i++)
            found = strstr(readmes[i].limits, quoted) ||
                    (readmes[i].meta && strstr(readmes[i].meta, quoted)) ||
                    (readmes[i].env && strstr(readmes[i].env, quoted));
        if (!found)
            fail_msg("readmes: no request by %s", names[n]);
    }
}

/* A dialect has a reader and the annotation that requests, or none of both. */
static void test_annotations_have_readers(void **state) {
    (void) state;
    static const struct {
        enum dialect_id dialect;
        enum annotation_part part;
        const char *key;
    } rows[] = {
#define ANNOTATION(id, key, part, meaning) {DIALECT_##id, ANNOTATION_##part, key},
#include "model/dialects.def"
    };
    bool requests[DIALECT_COUNT] = {false};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!dialects[rows[i].dialect].read_annotations)
            fail_msg("%s: no reader of annotation %s", dialects[rows[i].dialect].name, rows[i].key);
        if (rows[i].part == ANNOTATION_FRACTION || rows[i].part == ANNOTATION_MEMORY)
            requests[rows[i].dialect] = true;
    }
    for (size_t d = 0; d < DIALECT_COUNT; d++)
        if (dialects[d].read_annotations && !requests[d])
            fail_msg("%s: no annotation requests a share", dialects[d].name);
}

/* Nothing asked, though a name of ours is there. */
static void test_nothing(void **state) {
    (void) state;
    static const char *const limits[] = {"\"nvidia.com/gpu\":0", "\"nvidia.com/priority\":1",
                                         "\"nvidia.com/mig-1g.10gb\":1", "\"cpu\":4",
                                         "\"amd.com/gpu\":1"};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct pod pod;
        read_readme(&(struct readme){.limits = limits[i], .env = LIMIT("4096")}, &pod);
        assert_int_equal(pod.problem, REQUEST_OK);
        assert_int_equal(pod.request.n, 0);
        pod_done(&pod);
    }
}

/* Every pair of dialects in one container is refused, and both are named. */
static void test_mixed(void **state) {
    (void) state;
    for (size_t i = 0; i < dialect_quantities_count; i++)
        for (size_t j = 0; j < dialect_quantities_count; j++) {
            const struct resource_line lines[] = {{dialect_quantities[i].name, "1", 1},
                                                  {dialect_quantities[j].name, "1", 1},
                                                  {RESOURCE_SLOT, "1", 1}};
            size_t a = dialect_quantities[i].dialect, b = dialect_quantities[j].dialect;
            struct container_request req = {0};
            struct dialect_pair mixed;
            bool requested;
            if (a == b)
                continue;
            enum request_problem p = dialect_read(lines, 3, &req, &requested, &mixed);
            assert_int_equal(p, REQUEST_MIXED_DIALECTS);
            assert_true(mixed.one == a && mixed.other == b);
            assert_non_null(strstr(request_problem_text(p, mixed), dialects[a].name));
            assert_non_null(strstr(request_problem_text(p, mixed), dialects[b].name));
        }
}

#define MODE_HAS_NO_EFFECT                                                                         \
    "annotation nvidia.com/vgpu-mode has no effect: every share is limited by Aliquot's library; " \
    "MIG and MPS are not chosen by the pod"

/* Annotations without effect are noticed beside those that have one, and all named in one text. */
static void test_unserved(void **state) {
    (void) state;
    static const struct {
        const char *annotations, *text;
    } cases[] = {
        {"\"nvidia.com/use-gputype\":\"A100\"", ""},
        {"\"nvidia.com/use-gputype\":\"A100\",\"nvidia.com/vgpu-mode\":\"mig\"",
         MODE_HAS_NO_EFFECT},
        {"\"scheduling.koordinator.sh/gpu-partition-spec\":\"{}\",\"a/b\":\"c\","
         "\"nvidia.com/vgpu-mode\":\"mig\"",
         MODE_HAS_NO_EFFECT "; annotation scheduling.koordinator.sh/gpu-partition-spec has no "
                            "effect: elasticgpu.io/topology chooses cards with fast links"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char meta[256], text[UNSERVED_TEXT_MAX];
        struct pod pod;
        (void) snprintf(meta, sizeof(meta), "\"annotations\":{%s}", cases[i].annotations);
        read_readme(&(struct readme){.limits = "\"elasticgpu.io/gpu-core\":10", .meta = meta},
                    &pod);
        assert_int_equal(pod.problem, REQUEST_OK);
        dialect_unserved_text(pod.unserved, text);
        assert_string_equal(text, cases[i].text);
        dialect_unserved_text(UINT32_MAX, text);
        assert_true(strlen(text) < UNSERVED_TEXT_MAX - 1); /* that of all rows is not cut */
        pod_done(&pod);
    }
}

static void test_texts(void **state) {
    (void) state;
    static const struct dialect_pair mixed = {DIALECT_NATIVE, DIALECT_KAI};
    for (unsigned p = REQUEST_OK + 1; p < REQUEST_PROBLEMS; p++)
        assert_true(strncmp(request_problem_text(p, mixed), "GPU request is malformed: ", 26) ==
                        0 &&
                    strlen(request_problem_text(p, mixed)) > 40);
}

/* The carrier is added where kubelet would call no plugin otherwise, and only there. */
static void test_carrier(void **state) {
    (void) state;
    static const struct {
        const char *name, *quantity;
        bool needs;
    } cases[] = {
        {RESOURCE_CORE, "10", false},
        {RESOURCE_QGPU_CORE, "10", false},
        {RESOURCE_MEMORY, "1Gi", true},
        {"tke.cloud.tencent.com/qgpu-core-greedy", "10", true},
        {"elasticgpu.com/gpu-core", "10", true},
        {"aliyun.com/gpu-mem", "1", true},
        {"nvidia.com/gpu", "1", true},
        {"nvidia.com/gpu", "0", false},
        {"nvidia.com/gpu", "x", false},
        {"nvidia.com/priority", "1", false},
        {"nvidia.com/mig-1g.10gb", "1", false},
        {RESOURCE_SLOT, "1", false},
        {"cpu", "1", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct resource_line lines[] = {
            {cases[i].name, cases[i].quantity, strlen(cases[i].quantity)}, {RESOURCE_SLOT, "1", 1}};
        assert_int_equal(dialect_needs_slot(lines, 1), cases[i].needs);
        assert_false(dialect_needs_slot(lines, 2));
    }
}

/* A list is compared with every card of the cluster: it is short, whosever annotation it is. */
static void test_long_selection(void **state) {
    (void) state;
    static const char *const keys[] = {"elasticgpu.io/gpu-model", "nvidia.com/use-gputype",
                                       "nvidia.com/nouse-gpuuuid", "volcano.sh/vgpu-use-gpuuuid"};
    static const struct {
        int words, blanks;
        enum request_problem problem;
    } lists[] = {{64, 1, REQUEST_OK}, {65, 1, REQUEST_SELECTION}, {1, 4096, REQUEST_SELECTION}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
            _cleanup_buf_ struct buf meta = BUF_INIT(0);
            struct pod pod;
            buf_printf(&meta, "\"annotations\":{\"%s\":\"a", keys[i]);
            for (int w = 1; w < lists[l].words; w++)
                buf_printf(&meta, ",a%d", w);
            buf_printf(&meta, "%*s\"}", lists[l].blanks, "");
            read_readme(
                &(struct readme){.limits = SLOT "\"nvidia.com/gpu\":1", .meta = buf_str(&meta)},
                &pod);
            assert_int_equal(pod.problem, lists[l].problem);
            pod_done(&pod);
        }
}

/* A KAI pod's other containers get nothing, and the one it names gets all. */
static void test_kai_container(void **state) {
    (void) state;
    static const char text[] =
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\",\"annotations\":{"
        "\"gpu-fraction\":\"0.5\",\"gpu-fraction-container-name\":\"%s\"}},\"spec\":{"
        "\"initContainers\":[{\"name\":\"init\",\"resources\":{\"limits\":{%s}}}],"
        "\"containers\":[{\"name\":\"a\"},{\"name\":\"b\",\"resources\":{\"limits\":{%s}}}]}}";
    static const struct {
        const char *name, *init, *app;
        enum request_problem problem;
        uint16_t ordinal;
    } cases[] = {
        {"init", "\"elasticgpu.io/slot\":\"1\"", "", REQUEST_OK, 0},
        {"b", "", "\"elasticgpu.io/slot\":\"1\"", REQUEST_OK, 1},
        {"c", "", "", REQUEST_FRACTION_CONTAINER, 0},
        {"a", "", "", REQUEST_SLOT_MISSING, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_parser *parser = json_parser_new();
        char body[768];
        struct json object;
        struct pod pod;
        int n = snprintf(body, sizeof(body), text, cases[i].name, cases[i].init, cases[i].app);
        assert_int_equal(json_parse(parser, body, (size_t) n, &object, NULL), 0);
        assert_int_equal(pod_parse(object, &pod, NULL), 0);
        assert_int_equal(pod.problem, cases[i].problem);
        assert_int_equal(pod.request.n, pod.problem == REQUEST_OK);
        if (pod.request.n > 0) {
            assert_string_equal(pod.request.containers[0].container, cases[i].name);
            assert_int_equal(pod.request.containers[0].ordinal, cases[i].ordinal);
        }
        pod_done(&pod);
        json_parser_free(parser);
    }
}

/* ---- what is written back ---- */

static uint64_t eighty(const char *uuid, void *userdata) {
    (void) uuid;
    (void) userdata;
    return 80 * GIB;
}

static const char *annotations_of(const struct container_request *requests, uint32_t n,
                                  struct buf *out) {
    struct assigned_device devices[2][2] = {
        {{.index = 1, .uuid = "GPU-b", .core = 30, .memory = 3 * GIB},
         {.index = 0, .uuid = "GPU-a", .core = 30, .memory = 3 * GIB}},
        {{.index = 0, .uuid = "GPU-a", .core = 0, .memory = 2 * GIB}},
    };
    struct assigned_container containers[2] = {{"a", 2, devices[0]}, {"b", 1, devices[1]}};
    const struct assignment assignment = {
        .node = "node-1", .ncontainers = 2, .containers = containers};
    const struct export_pod pod = {requests, n, &assignment, eighty, NULL, 1700000000123456789u};
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    export_annotate(&pod, &w);
    json_object_end(&w);
    return buf_str(out);
}

static void test_annotations(void **state) {
    (void) state;
    static const struct {
        enum dialect_id dialect;
        const char *text;
    } cases[] = {
        {DIALECT_NATIVE,
         "{\"elasticgpu.io/assumed\":\"true\",\"elasticgpu.io/container-a\":\"1,0\","
         "\"elasticgpu.io/container-b\":\"0\"}"},
        {DIALECT_QGPU, "{}"},
        {DIALECT_GPUSHARE,
         "{\"ALIYUN_COM_GPU_MEM_IDX\":\"1,0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"80\","
         "\"ALIYUN_COM_GPU_MEM_POD\":\"8\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\","
         "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1700000000123456789\","
         "\"ALIYUN_COM_GPU_MEM_ASSIGN_TIME\":\"1700000000123456789\","
         "\"scheduler.framework.gpushare.allocation\":"
         "\"{\\\"0\\\":{\\\"1\\\":3,\\\"0\\\":3},\\\"2\\\":{\\\"0\\\":2}}\"}"},
        {DIALECT_GPU_MANAGER, "{\"tencent.com/predicate-gpu-idx-0\":\"1,0\","
                              "\"tencent.com/predicate-gpu-idx-2\":\"0\","
                              "\"tencent.com/predicate-node\":\"node-1\","
                              "\"tencent.com/predicate-time\":\"1700000000123456789\","
                              "\"tencent.com/gpu-assigned\":\"true\"}"},
        {DIALECT_HAMI, "{\"hami.io/vgpu-node\":\"node-1\",\"hami.io/vgpu-time\":\"1700000000\","
                       "\"hami.io/bind-time\":\"1700000000\",\"hami.io/bind-phase\":\"success\","
                       "\"hami.io/vgpu-devices-to-allocate\":"
                       "\"GPU-b,NVIDIA,3072,30:GPU-a,NVIDIA,3072,30:;;GPU-a,NVIDIA,2048,0:;\","
                       "\"hami.io/vgpu-devices-allocated\":"
                       "\"GPU-b,NVIDIA,3072,30:GPU-a,NVIDIA,3072,30:;;GPU-a,NVIDIA,2048,0:;\"}"},
        {DIALECT_VOLCANO,
         "{\"volcano.sh/vgpu-node\":\"node-1\",\"volcano.sh/vgpu-time\":\"1700000000\","
         "\"volcano.sh/bind-time\":\"1700000000\",\"volcano.sh/bind-phase\":\"success\","
         "\"volcano.sh/devices-to-allocate\":"
         "\"GPU-b,NVIDIA,3072,30:GPU-a,NVIDIA,3072,30:;;GPU-a,NVIDIA,2048,0:\","
         "\"volcano.sh/vgpu-ids-new\":"
         "\"GPU-b,NVIDIA,3072,30:GPU-a,NVIDIA,3072,30:;;GPU-a,NVIDIA,2048,0:\"}"},
        {DIALECT_KOORDINATOR,
         "{\"scheduling.koordinator.sh/device-allocated\":\"{\\\"gpu\\\":["
         "{\\\"minor\\\":1,\\\"resources\\\":{\\\"koordinator.sh/gpu-core\\\":\\\"30\\\","
         "\\\"koordinator.sh/gpu-memory\\\":\\\"3221225472\\\","
         "\\\"koordinator.sh/gpu-memory-ratio\\\":\\\"4\\\"},\\\"id\\\":\\\"GPU-b\\\"},"
         "{\\\"minor\\\":0,\\\"resources\\\":{\\\"koordinator.sh/gpu-core\\\":\\\"30\\\","
         "\\\"koordinator.sh/gpu-memory\\\":\\\"3221225472\\\","
         "\\\"koordinator.sh/gpu-memory-ratio\\\":\\\"4\\\"},\\\"id\\\":\\\"GPU-a\\\"},"
         "{\\\"minor\\\":0,\\\"resources\\\":{\\\"koordinator.sh/gpu-core\\\":\\\"0\\\","
         "\\\"koordinator.sh/gpu-memory\\\":\\\"2147483648\\\","
         "\\\"koordinator.sh/gpu-memory-ratio\\\":\\\"3\\\"},\\\"id\\\":\\\"GPU-a\\\"}]}\"}"},
        {DIALECT_KAI, "{\"received-resource-type\":\"Fraction\"}"},
    };
    bool seen[EXPORT_KINDS] = {false};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        seen[dialects[cases[i].dialect].exported] = true;
        const struct container_request containers[] = {
            {.container = "a", .phase = CONTAINER_APP, .dialect = cases[i].dialect},
            {.container = "b", .phase = CONTAINER_APP, .dialect = cases[i].dialect, .ordinal = 2}};
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        assert_string_equal(annotations_of(containers, 2, &out), cases[i].text);
    }
    for (unsigned kind = 0; kind < EXPORT_KINDS; kind++)
        if (!seen[kind])
            fail_msg("no annotations of export kind %u", kind);
}

/* Two dialects in a pod, each in a container of its own, are both told; a key that is too long for
 * Kubernetes is not written. */
static void test_annotations_beside(void **state) {
    (void) state;
    const struct container_request containers[] = {
        {.container = "a", .phase = CONTAINER_APP, .dialect = DIALECT_ELASTIC_COM},
        {.container = "b", .phase = CONTAINER_APP, .dialect = DIALECT_ELASTIC_GPUSHARE}};
    _cleanup_buf_ struct buf one = BUF_INIT(0), other = BUF_INIT(0);
    assert_string_equal(annotations_of(containers, 2, &one),
                        "{\"elasticgpu.io/assumed\":\"true\",\"elasticgpu.io/container-a\":\"1,0\","
                        "\"elasticgpu.io/container-b\":\"0\"}");
    const struct container_request init[] = {
        {.container = "a", .phase = CONTAINER_INIT, .dialect = DIALECT_GPUSHARE}};
    _cleanup_buf_ struct buf none = BUF_INIT(0);
    assert_string_equal(annotations_of(init, 1, &none), "{}");
    struct assigned_device device = {.uuid = "GPU-a", .memory = GIB};
    struct assigned_container c = {.ndevices = 1, .devices = &device};
    struct container_request req = {.phase = CONTAINER_APP};
    memset(c.name, 'x', 60);
    memset(req.container, 'x', 60);
    const struct export_pod pod = {
        &req,   1,    &(struct assignment){.node = "n", .ncontainers = 1, .containers = &c},
        eighty, NULL, 0};
    struct json_writer w = {.out = &other};
    json_object_begin(&w, NULL);
    export_annotate(&pod, &w);
    json_object_end(&w);
    assert_string_equal(buf_str(&other), "{\"elasticgpu.io/assumed\":\"true\"}");
}

static int collect(const char *variable, void *userdata) {
    buf_printf(userdata, "%s ", variable);
    return 0;
}

static void test_environment(void **state) {
    (void) state;
    const struct export_part parts[] = {{1, 30, 3 * GIB, 5 * GIB, 80 * GIB},
                                        {0, 30, 3 * GIB, 3 * GIB, 80 * GIB}};
    static const char *const want[EXPORT_KINDS] = {
        [EXPORT_NONE] = "",
        [EXPORT_ELASTIC] = "",
        [EXPORT_GPUSHARE] = "ALIYUN_COM_GPU_MEM_IDX=1 ALIYUN_COM_GPU_MEM_POD=8 "
                            "ALIYUN_COM_GPU_MEM_CONTAINER=6 ALIYUN_COM_GPU_MEM_DEV=80 ",
        [EXPORT_GPU_MANAGER] = "",
        [EXPORT_HAMI] = "CUDA_DEVICE_MEMORY_LIMIT_0=3072m CUDA_DEVICE_MEMORY_LIMIT_1=3072m "
                        "CUDA_DEVICE_SM_LIMIT=30 ",
        [EXPORT_KOORDINATOR] = "",
        [EXPORT_KAI] = "GPU_PORTION=0.30 ",
    };
    for (unsigned kind = 0; kind < EXPORT_KINDS; kind++) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        if (!want[kind] || !export_kind_name(kind))
            fail_msg("no environment or no name of export kind %u", kind);
        assert_int_equal(export_env(kind, parts, 2, collect, &out), 0);
        assert_string_equal(buf_str(&out), want[kind]);
        assert_int_equal(export_kind_find(export_kind_name(kind)), kind);
        buf_reset(&out);
        assert_int_equal(export_env(kind, parts, 0, collect, &out), 0);
        assert_string_equal(buf_str(&out), "");
    }
    assert_int_equal(export_kind_find("unheard of"), EXPORT_NONE);
    assert_int_equal(export_kind_find(NULL), EXPORT_NONE);
}

/* The manifests that repeat the names have all of them. */
static void test_manifests(void **state) {
    (void) state;
    static char text[65536];
    FILE *file = fopen(SOURCE_ROOT "/deploy/base/kube-scheduler-configuration.yaml", "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void) fclose(file);
    for (size_t i = 0; i < dialect_quantities_count; i++) {
        char line[128];
        const char *name = dialect_quantities[i].name;
        /* The agent publishes it for gpushare's tools, so kubelet counts it. */
        bool counted = strcmp(name, "aliyun.com/gpu-count") == 0;
        (void) snprintf(line, sizeof(line), "- name: %s\n%s", name,
                        counted ? "" : "        ignoredByScheduler: true\n");
        if (!strstr(text, line))
            fail_msg("kube-scheduler-configuration.yaml: no %s", line);
    }
    /* Another project's scheduler may still run: its pods are taken over only by who says so. */
    const char *first = strstr(text, "\n  - schedulerName: default-scheduler\n");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\n  - schedulerName: "));
    assert_non_null(strstr(first, "\n  # - schedulerName: volcano\n"));
}

/* The last test: what is left stays left. */
static void test_left_to_others(void **state) {
    (void) state;
    static const struct {
        const char *names, *why;
    } bad[] = {
        {"nvidia.com/vgpu-1", "is no resource that Aliquot serves"},
        {"elasticgpu.io/slot", "is no resource that Aliquot serves"},
        {"nvidia.com/gpu, gpu-fraction", "is no resource that Aliquot serves"},
        {",", "is no resource that Aliquot serves"},
        {"elasticgpu.io/gpu-core", "cannot be left to others"},
        {"volcano.sh/vgpu-number,tke.cloud.tencent.com/qgpu-memory", "cannot be left to others"},
    };
    struct err err;
    struct pod pod;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err.text[0] = '\0';
        assert_int_equal(dialect_leave(bad[i].names, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i].why));
    }
    assert_true(dialect_knows("volcano.sh/vgpu-number")); /* nothing of what was refused */
    assert_int_equal(dialect_leave("", &err), 0);
    assert_int_equal(dialect_leave("nvidia.com/mig-1g.5gb", &err), 0);
    assert_true(dialect_knows("nvidia.com/mig-1g.5gb")); /* of whichever plugin */
    assert_false(dialect_is_left_name("nvidia.com/mig-1g.5gb"));
    assert_false(dialect_is_left_name("nvidia.com/gpu"));
    assert_int_equal(dialect_leave("nvidia.com/gpu,gpu-fraction,aliyun.com/gpu-count", &err), 0);
    assert_true(dialect_is_left_name("nvidia.com/gpu"));
    for (size_t i = 0; i < dialect_quantities_count; i++)
        assert_int_equal(dialect_knows(dialect_quantities[i].name),
                         dialect_quantities[i].dialect != DIALECT_GPUSHARE &&
                             dialect_quantities[i].dialect != DIALECT_HAMI);
    /* Beside a share of ours, what others serve is theirs: in the pod and in one container. */
    read_pod(
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\",\"annotations\":{"
        "\"gpu-fraction\":\"0.5\"},\"labels\":{\"aliyun.com/gpu-count\":\"2\"}},\"spec\":{"
        "\"containers\":[{\"name\":\"theirs\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\","
        "\"nvidia.com/gpumem\":\"many\"}}},{\"name\":\"ours\",\"resources\":{\"limits\":{"
        "\"elasticgpu.io/gpu-core\":\"10\",\"aliyun.com/gpu-mem\":\"3\"}}}]}}",
        &pod);
    assert_int_equal(pod.problem, REQUEST_OK);
    assert_int_equal(pod.request.n, 1);
    assert_string_equal(pod.request.containers[0].container, "ours");
    assert_int_equal(pod.request.containers[0].memory, 0);
    pod_done(&pod);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readmes),
        cmocka_unit_test(test_readmes_are_whole),
        cmocka_unit_test(test_annotations_have_readers),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_unserved),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_carrier),
        cmocka_unit_test(test_long_selection),
        cmocka_unit_test(test_kai_container),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_annotations),
        cmocka_unit_test(test_annotations_beside),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
