/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

#define BALANCED_MAX 3 /* the largest profile, in slices, of a balanced card */

/* ---- ids ---- */

static int compare_ids(const void *a, const void *b) {
    uint32_t x = ((const struct mig_filter *) a)->pci.device;
    uint32_t y = ((const struct mig_filter *) b)->pci.device;

    return (x > y) - (x < y);
}

/* Adds an id once, in order. */
static void add_filter(struct mig_spec *spec, uint32_t device) {
    for (uint32_t i = 0; i < spec->nfilters; i++)
        if (spec->filters[i].pci.device == device)
            return;
    if (spec->nfilters == MIG_FILTERS_MAX)
        return;
    spec->filters[spec->nfilters++] = (struct mig_filter){.pci.device = device};
    qsort(spec->filters, spec->nfilters, sizeof(spec->filters[0]), compare_ids);
}

/* Whether another card before it has the same id. */
static bool is_repeated(const struct mig_machine_card *cards, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (cards[k].card->nprofiles > 0 && cards[k].pci.device == cards[i].pci.device)
            return true;
    return false;
}

static bool several_ids(const struct mig_machine_card *cards, uint32_t n) {
    uint32_t ids = 0;

    for (uint32_t i = 0; i < n; i++)
        ids += cards[i].card->nprofiles > 0 && !is_repeated(cards, i);
    return ids > 1;
}

/* ---- generated configurations ---- */

/* The driver's number, or what its placements allow: of some cards it reports too many. */
static uint32_t most_of(const struct mig_card_profile *p) {
    uint32_t n = 0, end = 0;

    for (uint32_t start = 0; start < MIG_SLICES_MAX; start++)
        if (mig_card_may_start(p, start) && start >= end) {
            end = start + p->size;
            n++;
        }
    return n < p->most ? n : p->most;
}

static void name_config(struct mig_spec *spec, const struct mig_card_profile *p) {
    char name[MIG_PROFILE_NAME_MAX];

    (void) snprintf(spec->config, sizeof(spec->config), "all-%s", mig_name_format(&p->name, name));
    for (char *c = spec->config; *c; c++)
        if (*c == '+')
            *c = '.';
}

static bool has_spec(const struct mig_file *file, const struct mig_spec *spec) {
    for (size_t i = 0; i < file->nspecs; i++)
        if (strcmp(file->specs[i].config, spec->config) == 0)
            return true;
    return false;
}

/* The entries of one profile: one for each number that cards can have of it. */
static int add_profile(struct mig_file *file, const struct mig_machine_card *cards, uint32_t n,
                       const struct mig_card_profile *of, struct err *err) {
    bool several = several_ids(cards, n);
    struct mig_spec first = {.config = ""};

    name_config(&first, of);
    if (has_spec(file, &first))
        return 0;
    for (uint32_t count = 1; count <= MIG_CARD_INSTANCES_MAX; count++) {
        struct mig_spec spec = first;
        bool any = false;
        int r;

        spec.all = spec.enabled = true;
        for (uint32_t i = 0; i < n; i++) {
            const struct mig_card_profile *p = mig_card_find(cards[i].card, &of->name);

            if (!p || most_of(p) != count)
                continue;
            any = true;
            if (several)
                add_filter(&spec, cards[i].pci.device);
        }
        spec.devices[spec.ndevices++] = (struct mig_devices){of->name, count};
        r = any ? mig_file_add(file, &spec, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Of the profiles of that many slices and without attributes the one of which a card can have
 * most. */
static const struct mig_card_profile *plain_profile(const struct mig_card *card, uint32_t slices) {
    const struct mig_card_profile *best = NULL;

    for (uint32_t i = 0; i < card->nprofiles; i++) {
        const struct mig_card_profile *p = &card->profiles[i];

        if (p->name.slices == slices && !p->name.attributes[0] &&
            (!best || most_of(p) > most_of(best)))
            best = p;
    }
    return best;
}

/* Two 1g, a 2g, and on cards of seven slices a 3g. */
static int add_balanced(struct mig_file *file, const struct mig_machine_card *cards, uint32_t n,
                        struct err *err) {
    bool several = several_ids(cards, n);

    for (uint32_t i = 0; i < n; i++) {
        struct mig_spec spec = {.config = "all-balanced", .all = true, .enabled = true};
        uint32_t total = 0, sum = 0;

        if (is_repeated(cards, i))
            continue;
        for (uint32_t k = 0; k < cards[i].card->nprofiles; k++)
            if (cards[i].card->profiles[k].name.slices > total)
                total = cards[i].card->profiles[k].name.slices;
        for (uint32_t slices = 1; slices <= BALANCED_MAX; slices++) {
            const struct mig_card_profile *p = plain_profile(cards[i].card, slices);
            uint32_t count = slices == 1 ? 2 : 1;

            if (!p || sum + slices * count > total)
                continue;
            sum += slices * count;
            spec.devices[spec.ndevices++] = (struct mig_devices){p->name, count};
        }
        if (several)
            add_filter(&spec, cards[i].pci.device);
        int r = sum == total && (total == 7 || total == 4) ? mig_file_add(file, &spec, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int mig_generate(const struct mig_machine_card *cards, uint32_t n, struct mig_file *ret,
                 struct err *err) {
    const struct mig_spec disabled = {.config = "all-disabled", .all = true};
    const struct mig_spec enabled = {.config = "all-enabled", .all = true, .enabled = true};
    _cleanup_mig_file_ struct mig_file file = {0};
    int r = mig_file_add(&file, &disabled, err);

    if (r >= 0)
        r = mig_file_add(&file, &enabled, err);
    if (r >= 0)
        r = add_balanced(&file, cards, n, err);
    for (uint32_t i = 0; r >= 0 && i < n; i++)
        for (uint32_t k = 0; r >= 0 && k < cards[i].card->nprofiles; k++)
            r = add_profile(&file, cards, n, &cards[i].card->profiles[k], err);
    if (r < 0)
        return r;
    *ret = take_struct(file);
    return 0;
}

/* ---- the present division ---- */

/* Whether an entry has every card of its ids; then it is for all of them. */
static bool has_all_cards(const struct mig_spec *spec, const struct mig_machine_card *cards,
                          uint32_t n) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < spec->nfilters; k++)
            count += spec->filters[k].pci.device == cards[i].pci.device;
    return count == spec->nindexes;
}

static int export_card(struct mig_file *file, const struct mig_machine_card *of, const char *name,
                       struct err *err) {
    struct mig_spec spec = {.enabled = of->card->enabled};

    text_copy(spec.config, sizeof(spec.config), name);
    spec.ndevices = mig_want_present(of->card, spec.devices, MIG_DEVICES_MAX);
    if (spec.ndevices > MIG_DEVICES_MAX)
        return err_set(err, EFBIG, "more than %d kinds of MIG devices", MIG_DEVICES_MAX);
    for (size_t i = 0; i < file->nspecs; i++) {
        struct mig_spec *s = &file->specs[i];

        if (s->enabled != spec.enabled || s->nindexes == MIG_INDEXES_MAX ||
            !mig_want_same(s->devices, s->ndevices, spec.devices, spec.ndevices))
            continue;
        s->indexes[s->nindexes++] = of->index;
        add_filter(s, of->pci.device);
        return 0;
    }
    spec.indexes[spec.nindexes++] = of->index;
    add_filter(&spec, of->pci.device);
    return mig_file_add(file, &spec, err);
}

int mig_export(const struct mig_machine_card *cards, uint32_t n, const char *name,
               struct mig_file *ret, struct err *err) {
    _cleanup_mig_file_ struct mig_file file = {0};
    bool several = false;
    int r = 0;

    if (!name[0] || strlen(name) >= MIG_CONFIG_NAME_MAX)
        return err_set(err, EINVAL, "a configuration has a name of 1 to %d bytes",
                       MIG_CONFIG_NAME_MAX - 1);
    for (uint32_t i = 0; r >= 0 && i < n; i++) {
        several = several || cards[i].pci.device != cards[0].pci.device;
        r = export_card(&file, &cards[i], name, err);
    }
    if (r < 0)
        return r;
    for (size_t i = 0; i < file.nspecs; i++) {
        struct mig_spec *s = &file.specs[i];

        if (has_all_cards(s, cards, n)) {
            s->all = true;
            s->nindexes = 0;
        }
        if (!several || file.nspecs == 1)
            s->nfilters = 0;
    }
    *ret = take_struct(file);
    return 0;
}
