/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/dialect.h"

#include <errno.h>
#include <string.h>

#include "kube/quantity.h"

#define CORE_PER_CARD UINT64_C(100)
#define CARDS_MAX UINT64_C(64)

/* One row per family of names. The rest of the scheduler knows no foreign name; the agent offers
 * the compute resources (agent/resource.c), and deploy/ names all of them. */
const struct dialect dialects[] = {
    {"native", RESOURCE_CORE, RESOURCE_MEMORY, 1},
    {"qGPU", "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
     (uint64_t) 1 << 30},
};
const size_t dialects_count = sizeof(dialects) / sizeof(dialects[0]);

/* What the lines of one container say, before it is judged. */
struct reading {
    const struct dialect *dialect;
    bool has_core, has_memory;
    uint64_t core, memory, slot;
};

static const struct dialect *find_dialect(const char *name, bool *ret_is_core) {
    for (size_t i = 0; i < dialects_count; i++) {
        bool is_core = strcmp(name, dialects[i].core) == 0;
        if (is_core || strcmp(name, dialects[i].memory) == 0) {
            *ret_is_core = is_core;
            return &dialects[i];
        }
    }
    return NULL;
}

bool dialect_knows(const char *name) {
    bool is_core;
    return strcmp(name, RESOURCE_SLOT) == 0 || find_dialect(name, &is_core) != NULL;
}

/* A quantity too large to represent is not malformed: it is more than anything has. */
static enum request_problem read_number(const struct resource_line *line, uint64_t *ret) {
    int r = quantity_parse(line->quantity, line->quantity_len, ret);
    if (r == -ERANGE) {
        *ret = UINT64_MAX;
        return REQUEST_OK;
    }
    return r < 0 ? REQUEST_NOT_A_NUMBER : REQUEST_OK;
}

static enum request_problem read_line(const struct resource_line *line, struct reading *r) {
    if (strcmp(line->name, RESOURCE_SLOT) == 0)
        return read_number(line, &r->slot);
    bool is_core;
    const struct dialect *d = find_dialect(line->name, &is_core);
    if (!d)
        return REQUEST_OK;
    if (r->dialect && r->dialect != d)
        return REQUEST_MIXED_DIALECTS;
    r->dialect = d;
    if (is_core) {
        r->has_core = true;
        return read_number(line, &r->core);
    }
    r->has_memory = true;
    enum request_problem p = read_number(line, &r->memory);
    if (p != REQUEST_OK)
        return p;
    if (__builtin_mul_overflow(r->memory, d->memory_unit, &r->memory) || r->memory > INT64_MAX)
        return REQUEST_MEMORY_RANGE;
    return REQUEST_OK;
}

static enum request_problem judge(const struct reading *r, struct gpu_ask *ret) {
    if (r->slot > 1)
        return REQUEST_SLOT_COUNT;
    if (!r->dialect)
        return REQUEST_SLOT_ALONE;
    if (r->has_core && r->core == 0)
        return REQUEST_CORE_ZERO;
    if (r->core > CORE_PER_CARD * CARDS_MAX)
        return REQUEST_CORE_RANGE;
    if (r->core >= CORE_PER_CARD) {
        if (r->core % CORE_PER_CARD != 0)
            return REQUEST_CORE_STEP;
        ret->cards = (uint32_t) (r->core / CORE_PER_CARD);
        ret->whole = true;
        ret->memory_floor = r->memory;
        return REQUEST_OK;
    }
    if (r->has_memory && r->memory == 0)
        return REQUEST_MEMORY_ZERO;
    if (!r->has_core && r->slot == 0)
        return REQUEST_SLOT_MISSING;
    ret->cards = 1;
    ret->core = (uint32_t) r->core;
    ret->memory = r->memory;
    ret->slot = !r->has_core;
    return REQUEST_OK;
}

enum request_problem dialect_read(const struct resource_line *lines, size_t n, struct gpu_ask *ret,
                                  bool *ret_asks) {
    struct reading reading = {0};
    *ret_asks = false;
    for (size_t i = 0; i < n; i++) {
        enum request_problem p = read_line(&lines[i], &reading);
        if (p != REQUEST_OK)
            return p;
    }
    if (!reading.dialect && reading.slot == 0)
        return REQUEST_OK;
    struct gpu_ask ask = {0};
    enum request_problem p = judge(&reading, &ask);
    if (p != REQUEST_OK)
        return p;
    ret->cards = ask.cards;
    ret->whole = ask.whole;
    ret->core = ask.core;
    ret->memory = ask.memory;
    ret->memory_floor = ask.memory_floor;
    ret->slot = ask.slot;
    *ret_asks = true;
    return REQUEST_OK;
}

const char *request_problem_text(enum request_problem problem) {
#define MALFORMED "GPU request is malformed: "
    static const char *const texts[REQUEST_PROBLEMS] = {
        [REQUEST_OK] = "GPU request is fine",
        [REQUEST_CORE_STEP] = MALFORMED "gpu-core must be below 100 or a multiple of 100",
        [REQUEST_CORE_ZERO] =
            MALFORMED "gpu-core must be more than 0 (leave it out to ask for memory only)",
        [REQUEST_CORE_RANGE] = MALFORMED "gpu-core is more than 64 whole GPUs",
        [REQUEST_MEMORY_ZERO] =
            MALFORMED "gpu-memory must be more than 0 (leave it out to get it by gpu-core)",
        [REQUEST_MEMORY_RANGE] = MALFORMED "gpu-memory is too large a number",
        [REQUEST_NOT_A_NUMBER] = MALFORMED "a GPU resource is not a whole number",
        [REQUEST_MIXED_DIALECTS] = MALFORMED "one container uses GPU resource names of two kinds",
        [REQUEST_SLOT_ALONE] =
            MALFORMED "elasticgpu.io/slot is set by Aliquot itself; ask for gpu-core or gpu-memory",
        [REQUEST_SLOT_MISSING] = MALFORMED
        "gpu-memory alone needs elasticgpu.io/slot: 1, which Aliquot's admission policy adds",
        [REQUEST_SLOT_COUNT] = MALFORMED "elasticgpu.io/slot must be 1",
        [REQUEST_TOO_MANY] = MALFORMED "more than 32 containers ask for GPU",
        [REQUEST_SCALING] = MALFORMED
        "annotation elasticgpu.io/memory-scaling is not a number from 1 to 16, such as 1.5",
    };
    return texts[problem < REQUEST_PROBLEMS ? problem : REQUEST_NOT_A_NUMBER];
#undef MALFORMED
}
