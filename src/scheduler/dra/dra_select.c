/* SPDX-License-Identifier: Apache-2.0 */

/* Selectors in CEL: which cards of a node the requests of the claims may have. A selector that
 * fails on a card stops the search, as it stops kube-scheduler. */

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/units.h"
#include "model/dra.h"
#include "scheduler/dra/dra_search.h"

#define SELECTORS_SIZE_MAX ((size_t) 64 << 10) /* of the claims of a pod */
#define ATTRIBUTES_MAX (SLICE_TEXTS + 3)
#define SELECTOR_TOLD_MAX 128

int dra_read_selectors(struct dra_search *s, struct dra_want *want, struct err *err) {
    const struct strings *texts = &dra_choice_of(want)->selectors;
    s->all |= dra_choice_of(want)->all;
    s->selective |= texts->n > 0 || s->all;
    if (texts->n == 0)
        return 0;
    struct cel **selectors = calloc(texts->n, sizeof(*selectors));
    want->selectors[want->choice] = selectors;
    if (!selectors)
        return err_errno(err, ENOMEM, "cannot read its selectors");
    for (size_t i = 0; i < texts->n; i++) {
        s->selectors_size += strlen(texts->v[i]);
        if (s->selectors_size > SELECTORS_SIZE_MAX)
            return err_set(err, EINVAL,
                           "the selectors of the claims of a pod have more than %zu bytes",
                           SELECTORS_SIZE_MAX);
        int r = cel_parse(texts->v[i], &selectors[i], err);
        if (r < 0)
            return err_wrap(err, "a selector has what is not evaluated here: %.*s",
                            SELECTOR_TOLD_MAX, texts->v[i]);
    }
    return 0;
}

void dra_selectors_done(struct dra_search *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        struct dra_want *want = &s->wants[i];
        for (uint32_t j = 0; j < want->request->nchoices; j++) {
            struct cel **selectors = want->selectors[j];
            for (size_t k = 0; selectors && k < want->request->choices[j].selectors.n; k++)
                cel_free(selectors[k]);
            free(selectors);
        }
    }
}

/* What the slice has of the device. */
static uint32_t list_attributes(const struct slice_device *d,
                                struct cel_attribute ret[static ATTRIBUTES_MAX]) {
    uint32_t n = 0;
    for (size_t i = 0; i < SLICE_TEXTS; i++) {
        const char *text = (const char *) d + slice_texts[i].at;
        if (*text)
            ret[n++] = (struct cel_attribute){.domain = DRA_DRIVER,
                                              .name = slice_texts[i].name,
                                              .kind = CEL_KIND_STRING,
                                              .text = text};
    }
    ret[n++] = (struct cel_attribute){.domain = DRA_DRIVER,
                                      .name = DRA_ALLOCATOR,
                                      .kind = CEL_KIND_STRING,
                                      .text = DRA_BY_ALIQUOT};
    ret[n++] = (struct cel_attribute){
        .domain = DRA_DRIVER, .name = DRA_INDEX, .kind = CEL_KIND_INT, .number = d->index};
    if (d->numa >= 0)
        ret[n++] = (struct cel_attribute){
            .domain = DRA_DRIVER, .name = DRA_NUMA, .kind = CEL_KIND_INT, .number = d->numa};
    return n;
}

static enum cel_answer ask(struct dra_search *s, const struct cel *selector,
                           const struct slice_device *d, struct err *err) {
    struct cel_attribute attributes[ATTRIBUTES_MAX];
    const struct cel_capacity capacities[] = {{DRA_DRIVER, DRA_CORE, d->core},
                                              {DRA_DRIVER, DRA_MEMORY, d->memory}};
    const struct cel_device device = {.driver = DRA_DRIVER,
                                      .multiple = d->shared,
                                      .nattributes = list_attributes(d, attributes),
                                      .attributes = attributes,
                                      .ncapacities = 2,
                                      .capacities = capacities};
    if (!d->other)
        return cel_ask(selector, &device, &s->selectors_budget, err);
    (void) err_set(err, EINVAL,
                   "the device has other attributes or capacities than are known here");
    return CEL_UNSERVED;
}

/* Each selector in its order, up to the first that is false. */
static enum cel_answer matches(struct dra_search *s, const struct dra_want *want,
                               const struct dra_device *device, struct err *err) {
    const struct strings *texts = &dra_choice_of(want)->selectors;
    enum cel_answer answer = CEL_YES;
    size_t i = 0;
    for (; answer == CEL_YES && i < texts->n; i++)
        answer = ask(s, want->selectors[want->choice][i], device->at, err);
    if (answer == CEL_FAILS || answer == CEL_UNSERVED)
        buf_printf(s->why, "claim %s: a selector %s device %s of node %s: %s: %.*s",
                   want->claim->object.name,
                   answer == CEL_FAILS ? "fails for" : "cannot be evaluated here for",
                   device->at->name, device->slice->node, err->text, SELECTOR_TOLD_MAX,
                   texts->v[i - 1]);
    return answer;
}

static enum dra_found select_for(struct dra_search *s, const struct state_node *node, uint32_t i,
                                 uint64_t *ret) {
    const struct dra_want *want = &s->wants[i];
    uint32_t n = 0;
    *ret = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct dra_device *device = dra_device_find(s->d, node->name, node->cards[c]->uuid);
        struct err err;
        if (!device || device->at->by_scheduler)
            continue;
        enum cel_answer answer = matches(s, want, device, &err);
        if (answer == CEL_FAILS || answer == CEL_UNSERVED)
            return DRA_REFUSED;
        if (answer == CEL_YES) {
            *ret |= UINT64_C(1) << c;
            n++;
        }
    }
    if (dra_choice_of(want)->all)
        s->containers[i].cards = n;
    return n > 0 && n >= s->containers[i].cards ? DRA_FOUND : DRA_NO_ROOM;
}

enum dra_found dra_select(struct dra_search *s, const struct state_node *node,
                          struct dra_limits *ret) {
    enum dra_found all = DRA_FOUND;
    for (uint32_t i = 0; i < GPU_CONTAINERS_MAX; i++)
        ret->allowed[i] = UINT64_MAX;
    for (uint32_t i = 0; s->selective && i < s->n; i++) {
        enum dra_found found = select_for(s, node, i, &ret->allowed[i]);
        if (found == DRA_REFUSED)
            return found;
        if (found != DRA_FOUND)
            all = found;
    }
    return all;
}
