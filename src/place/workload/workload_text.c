/* SPDX-License-Identifier: Apache-2.0 */

/* The workload as text:
 *
 *     aliquot-workload 1
 *     model NVIDIA A100-SXM4-80GB          bit 0 of the masks below, the next line bit 1
 *     shape CARDS CORE MEMORY CPU MODELS COUNT
 *     end SHAPES
 *
 * Numbers are decimal; MODELS is `any` or a mask of the bits above. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "place/workload/workload.h"

#define HEAD "aliquot-workload 1\n"
#define LINE_MAX_LEN 256
#define FIELDS 6

/* ---- writing ---- */

/* The names of the models that shapes speak of; bits without a name are left out of the result. */
static uint64_t write_models(const struct workload *w, const struct workload_names *names,
                             struct buf *out, uint8_t ret_line[static WORKLOAD_MODELS_MAX]) {
    uint64_t spoken = 0, named = 0;
    uint8_t lines = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->shapes[i].shape.models != WORKLOAD_ANY_MODEL)
            spoken |= w->shapes[i].shape.models;
    for (uint32_t m = 0; m < WORKLOAD_MODELS_MAX; m++) {
        const char *name = spoken >> m & 1 ? names->name(names->self, m) : NULL;
        if (!name || strpbrk(name, "\n") || strlen(name) > LINE_MAX_LEN / 2)
            continue;
        buf_printf(out, "model %s\n", name);
        ret_line[m] = lines++;
        named |= UINT64_C(1) << m;
    }
    return named;
}

static bool write_shape(const struct workload_count *c, uint64_t named,
                        const uint8_t line[static WORKLOAD_MODELS_MAX], struct buf *out) {
    const struct place_shape *s = &c->shape;
    uint64_t mask = 0;
    if (!(s->models & named) && s->models != WORKLOAD_ANY_MODEL)
        return false;
    buf_printf(out, "shape %u %u %" PRIu64 " %u ", s->cards, s->core, s->memory, s->cpu);
    for (uint32_t m = 0; m < WORKLOAD_MODELS_MAX; m++)
        if (named & s->models & UINT64_C(1) << m)
            mask |= UINT64_C(1) << line[m];
    if (s->models == WORKLOAD_ANY_MODEL)
        buf_puts(out, "any");
    else
        buf_printf(out, "%" PRIu64, mask);
    buf_printf(out, " %u\n", c->count);
    return true;
}

void workload_write(const struct workload *w, const struct workload_names *names, struct buf *out) {
    uint16_t order[WORKLOAD_TEXT_SHAPES];
    uint8_t line[WORKLOAD_MODELS_MAX] = {0};
    uint32_t written = 0, n = workload_typical(w, 100, WORKLOAD_TEXT_SHAPES, order);
    buf_puts(out, HEAD);
    uint64_t named = write_models(w, names, out, line);
    for (uint32_t i = 0; i < n; i++)
        written += write_shape(&w->shapes[order[i]], named, line, out);
    buf_printf(out, "end %u\n", written);
}

/* ---- reading ---- */

struct reader {
    struct workload *w;
    const struct workload_names *names;
    uint32_t models; /* lines */
    uint64_t bit[WORKLOAD_MODELS_MAX];
    uint32_t shapes;
    bool ended;
};

static int read_mask(const struct reader *r, const char *text, uint64_t *ret) {
    uint64_t mask = 0;
    if (strcmp(text, "any") == 0) {
        *ret = WORKLOAD_ANY_MODEL;
        return 0;
    }
    if (num_parse_u64(text, UINT64_MAX, &mask) < 0)
        return -EINVAL;
    if (r->models < WORKLOAD_MODELS_MAX && mask >> r->models)
        return -EINVAL;
    *ret = 0;
    for (uint32_t m = 0; m < r->models; m++)
        if (mask >> m & 1)
            *ret |= r->bit[m];
    return 0;
}

/* Takes the line apart in place. */
static uint32_t split(char *line, char *ret[static FIELDS + 1]) {
    uint32_t n = 0;
    for (char *rest = line, *field; n <= FIELDS && (field = strsep(&rest, " "));)
        ret[n++] = field;
    return n;
}

static int read_shape(struct reader *r, char *line) {
    static const uint64_t most[] = {WORKLOAD_CARDS_MAX, 100, UINT64_MAX, UINT32_MAX};
    uint64_t v[4], count;
    char *fields[FIELDS + 1];
    struct workload_count c;
    if (split(line, fields) != FIELDS || r->shapes == WORKLOAD_TEXT_SHAPES)
        return -EINVAL;
    for (uint32_t i = 0; i < 4; i++)
        if (num_parse_u64(fields[i], most[i], &v[i]) < 0)
            return -EINVAL;
    if (read_mask(r, fields[4], &c.shape.models) < 0 ||
        num_parse_u64(fields[5], WORKLOAD_FULL - r->w->total, &count) < 0 || count == 0)
        return -EINVAL;
    c.shape.cards = (uint32_t) v[0];
    c.shape.core = (uint32_t) v[1];
    c.shape.memory = v[2];
    c.shape.cpu = (uint32_t) v[3];
    if (c.shape.models != 0) /* else the models are not known any more */
        workload_add_count(r->w, &c.shape, (uint32_t) count);
    r->shapes++;
    return 0;
}

static int read_model(struct reader *r, const char *name) {
    uint32_t model;
    if (r->models == WORKLOAD_MODELS_MAX || r->shapes > 0 || !*name)
        return -EINVAL;
    r->bit[r->models++] =
        r->names->find(r->names->self, name, &model) && model < WORKLOAD_MODELS_MAX
            ? UINT64_C(1) << model
            : 0;
    return 0;
}

static int read_line(struct reader *r, char *line) {
    uint64_t shapes;
    if (r->ended)
        return -EINVAL;
    if (strncmp(line, "model ", 6) == 0)
        return read_model(r, line + 6);
    if (strncmp(line, "shape ", 6) == 0)
        return read_shape(r, line + 6);
    if (strncmp(line, "end ", 4) != 0 || num_parse_u64(line + 4, UINT32_MAX, &shapes) < 0 ||
        shapes != r->shapes)
        return -EINVAL;
    r->ended = true;
    return 0;
}

int workload_read(struct workload *w, const struct workload_names *names, const char *text,
                  size_t len) {
    size_t head = strlen(HEAD);
    if (len < head || memcmp(text, HEAD, head) != 0)
        return -EINVAL;
    _cleanup_free_ struct workload *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return -ENOMEM;
    workload_init(fresh);
    struct reader r = {.w = fresh, .names = names};
    for (const char *at = text + head, *end = text + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t) (end - at));
        char line[LINE_MAX_LEN];
        if (!stop || (size_t) (stop - at) >= sizeof(line) || memchr(at, 0, (size_t) (stop - at)))
            return -EINVAL;
        memcpy(line, at, (size_t) (stop - at));
        line[stop - at] = 0;
        if (read_line(&r, line) < 0)
            return -EINVAL;
        at = stop + 1;
    }
    if (!r.ended)
        return -EINVAL;
    memcpy(w, fresh, sizeof(*w));
    return 0;
}
