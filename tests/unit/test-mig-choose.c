/* SPDX-License-Identifier: Apache-2.0 */

/* The placement of an instance made on demand, against all placements there are. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "mig/choose.h"
#include "sim/mig.h"

#define SLICES 8
#define SITES 3

static uint64_t seed;

static uint32_t draw(uint32_t below) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (seed >> 33) % below;
}

static const char *const models[] = {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3",
                                     "NVIDIA A30"};

static void fill_card(struct mig_card *card, const char *model) {
    size_t n;
    const struct mig_profile *rows = mig_profiles_by_name(model, &n);

    *card = (struct mig_card){.capable = true, .enabled = true, .nprofiles = (uint32_t) n};
    for (size_t i = 0; i < n; i++) {
        card->profiles[i] = (struct mig_card_profile){
            .number = rows[i].nvml,
            .id = rows[i].id,
            .most = rows[i].most,
            .starts = rows[i].starts,
            .size = rows[i].memory_slices,
            .engines = {rows[i].decode, rows[i].encode, rows[i].jpeg, rows[i].ofa}};
        assert_int_equal(mig_name_parse(rows[i].name, &card->profiles[i].name, NULL), 0);
    }
}

static struct mig_name named(const char *text) {
    struct mig_name name;

    assert_int_equal(mig_name_parse(text, &name, NULL), 0);
    return name;
}

static void add(struct mig_card *card, const char *text, uint32_t start) {
    const struct mig_name name = named(text);
    const struct mig_card_profile *p = mig_card_find(card, &name);

    assert_non_null(p);
    card->instances[card->ninstances++] =
        (struct mig_instance){.profile = (uint32_t) (p - card->profiles), .start = start};
}

/* ---- all there is ---- */

/* A slice by slice table instead of bits: which profile is at each start. */
struct layout {
    const struct mig_card *card;
    int at[SLICES]; /* -1: no instance starts there */
};

static bool overlaps(const struct layout *l, uint32_t profile, uint32_t start) {
    for (uint32_t s = 0; s < SLICES; s++) {
        uint32_t size = l->at[s] >= 0 ? l->card->profiles[l->at[s]].size : 0;

        if (size > 0 && s < start + l->card->profiles[profile].size && start < s + size)
            return true;
    }
    return false;
}

/* The largest number of further instances of the profile: every set of starts is tried. */
static uint32_t most_further(struct layout *l, uint32_t profile, uint32_t present) {
    uint32_t best = 0;

    if (present == l->card->profiles[profile].most)
        return 0;
    for (uint32_t s = 0; s < SLICES; s++) {
        if (!(l->card->profiles[profile].starts >> s & 1) || overlaps(l, profile, s))
            continue;
        l->at[s] = (int) profile;
        uint32_t n = 1 + most_further(l, profile, present + 1);
        l->at[s] = -1;
        best = n > best ? n : best;
    }
    return best;
}

static uint64_t brute_potential(struct layout *l) {
    uint64_t sum = 0;

    for (uint32_t p = 0; p < l->card->nprofiles; p++) {
        uint32_t present = 0;

        for (uint32_t s = 0; s < SLICES; s++)
            present += l->at[s] == (int) p;
        sum += (uint64_t) most_further(l, p, present) * l->card->profiles[p].size;
    }
    return sum;
}

static void lay_out(struct layout *l, const struct mig_card *card, uint32_t removed) {
    *l = (struct layout){.card = card};
    for (uint32_t s = 0; s < SLICES; s++)
        l->at[s] = -1;
    for (uint32_t i = 0; i < card->ninstances; i++)
        if (!(removed >> i & 1))
            l->at[card->instances[i].start] = (int) card->instances[i].profile;
}

static uint32_t engines_of(const struct layout *l, uint32_t engine) {
    uint32_t sum = 0;

    for (uint32_t s = 0; s < SLICES; s++)
        sum += l->at[s] >= 0 ? l->card->profiles[l->at[s]].engines[engine] : 0;
    return sum;
}

/* Whether the card has that many engines and instances of the profile. */
static bool is_allowed(struct layout *l, uint32_t profile, uint32_t start) {
    uint32_t n = 0;
    bool allowed = true;

    l->at[start] = (int) profile;
    for (uint32_t s = 0; s < SLICES; s++)
        n += l->at[s] == (int) profile;
    for (uint32_t e = 0; e < MIG_ENGINES; e++) {
        uint32_t total = 0, present = 0;

        for (uint32_t p = 0; p < l->card->nprofiles; p++) {
            uint32_t of = l->card->profiles[p].engines[e] * l->card->profiles[p].most;

            total = of > total ? of : total;
        }
        for (uint32_t i = 0; i < l->card->ninstances; i++)
            present += l->card->profiles[l->card->instances[i].profile].engines[e];
        allowed = allowed && engines_of(l, e) <= (total > present ? total : present);
    }
    l->at[start] = -1;
    return allowed && n <= l->card->profiles[profile].most;
}

struct verdict {
    bool found;
    uint32_t destroyed;
    uint64_t harm;
};

/* Whether the instance needs the room of each one of the set. */
static bool needs_all(const struct mig_card *card, uint32_t set, uint32_t profile, uint32_t start) {
    for (uint32_t i = 0; i < card->ninstances; i++) {
        struct layout l;

        lay_out(&l, card, ~(1u << i));
        if ((set >> i & 1) && !overlaps(&l, profile, start))
            return false;
    }
    return true;
}

/* Every subset of the removable instances, with every start. */
static struct verdict brute_choose(const struct mig_site *sites, const struct mig_name *name) {
    struct verdict best = {0};

    for (uint32_t i = 0; i < SITES; i++) {
        const struct mig_card *card = sites[i].card;
        uint32_t profile = 0;

        while (profile < card->nprofiles && !mig_name_equal(&card->profiles[profile].name, name))
            profile++;
        for (uint32_t set = 0; profile < card->nprofiles && set < 1u << card->ninstances; set++) {
            struct layout l;

            if (set & ~sites[i].removable)
                continue;
            for (uint32_t s = 0; s < SLICES; s++) {
                lay_out(&l, card, set);
                if (!needs_all(card, set, profile, s) ||
                    !(card->profiles[profile].starts >> s & 1) || overlaps(&l, profile, s) ||
                    !is_allowed(&l, profile, s))
                    continue;
                lay_out(&l, card, sites[i].removable);
                uint64_t before = brute_potential(&l);
                l.at[s] = (int) profile;
                struct verdict v = {true, (uint32_t) __builtin_popcount(set),
                                    before - brute_potential(&l)};
                if (!best.found || v.destroyed < best.destroyed ||
                    (v.destroyed == best.destroyed && v.harm < best.harm))
                    best = v;
            }
        }
    }
    return best;
}

static void draw_card(struct mig_card *card, const char *model) {
    uint32_t taken = 0, target = draw(8);

    fill_card(card, model);
    for (uint32_t tries = 0; tries < 16 && card->ninstances < target; tries++) {
        uint32_t p = draw(card->nprofiles), start = draw(SLICES), count = 0;

        for (uint32_t i = 0; i < card->ninstances; i++)
            count += card->instances[i].profile == p;
        if (!mig_card_may_start(&card->profiles[p], start) || count == card->profiles[p].most ||
            (taken & mig_card_bits(&card->profiles[p], start)))
            continue;
        taken |= mig_card_bits(&card->profiles[p], start);
        card->instances[card->ninstances++] = (struct mig_instance){.profile = p, .start = start};
    }
}

/* The destroyed ones are in its way, and the instance fits where they were. */
static void check_choice(const struct mig_site *site, const struct mig_choice *c) {
    struct layout l;

    assert_int_equal(c->removed & ~site->removable, 0);
    lay_out(&l, site->card, c->removed);
    assert_false(overlaps(&l, c->profile, c->start));
    assert_true(is_allowed(&l, c->profile, c->start));
}

static void test_against_every_placement(void **state) {
    uint32_t none = 0, destroying = 0, plain = 0;
    (void) state;

    for (uint32_t round = 0; round < 1500; round++) {
        struct mig_card cards[SITES];
        struct mig_site sites[SITES];
        struct mig_choice choice;

        seed = round;
        (void) draw(1);
        for (uint32_t i = 0; i < SITES; i++) {
            draw_card(&cards[i], models[draw(3)]);
            sites[i] = (struct mig_site){&cards[i],
                                         draw(256) & draw(256) & ((1u << cards[i].ninstances) - 1)};
            struct layout l;
            lay_out(&l, &cards[i], sites[i].removable);
            assert_int_equal(mig_potential(&cards[i], sites[i].removable), brute_potential(&l));
        }
        const struct mig_name name = cards[0].profiles[draw(cards[0].nprofiles)].name;
        struct verdict v = brute_choose(sites, &name);
        int r = mig_choose(sites, SITES, &name, &choice);

        assert_int_equal(r, v.found ? 0 : -ENOSPC);
        if (!v.found) {
            none++;
            continue;
        }
        const struct mig_site *site = &sites[choice.site];
        check_choice(site, &choice);
        assert_int_equal(__builtin_popcount(choice.removed), v.destroyed);
        struct layout l;
        lay_out(&l, site->card, site->removable);
        uint64_t before = brute_potential(&l);
        l.at[choice.start] = (int) choice.profile;
        assert_int_equal(before - brute_potential(&l), v.harm);
        destroying += v.destroyed > 0;
        plain += v.destroyed == 0;
    }
    /* Each kind of answer was seen often. */
    assert_true(none > 100 && destroying > 50 && plain > 300);
}

/* ---- named cases ---- */

/* The last slice of an empty card leaves 4g and 3g possible. */
static void test_no_scraps(void **state) {
    struct mig_card card;
    struct mig_site site = {&card, 0};
    struct mig_choice c;
    const struct mig_name one = named("1g.10gb"), three = named("3g.40gb");
    (void) state;

    fill_card(&card, models[1]);
    assert_int_equal(mig_choose(&site, 1, &one, &c), 0);
    assert_int_equal(c.start, 6);
    add(&card, "1g.10gb", 6);
    assert_int_equal(mig_choose(&site, 1, &one, &c), 0);
    assert_true(c.start == 4 || c.start == 5);
    add(&card, "1g.10gb", c.start);
    assert_int_equal(mig_choose(&site, 1, &three, &c), 0);
    assert_int_equal(c.start, 0);
}

/* A card that is divided already, not the empty one. */
static void test_empty_cards_stay_empty(void **state) {
    struct mig_card cards[2];
    const struct mig_site sites[] = {{&cards[0], 0}, {&cards[1], 0}};
    const struct mig_name two = named("2g.20gb"), seven = named("7g.80gb");
    struct mig_choice c;
    (void) state;

    fill_card(&cards[0], models[1]);
    fill_card(&cards[1], models[1]);
    add(&cards[1], "1g.10gb", 6);
    assert_int_equal(mig_choose(sites, 2, &two, &c), 0);
    assert_int_equal(c.site, 1);
    assert_int_equal(mig_choose(sites, 2, &seven, &c), 0);
    assert_int_equal(c.site, 0);
    add(&cards[0], "1g.10gb", 0);
    assert_int_equal(mig_choose(sites, 2, &seven, &c), -ENOSPC);
}

/* Only what is in the way is destroyed, and nothing where there is room. */
static void test_idle_instances_give_way(void **state) {
    struct mig_card card;
    const struct mig_site site = {&card, 0x3};
    const struct mig_name three = named("3g.40gb"), other = named("1g.6gb");
    struct mig_choice c;
    (void) state;

    fill_card(&card, models[1]);
    add(&card, "1g.10gb", 0);
    add(&card, "1g.10gb", 4);
    add(&card, "1g.10gb", 5); /* in use */
    assert_int_equal(mig_choose(&site, 1, &three, &c), 0);
    assert_int_equal(c.start, 0);
    assert_int_equal(c.removed, 0x1);
    assert_int_equal(mig_choose(&site, 1, &other, &c), -ENODEV);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_placement),
        cmocka_unit_test(test_no_scraps),
        cmocka_unit_test(test_empty_cards_stay_empty),
        cmocka_unit_test(test_idle_instances_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
