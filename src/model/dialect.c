/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dialect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "base/units.h"
#include "model/mig_strategy.h"
#include "model/placement_policies.h"
#include "model/quantity.h"

#define PERCENT UINT64_C(100)
#define CARDS_MAX UINT64_C(64)
#define TFLOPS_MAX UINT64_C(1000000)

enum { OFFERED = 1, ZERO_IS_UNSET = 2, MEMORY_IS_ALL = 4, DIVIDES = 8, AS_REPLICAS = 16 };

static enum request_problem read_kai(const char *const text[ANNOTATION_PARTS],
                                     struct container_request *ret);

const struct dialect dialects[DIALECT_COUNT] = {
#define DIALECT(id, title, project, flags, tools, prefix_, reader)                                 \
    [DIALECT_##id] = {.name = title,                                                               \
                      .offered = ((flags) &OFFERED) != 0,                                          \
                      .zero_is_unset = ((flags) &ZERO_IS_UNSET) != 0,                              \
                      .memory_is_all = ((flags) &MEMORY_IS_ALL) != 0,                              \
                      .divides = ((flags) &DIVIDES) != 0,                                          \
                      .replicas = ((flags) &AS_REPLICAS) != 0,                                     \
                      .exported = EXPORT_##tools,                                                  \
                      .prefix = prefix_,                                                           \
                      .read_annotations = reader},
#include "model/dialects.def"
};

const struct dialect_quantity dialect_quantities[] = {
#define QUANTITY(id, resource, kind, unit, meaning) {DIALECT_##id, resource, QUANTITY_##kind, unit},
#include "model/dialects.def"
};
const size_t dialect_quantities_count = sizeof(dialect_quantities) / sizeof(dialect_quantities[0]);

static const struct dialect_quantity variables[] = {
#define VARIABLE(id, variable, kind, unit, meaning) {DIALECT_##id, variable, QUANTITY_##kind, unit},
#include "model/dialects.def"
};
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static const struct {
    enum dialect_id dialect;
    enum annotation_part part;
    const char *key;
} annotations[] = {
#define ANNOTATION(id, key, part, meaning) {DIALECT_##id, ANNOTATION_##part, key},
#include "model/dialects.def"
};
#define ANNOTATIONS (sizeof(annotations) / sizeof(annotations[0]))

/* What the lines of one container say, before it is judged. */
struct reading {
    const struct dialect *dialect; /* NULL: none of ours */
    const struct dialect *other;   /* of the line that is of another one; NULL: there is none */
    bool has[QUANTITY_KINDS];
    uint64_t value[QUANTITY_KINDS];
    uint64_t memory_unit; /* bytes that 1 of QUANTITY_MEMORY stands for */
    uint64_t slot;
    bool mig; /* there is a name of whole MIG instances */
};

/* ---- rows that another plugin serves ---- */

static bool left[DIALECT_COUNT];

bool dialect_is_left(size_t row) {
    return left[row];
}

/* The row of the name; a row without resources is found by its fraction. DIALECT_COUNT: none. */
static size_t find_row(const char *name) {
    for (size_t i = 0; i < dialect_quantities_count; i++)
        if (strcmp(name, dialect_quantities[i].name) == 0)
            return dialect_quantities[i].dialect;
    for (size_t i = 0; i < ANNOTATIONS; i++)
        if (annotations[i].part == ANNOTATION_FRACTION && strcmp(name, annotations[i].key) == 0)
            return annotations[i].dialect;
    return DIALECT_COUNT;
}

bool dialect_is_left_name(const char *name) {
    size_t row = find_row(name);
    return row < DIALECT_COUNT && left[row];
}

/* MIG instances are no dialect: kube-scheduler and kubelet count them. */
static bool is_mig(const char *name) {
    return strncmp(name, MIG_RESOURCE_PREFIX, strlen(MIG_RESOURCE_PREFIX)) == 0;
}

int dialect_leave(const char *names, struct err *err) {
    bool rows[DIALECT_COUNT] = {false};
    const char *item;
    size_t len;
    while (text_item(&names, &item, &len)) {
        char name[128];
        (void) snprintf(name, sizeof(name), "%.*s", (int) (len < sizeof(name) ? len : 0), item);
        if (is_mig(name))
            continue; /* the agent's own matter */
        size_t row = find_row(name);
        if (row == DIALECT_COUNT)
            return err_set(err, EINVAL,
                           "%.*s is no resource that Aliquot serves: give names such as "
                           "nvidia.com/gpu, with commas between (docs/dialects.md has all)",
                           len < 100 ? (int) len : 100, item);
        if (dialects[row].offered)
            return err_set(err, EINVAL, "%s cannot be left to others: Aliquot's agents offer it",
                           name);
        rows[row] = true;
    }
    for (size_t i = 0; i < DIALECT_COUNT; i++)
        left[i] |= rows[i];
    return 0;
}

/* ---- lines ---- */

static const struct dialect_quantity *find_quantity(const char *name) {
    for (size_t i = 0; i < dialect_quantities_count; i++)
        if (strcmp(name, dialect_quantities[i].name) == 0)
            return left[dialect_quantities[i].dialect] ? NULL : &dialect_quantities[i];
    for (size_t i = 0; i < VARIABLES; i++)
        if (strcmp(name, variables[i].name) == 0)
            return left[variables[i].dialect] ? NULL : &variables[i];
    return NULL;
}

bool dialect_knows(const char *name) {
    return strcmp(name, RESOURCE_SLOT) == 0 || find_quantity(name) != NULL || is_mig(name);
}

bool dialect_gives_replicas(const char *name) {
    const struct dialect_quantity *q = find_quantity(name);
    return q && (q->kind == QUANTITY_REPLICAS ||
                 (q->kind == QUANTITY_CARDS && dialects[q->dialect].replicas));
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

static enum dialect_id dialect_row(const struct dialect *d) {
    return (enum dialect_id)(d - dialects);
}

static enum request_problem read_line(const struct resource_line *line, struct reading *r) {
    if (strcmp(line->name, RESOURCE_SLOT) == 0)
        return read_number(line, &r->slot);
    const struct dialect_quantity *q = find_quantity(line->name);
    if (!q) {
        r->mig |= is_mig(line->name);
        return REQUEST_OK;
    }
    const struct dialect *d = &dialects[q->dialect];
    if (r->dialect && r->dialect != d) {
        r->other = d;
        return REQUEST_MIXED_DIALECTS;
    }
    r->dialect = d;
    uint64_t value;
    enum request_problem p = read_number(line, &value);
    if (p != REQUEST_OK || (value == 0 && d->zero_is_unset && q->kind != QUANTITY_PRIORITY))
        return p;
    if (r->has[q->kind])
        return REQUEST_TWICE;
    if (__builtin_mul_overflow(value, q->unit, &value))
        value = UINT64_MAX;
    r->has[q->kind] = true;
    r->value[q->kind] = value;
    if (q->kind == QUANTITY_MEMORY)
        r->memory_unit = q->unit;
    return REQUEST_OK;
}

/* Divides the total amounts of a dialect that spreads them over several cards. */
static void divide(struct reading *r) {
    uint64_t core = r->value[QUANTITY_CORE], cards = core / PERCENT + 1;
    if (!r->dialect->divides || core <= PERCENT || core % PERCENT == 0 || cards > CARDS_MAX)
        return;
    r->has[QUANTITY_SPLIT] = true;
    r->value[QUANTITY_SPLIT] = cards;
    r->value[QUANTITY_CORE] -= core % cards;
    if (r->has[QUANTITY_MEMORY])
        r->value[QUANTITY_MEMORY] -= r->value[QUANTITY_MEMORY] % (cards * r->memory_unit);
}

/* Replaces the kinds that combine two others by these. */
static enum request_problem normalise(struct reading *r) {
    if (r->has[QUANTITY_BOTH]) {
        if (r->has[QUANTITY_CORE] || r->has[QUANTITY_MEMORY] || r->has[QUANTITY_MEMORY_RATIO])
            return REQUEST_TWICE;
        r->has[QUANTITY_CORE] = r->has[QUANTITY_MEMORY_RATIO] = true;
        r->value[QUANTITY_CORE] = r->value[QUANTITY_MEMORY_RATIO] = r->value[QUANTITY_BOTH];
    }
    if (r->has[QUANTITY_MEMORY] && r->has[QUANTITY_MEMORY_RATIO])
        return REQUEST_TWICE;
    return REQUEST_OK;
}

static enum request_problem check_ranges(const struct reading *r) {
    const uint64_t *value = r->value;
    if ((r->has[QUANTITY_CORE] && value[QUANTITY_CORE] == 0) ||
        (r->has[QUANTITY_CORE_OFFLINE] && value[QUANTITY_CORE_OFFLINE] == 0) ||
        (r->has[QUANTITY_CORE_EACH] && value[QUANTITY_CORE_EACH] == 0))
        return REQUEST_CORE_ZERO;
    if (value[QUANTITY_CORE] > PERCENT * CARDS_MAX)
        return REQUEST_CORE_RANGE;
    if (value[QUANTITY_CORE_EACH] > PERCENT || value[QUANTITY_CORE_OFFLINE] > PERCENT)
        return REQUEST_CORE_EACH_RANGE;
    if ((r->has[QUANTITY_CARDS] && value[QUANTITY_CARDS] == 0) ||
        (r->has[QUANTITY_SPLIT] && value[QUANTITY_SPLIT] == 0) ||
        value[QUANTITY_CARDS] > CARDS_MAX || value[QUANTITY_SPLIT] > CARDS_MAX)
        return REQUEST_CARDS_RANGE;
    if ((r->has[QUANTITY_MEMORY_PERCENT] && value[QUANTITY_MEMORY_PERCENT] == 0) ||
        (r->has[QUANTITY_MEMORY_RATIO] && value[QUANTITY_MEMORY_RATIO] == 0) ||
        value[QUANTITY_MEMORY_PERCENT] > PERCENT ||
        value[QUANTITY_MEMORY_RATIO] > PERCENT * CARDS_MAX)
        return REQUEST_PERCENT_RANGE;
    if ((r->has[QUANTITY_TFLOPS] && value[QUANTITY_TFLOPS] == 0) ||
        value[QUANTITY_TFLOPS] > TFLOPS_MAX)
        return REQUEST_TFLOPS_RANGE;
    if (r->has[QUANTITY_REPLICAS] &&
        (value[QUANTITY_REPLICAS] == 0 || value[QUANTITY_REPLICAS] > REPLICAS_MAX))
        return REQUEST_REPLICAS_RANGE;
    return value[QUANTITY_MEMORY] > INT64_MAX ? REQUEST_MEMORY_RANGE : REQUEST_OK;
}

/* How many cards; with it the compute of each. */
static enum request_problem judge_cards(const struct reading *r, struct container_request *ret) {
    const bool counted = r->has[QUANTITY_CARDS], split = r->has[QUANTITY_SPLIT];
    uint64_t core = r->value[QUANTITY_CORE], ratio = r->value[QUANTITY_MEMORY_RATIO];
    uint64_t total = core > ratio ? core : ratio, cards = total > PERCENT ? total / PERCENT : 1;
    if (counted || split)
        cards = r->value[counted ? QUANTITY_CARDS : QUANTITY_SPLIT];
    ret->cards = (uint32_t) cards;
    ret->tflops = (uint32_t) r->value[QUANTITY_TFLOPS];
    if (r->has[QUANTITY_CORE_EACH])
        ret->core = (uint32_t) r->value[QUANTITY_CORE_EACH];
    else if (core == PERCENT * cards)
        ret->core = PERCENT;
    else if (split && (core % cards != 0 || core > PERCENT * cards))
        return REQUEST_SPLIT;
    else if (!counted && !split && cards > 1 && core > 0 && core < PERCENT)
        return REQUEST_SPLIT; /* a part of one card, and the memory of several */
    else if (!split && core >= PERCENT)
        return counted && core % PERCENT == 0 ? REQUEST_SPLIT : REQUEST_CORE_STEP;
    else
        ret->core = (uint32_t) (split ? core / cards : core);
    return ret->tflops > 0 && ret->core > 0 ? REQUEST_TWICE : REQUEST_OK;
}

/* The memory of each card. An amount takes precedence over a percentage. */
static enum request_problem judge_memory(const struct reading *r, struct container_request *ret) {
    uint64_t memory = r->value[QUANTITY_MEMORY], ratio = r->value[QUANTITY_MEMORY_RATIO];
    if (ratio % ret->cards != 0 || ratio > PERCENT * ret->cards ||
        (r->has[QUANTITY_SPLIT] && memory % ret->cards != 0))
        return REQUEST_SPLIT;
    ret->memory = r->has[QUANTITY_SPLIT] ? memory / ret->cards : memory;
    if (memory == 0)
        ret->memory_percent =
            (uint32_t) (r->has[QUANTITY_MEMORY_RATIO] ? ratio / ret->cards
                                                      : r->value[QUANTITY_MEMORY_PERCENT]);
    return REQUEST_OK;
}

/* Cards are whole when all of their compute is asked and none or all of their memory, or nothing
 * but their number. */
static bool is_whole(const struct reading *r, const struct container_request *req) {
    bool none = req->memory == 0 && req->memory_percent == 0;
    bool all = none || req->memory_percent == PERCENT;
    if (req->core == PERCENT)
        return all || (r->has[QUANTITY_CORE] && req->memory > 0 && !r->has[QUANTITY_SPLIT]);
    return none && req->core == 0 && req->tflops == 0 && r->has[QUANTITY_CARDS];
}

static enum request_problem judge_share(const struct reading *r, struct container_request *ret) {
    if (r->has[QUANTITY_MEMORY] && ret->memory == 0)
        return REQUEST_MEMORY_ZERO;
    if (r->has[QUANTITY_MEMORY] && ret->memory < MIB)
        return REQUEST_MEMORY_SMALL;
    if (ret->memory == 0 && ret->memory_percent == 0 && r->dialect->memory_is_all)
        ret->memory_percent = PERCENT;
    if (ret->memory == 0 && ret->memory_percent == 0 && r->has[QUANTITY_CORE_OFFLINE])
        ret->memory_percent = (uint32_t) r->value[QUANTITY_CORE_OFFLINE];
    ret->replicas = (uint32_t) r->value[QUANTITY_REPLICAS];
    ret->as_cards = r->dialect->replicas;
    ret->slot = ret->core == 0 && ret->tflops == 0;
    return ret->slot && ret->memory == 0 && ret->memory_percent == 0 && ret->replicas == 0
               ? REQUEST_SPLIT
               : REQUEST_OK;
}

/* Charts write a zero amount of memory, and nothing else, for a container without a GPU. */
static bool requests_anything(const struct reading *r) {
    for (size_t kind = 0; kind < QUANTITY_KINDS; kind++)
        if (r->has[kind] && kind != QUANTITY_PRIORITY &&
            !(kind == QUANTITY_MEMORY && r->value[kind] == 0 && r->slot == 0))
            return true;
    return false;
}

static enum request_problem judge_reading(struct reading *r, struct container_request *ret) {
    if (r->mig)
        return REQUEST_MIG;
    if (r->slot > 1)
        return REQUEST_SLOT_COUNT;
    if (!requests_anything(r))
        return REQUEST_SLOT_ALONE;
    divide(r);
    enum request_problem p = normalise(r);
    if (p == REQUEST_OK)
        p = check_ranges(r);
    if (p == REQUEST_OK)
        p = judge_cards(r, ret);
    if (p == REQUEST_OK)
        p = judge_memory(r, ret);
    if (p != REQUEST_OK)
        return p;
    if (r->slot == 0 && !(r->dialect->offered && r->has[QUANTITY_CORE]))
        return REQUEST_SLOT_MISSING;
    ret->dialect = dialect_row(r->dialect);
    ret->offline = r->has[QUANTITY_CORE_OFFLINE] || r->value[QUANTITY_PRIORITY] > 0;
    if (!is_whole(r, ret))
        return judge_share(r, ret);
    ret->whole = true;
    ret->as_replica = r->dialect->replicas && !r->has[QUANTITY_CORE_EACH] &&
                      !r->has[QUANTITY_MEMORY] && !r->has[QUANTITY_MEMORY_PERCENT];
    ret->memory_floor = r->value[QUANTITY_MEMORY];
    ret->memory = 0;
    ret->core = ret->memory_percent = 0;
    return REQUEST_OK;
}

static enum request_problem read_lines(const struct resource_line *lines, size_t n,
                                       struct reading *ret) {
    for (size_t i = 0; i < n; i++) {
        enum request_problem p = read_line(&lines[i], ret);
        if (p != REQUEST_OK)
            return p;
    }
    return REQUEST_OK;
}

enum request_problem dialect_read(const struct resource_line *lines, size_t n,
                                  struct container_request *ret, bool *ret_requested,
                                  struct dialect_pair *ret_mixed) {
    struct reading reading = {0};
    struct container_request req = {0};
    *ret_requested = false;
    enum request_problem p = read_lines(lines, n, &reading);
    if (p == REQUEST_MIXED_DIALECTS)
        *ret_mixed =
            (struct dialect_pair){dialect_row(reading.dialect), dialect_row(reading.other)};
    if (p != REQUEST_OK || (!requests_anything(&reading) && reading.slot == 0))
        return p;
    p = judge_reading(&reading, &req);
    if (p != REQUEST_OK)
        return p;
    memcpy(req.container, ret->container, sizeof(req.container));
    req.phase = ret->phase;
    req.ordinal = ret->ordinal;
    req.scaling = ret->scaling;
    *ret = req;
    *ret_requested = true;
    return REQUEST_OK;
}

bool dialect_needs_slot(const struct resource_line *lines, size_t n) {
    struct reading r = {0};
    return read_lines(lines, n, &r) == REQUEST_OK && !r.mig && r.slot == 0 &&
           requests_anything(&r) && !(r.dialect->offered && r.has[QUANTITY_CORE]);
}

const char *dialect_label(const struct resource_line *lines, size_t n) {
    static const char *const label = "aliyun.com/gpu-count";
    const struct dialect_quantity *said = find_quantity(label), *q;
    bool applies = false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(lines[i].name, label) == 0)
            return NULL;
        applies |= said && (q = find_quantity(lines[i].name)) && q->dialect == said->dialect;
    }
    return applies ? label : NULL;
}

const char *dialect_variable(const struct resource_line *lines, size_t n) {
    struct reading r = {0};
    if (read_lines(lines, n, &r) != REQUEST_OK || !r.dialect || !requests_anything(&r) ||
        r.has[QUANTITY_MEMORY] || r.has[QUANTITY_MEMORY_PERCENT] || r.has[QUANTITY_MEMORY_RATIO])
        return NULL;
    for (size_t i = 0; i < VARIABLES; i++)
        if (&dialects[variables[i].dialect] == r.dialect)
            return variables[i].name;
    return NULL;
}

/* "0.5" or ".5" in percent, rounded down so that equal parts fit; 0: not more than 0 and at most 1.
 */
static uint64_t read_fraction(const char *text) {
    uint64_t whole = 0, percent = 0;
    size_t digits = 0;
    for (; *text >= '0' && *text <= '9' && digits < 3; text++, digits++)
        whole = whole * 10 + (uint64_t) (*text - '0');
    if (digits == 0 && *text != '.')
        return 0;
    bool rest = false;
    if (*text == '.') {
        uint64_t weight = 10;
        for (text++; *text >= '0' && *text <= '9'; text++, weight /= 10) {
            percent += (uint64_t) (*text - '0') * weight;
            rest |= *text != '0';
        }
    }
    percent += whole * PERCENT;
    if (*text != '\0' || percent > PERCENT || (percent == PERCENT && rest))
        return 0;
    return percent == 0 && rest ? 1 : percent;
}

static bool read_annotation(const char *text, uint64_t max, uint64_t *ret) {
    return !text || (quantity_parse(text, strlen(text), ret) == 0 && *ret > 0 && *ret <= max);
}

static enum request_problem read_kai(const char *const text[ANNOTATION_PARTS],
                                     struct container_request *ret) {
    const char *fraction = text[ANNOTATION_FRACTION], *memory = text[ANNOTATION_MEMORY];
    uint64_t percent = fraction ? read_fraction(fraction) : 0, mib = 0, cards = 1;
    if (!fraction == !memory || (fraction && percent == 0) ||
        !read_annotation(memory, INT64_MAX / MIB, &mib) ||
        !read_annotation(text[ANNOTATION_DEVICES], CARDS_MAX, &cards))
        return REQUEST_FRACTION;
    ret->cards = (uint32_t) cards;
    ret->whole = percent == PERCENT;
    ret->core = ret->memory_percent = ret->whole ? 0 : (uint32_t) percent;
    ret->memory = mib * MIB;
    ret->slot = memory != NULL;
    return REQUEST_OK;
}

bool dialect_find_annotated(annotation_value value, const void *of, struct annotated_request *ret) {
    *ret = (struct annotated_request){.dialect = DIALECT_COUNT};
    for (size_t i = 0; i < ANNOTATIONS && ret->dialect == DIALECT_COUNT; i++)
        if (annotations[i].part <= ANNOTATION_MEMORY && !left[annotations[i].dialect] &&
            value(of, annotations[i].key))
            ret->dialect = annotations[i].dialect;
    for (size_t i = 0; i < ANNOTATIONS; i++)
        if (annotations[i].dialect == ret->dialect)
            ret->text[annotations[i].part] = value(of, annotations[i].key);
    return ret->dialect != DIALECT_COUNT;
}

enum request_problem dialect_read_annotated(const struct annotated_request *request,
                                            struct container_request *ret) {
    ret->dialect = request->dialect;
    return dialects[request->dialect].read_annotations(request->text, ret);
}

static const struct {
    const char *key;
    const char *reason; /* and what has an effect in its place */
} unserved[] = {
#define UNSERVED(key, project, reason) {key, reason},
#include "model/dialects.def"
};
#define UNSERVED_ROWS (sizeof(unserved) / sizeof(unserved[0]))

_Static_assert(UNSERVED_ROWS <= 32, "rows as bits");

uint32_t dialect_unserved(const char *key) {
    for (size_t i = 0; i < UNSERVED_ROWS; i++)
        if (strcmp(key, unserved[i].key) == 0)
            return UINT32_C(1) << i;
    return 0;
}

void dialect_unserved_text(uint32_t set, char ret[static UNSERVED_TEXT_MAX]) {
    size_t len = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < UNSERVED_ROWS && len < UNSERVED_TEXT_MAX; i++)
        if (set >> i & 1)
            len += (size_t) snprintf(ret + len, UNSERVED_TEXT_MAX - len,
                                     "%sannotation %s has no effect: %s", len ? "; " : "",
                                     unserved[i].key, unserved[i].reason);
}

static const char *mixed_text(struct dialect_pair mixed) {
    static _Thread_local char text[256];
    (void) snprintf(text, sizeof(text),
                    "GPU request is malformed: one container uses GPU resource names of two kinds: "
                    "%s and %s",
                    dialects[mixed.one].name, dialects[mixed.other].name);
    return text;
}

const char *request_problem_text(enum request_problem problem, struct dialect_pair mixed) {
#define MALFORMED "GPU request is malformed: "
    static const char *const texts[REQUEST_PROBLEMS] = {
        [REQUEST_OK] = "GPU request is fine",
        [REQUEST_CORE_STEP] = MALFORMED "gpu-core must be below 100 or a multiple of 100",
        [REQUEST_CORE_ZERO] =
            MALFORMED "gpu-core must be more than 0 (leave it out to ask for memory only)",
        [REQUEST_CORE_RANGE] = MALFORMED "gpu-core is more than 64 whole GPUs",
        [REQUEST_CORE_EACH_RANGE] = MALFORMED "the percentage of compute must be at most 100",
        [REQUEST_CARDS_RANGE] = MALFORMED "the number of cards must be from 1 to 64",
        [REQUEST_SPLIT] =
            MALFORMED "compute or memory does not go with the number of cards: whole cards have "
                      "100 percent each, and what is divided must divide evenly",
        [REQUEST_MEMORY_ZERO] =
            MALFORMED "gpu-memory must be more than 0 (leave it out to get it by gpu-core)",
        [REQUEST_MEMORY_SMALL] =
            MALFORMED "gpu-memory is below 1 MiB: it counts bytes, write a unit such as 4096Mi",
        [REQUEST_MEMORY_RANGE] = MALFORMED "gpu-memory is too large a number",
        [REQUEST_PERCENT_RANGE] = MALFORMED "the percentage of memory must be from 1 to 100 a card",
        [REQUEST_REPLICAS_RANGE] = MALFORMED "the number of replicas must be from 1 to 1024",
        [REQUEST_TFLOPS_RANGE] = MALFORMED "gpu-tflops must be from 1 to 1000000",
        [REQUEST_NOT_A_NUMBER] = MALFORMED "a GPU resource is not a whole number",
        [REQUEST_TWICE] = MALFORMED "two resource names of one container say the same quantity",
        [REQUEST_CLAIM_AND_MORE] = MALFORMED
        "a container with a claim has what the claim gives; leave its GPU resources out",
        [REQUEST_SLOT_ALONE] =
            MALFORMED "elasticgpu.io/slot is set by Aliquot itself; ask for gpu-core or gpu-memory",
        [REQUEST_SLOT_MISSING] =
            MALFORMED "what is asked needs elasticgpu.io/slot: 1 beside it, which Aliquot's "
                      "admission policy adds; a name that another plugin serves is left to it in "
                      "all places (scripts/manifests --served-elsewhere)",
        [REQUEST_SLOT_COUNT] = MALFORMED "elasticgpu.io/slot must be 1",
        [REQUEST_TOO_MANY] = MALFORMED "more than 32 containers ask for GPU",
        [REQUEST_SCALING] = MALFORMED
        "annotation elasticgpu.io/memory-scaling is not a number from 1 to 16, such as 1.5",
        [REQUEST_SELECTION] = MALFORMED
        "one of the annotations elasticgpu.io/placement-policy (" PLACEMENT_POLICY_WORDS
        "), topology (none, best, restricted) and numa-bind (true, false) has "
        "another value, or one that lists models or UUIDs is longer than 4096 bytes or 64 words",
        [REQUEST_FRACTION] =
            MALFORMED "annotation gpu-fraction must be more than 0 and at most 1, or else "
                      "gpu-memory a number of MiB, and gpu-fraction-num-devices from 1 to 64",
        [REQUEST_FRACTION_CONTAINER] =
            MALFORMED "annotation gpu-fraction-container-name names no container of the pod",
        [REQUEST_MIG] = MALFORMED "nvidia.com/mig-* is beside a share: request the MIG instance "
                                  "in a container without a share",
    };
    if (problem == REQUEST_MIXED_DIALECTS)
        return mixed_text(mixed);
    return texts[problem < REQUEST_PROBLEMS ? problem : REQUEST_NOT_A_NUMBER];
#undef MALFORMED
}
