/* SPDX-License-Identifier: Apache-2.0 */

/* Plans of repartitions, against every layout there is and a card that refuses what the driver
 * refuses. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/units.h"
#include "mig/plan.h"
#include "sim/mig.h"

static uint64_t seed;

static uint32_t draw(uint32_t below) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (seed >> 33) % below;
}

static const struct {
    const char *name;
    uint64_t gib;
} models[] = {
    {"NVIDIA A100-SXM4-40GB", 40},
    {"NVIDIA A100-SXM4-80GB", 80},
    {"NVIDIA H100 80GB HBM3", 80},
    {"NVIDIA H200", 141},
    {"NVIDIA A30", 24},
};

#define MODELS (sizeof(models) / sizeof(models[0]))

static void fill_card(struct mig_card *card, size_t model) {
    size_t n;
    const struct mig_profile *rows = mig_profiles_by_name(models[model].name, &n);

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

static uint32_t profile(const struct mig_card *card, const char *name) {
    struct mig_name parsed;

    assert_int_equal(mig_name_parse(name, &parsed, NULL), 0);
    const struct mig_card_profile *p = mig_card_find(card, &parsed);
    assert_non_null(p);
    return (uint32_t) (p - card->profiles);
}

static struct mig_instance *add(struct mig_card *card, const char *name, uint32_t start,
                                bool used) {
    struct mig_instance *gi = &card->instances[card->ninstances];
    uint32_t p = profile(card, name);

    *gi = (struct mig_instance){.id = card->ninstances + 1,
                                .profile = p,
                                .start = start,
                                .ncompute = 1,
                                .compute = {{0, card->profiles[p].name.slices, 0, used}},
                                .in_use = used};
    card->ninstances++;
    card->in_use = card->in_use || used;
    return gi;
}

static void want(const struct mig_card *card, struct mig_want *ret, const char *list) {
    struct mig_devices devices[MIG_DEVICES_MAX] = {0};
    uint32_t n = 0;
    char text[256], *rest = text, *word;

    (void) snprintf(text, sizeof(text), "%s", list);
    while ((word = strsep(&rest, ",")) && *word) {
        assert_int_equal(mig_name_parse(word, &devices[n].name, NULL), 0);
        devices[n++].count = 1;
    }
    assert_int_equal(mig_want_devices(card, devices, n, ret, NULL), 0);
}

/* ---- a card that refuses what the driver refuses ---- */

static uint32_t occupied(const struct mig_card *card) {
    uint32_t bits = 0;

    for (uint32_t i = 0; i < card->ninstances; i++)
        if (card->instances[i].ncompute > 0)
            bits |= mig_card_bits(&card->profiles[card->instances[i].profile],
                                  card->instances[i].start);
    return bits;
}

/* Makes the steps on a copy, and holds the result against what is wanted. */
static void check_steps(const struct mig_card *card, const struct mig_want *wanted,
                        const struct mig_plan *plan) {
    struct mig_card now = *card;
    uint32_t count[MIG_CARD_PROFILES_MAX] = {0};

    for (uint32_t i = 0; i < card->ninstances; i++) {
        if (plan->fate[i] == MIG_DESTROY) {
            assert_false(card->instances[i].in_use);
            now.instances[i].ncompute = 0; /* gone */
        } else {
            assert_int_equal(card->instances[i].profile,
                             wanted->instances[plan->becomes[i]].profile);
            count[card->instances[i].profile]++;
        }
    }
    for (uint32_t i = 0; i < plan->nmake; i++) {
        uint32_t p = wanted->instances[plan->make[i].wanted].profile;

        assert_true(mig_card_may_start(&now.profiles[p], plan->make[i].start));
        assert_false(occupied(&now) & mig_card_bits(&now.profiles[p], plan->make[i].start));
        now.instances[now.ninstances++] =
            (struct mig_instance){.profile = p, .start = plan->make[i].start, .ncompute = 1};
        count[p]++;
        assert_true(now.ninstances <= MIG_CARD_INSTANCES_MAX || i + 1 == plan->nmake);
        if (now.ninstances == MIG_CARD_INSTANCES_MAX) {
            /* Only the bits matter from here on: reuse the place of one that is gone. */
            uint32_t k = 0;

            while (k < now.ninstances && now.instances[k].ncompute > 0)
                k++;
            if (k < now.ninstances)
                now.instances[k] = now.instances[--now.ninstances];
        }
    }
    for (uint32_t i = 0; i < wanted->n; i++)
        count[wanted->instances[i].profile]--;
    for (uint32_t p = 0; p < card->nprofiles; p++)
        assert_int_equal(count[p], 0);
}

/* ---- every layout there is ---- */

struct brute {
    const struct mig_card *card;
    const struct mig_want *want;
    uint32_t ignored;
    uint32_t start[MIG_CARD_INSTANCES_MAX];
    bool found;
    uint32_t kept;
};

/* Instances of the card that a complete assignment leaves as they are. */
static void judge(struct brute *b) {
    uint32_t kept = 0;

    for (uint32_t i = 0; i < b->card->ninstances; i++) {
        const struct mig_instance *gi = &b->card->instances[i];
        bool stays = false;

        for (uint32_t k = 0; k < b->want->n; k++)
            stays =
                stays || (b->want->instances[k].profile == gi->profile && b->start[k] == gi->start);
        if (!stays && gi->in_use && !(b->ignored >> i & 1))
            return;
        kept += stays;
    }
    if (!b->found || kept > b->kept)
        b->kept = kept;
    b->found = true;
}

static void try_all(struct brute *b, uint32_t at, uint32_t taken) {
    if (at == b->want->n) {
        judge(b);
        return;
    }
    const struct mig_card_profile *p = &b->card->profiles[b->want->instances[at].profile];
    for (uint32_t start = 0; start < 8; start++) {
        uint32_t bits = mig_card_bits(p, start);

        if (!mig_card_may_start(p, start) || (bits & taken))
            continue;
        b->start[at] = start;
        try_all(b, at + 1, taken | bits);
    }
}

static uint32_t fewest_blockers(struct brute *b) {
    uint32_t fewest = UINT32_MAX;

    for (b->ignored = 1; b->ignored < 1u << b->card->ninstances; b->ignored++) {
        uint32_t used = 0;

        for (uint32_t i = 0; i < b->card->ninstances; i++)
            used += (b->ignored >> i & 1) && b->card->instances[i].in_use;
        b->found = false;
        try_all(b, 0, 0);
        if (b->found && used < fewest)
            fewest = used;
    }
    return fewest;
}

/* What the card and the profiles' numbers allow; only sums that have room anywhere. */
static void draw_case(struct mig_card *card, struct mig_want *wanted) {
    uint32_t count[MIG_CARD_PROFILES_MAX] = {0}, taken = 0, target = 1 + draw(8), room = 8;

    for (uint32_t tries = 0; tries < 12; tries++) {
        uint32_t p = draw(card->nprofiles), start = draw(8);
        char name[MIG_PROFILE_NAME_MAX];
        uint32_t bits = mig_card_bits(&card->profiles[p], start);

        if (!mig_card_may_start(&card->profiles[p], start) || (taken & bits) ||
            count[p] == card->profiles[p].most)
            continue;
        taken |= bits;
        count[p]++;
        (void) add(card, mig_name_format(&card->profiles[p].name, name), start, draw(5) < 2);
    }
    memset(count, 0, sizeof(count));
    *wanted = (struct mig_want){.enabled = true};
    for (uint32_t tries = 0; tries < 20 && wanted->n < target && wanted->n < 7; tries++) {
        /* Often of a kind that is there: then something can stay. */
        uint32_t p = card->ninstances > 0 && draw(2)
                         ? card->instances[draw(card->ninstances)].profile
                         : draw(card->nprofiles);

        if (count[p] == card->profiles[p].most || card->profiles[p].size > room)
            continue;
        count[p]++;
        room -= card->profiles[p].size;
        wanted->instances[wanted->n++] =
            (struct mig_wanted){.profile = p,
                                .start = MIG_ANYWHERE,
                                .ncompute = 1,
                                .compute = {card->profiles[p].name.slices}};
    }
}

static void test_against_every_layout(void **state) {
    uint32_t outcomes[3] = {0}, refused = 0;
    (void) state;

    for (uint32_t round = 0; round < 6000; round++) {
        struct mig_card card;
        struct mig_want wanted;
        struct mig_plan plan;

        seed = round;
        (void) draw(1);
        fill_card(&card, round % MODELS);
        draw_case(&card, &wanted);
        struct brute b = {.card = &card, .want = &wanted};
        try_all(&b, 0, 0);
        int r = mig_plan(&card, &wanted, &plan, NULL);
        if (r == -ENOSPC) {
            refused++;
            assert_false(b.found);
            assert_int_equal(fewest_blockers(&b), UINT32_MAX);
            continue;
        }
        assert_int_equal(r, 0);
        outcomes[plan.outcome]++;
        assert_int_equal(b.found, plan.outcome != MIG_PENDING);
        if (plan.outcome == MIG_PENDING) {
            assert_int_equal(__builtin_popcount(plan.blockers), fewest_blockers(&b));
            continue;
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < card.ninstances; i++)
            kept += plan.fate[i] == MIG_STAYS;
        assert_int_equal(kept, b.kept);
        assert_int_equal(plan.outcome == MIG_REACHED, kept == card.ninstances && kept == wanted.n);
        check_steps(&card, &wanted, &plan);
    }
    /* Each kind of answer was seen often. */
    assert_true(outcomes[MIG_REACHED] > 20 && outcomes[MIG_CHANGE] > 1000 &&
                outcomes[MIG_PENDING] > 500 && refused > 50);
}

/* ---- named cases ---- */

/* What mig-parted cannot: it clears the card and fails. */
static void test_beside_one_in_use(void **state) {
    (void) state;
    for (uint32_t start = 0; start <= 4; start += 4) {
        struct mig_card card;
        struct mig_want wanted;
        struct mig_plan plan;

        fill_card(&card, 1);
        (void) add(&card, "3g.40gb", start, true);
        (void) add(&card, "2g.20gb", 4 - start, false);
        want(&card, &wanted, "3g.40gb,1g.10gb,1g.10gb");
        assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
        assert_int_equal(plan.outcome, MIG_CHANGE);
        assert_int_equal(plan.fate[0], MIG_STAYS);
        assert_int_equal(plan.fate[1], MIG_DESTROY);
        assert_int_equal(plan.nmake, 2);
        check_steps(&card, &wanted, &plan);
    }
}

static void test_pending_names_the_blockers(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    struct mig_plan plan;
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    (void) state;

    fill_card(&card, 1);
    mig_card_add_holder(add(&card, "1g.10gb", 0, true)->holders, "pod team/trainer");
    (void) add(&card, "2g.20gb", 2, false);
    (void) add(&card, "3g.40gb", 4, true);
    want(&card, &wanted, "3g.40gb,3g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_PENDING);
    assert_int_equal(plan.blockers, 1);
    assert_int_equal(plan.nmake, 0);
    mig_plan_explain(&card, &plan, &text);
    assert_string_equal(buf_str(&text), "in use: instance 1 (1g.10gb at 0) of pod team/trainer");
}

static void test_exact_placements(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    struct mig_plan plan;
    (void) state;

    fill_card(&card, 1);
    (void) add(&card, "3g.40gb", 0, false);
    want(&card, &wanted, "3g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_REACHED);
    wanted.instances[0].start = 4;
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_CHANGE);
    assert_int_equal(plan.fate[0], MIG_DESTROY);
    assert_int_equal(plan.make[0].start, 4);
    wanted.instances[0].start = 2; /* no 3g begins there */
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), -ENOSPC);
}

/* The new instance goes where most others can follow. */
static void test_leaves_room(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    struct mig_plan plan;
    (void) state;

    fill_card(&card, 1);
    want(&card, &wanted, "1g.10gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.make[0].start, 6);
}

static void test_limits_of_a_card(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    struct mig_plan plan;
    struct err err;
    (void) state;

    fill_card(&card, 1);
    want(&card, &wanted, "1g.10gb+me,1g.10gb+me");
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), -ENOSPC);
    assert_string_equal(err.text, "a card can have 1 instances of 1g.10gb+me");
    want(&card, &wanted, "4g.40gb,4g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), -ENOSPC);
    want(&card, &wanted, "4g.40gb,2g.20gb,2g.20gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), -ENOSPC);
    want(&card, &wanted, "4g.40gb,2g.20gb,1g.10gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), 0);
    /* Two profiles that need the only JPEG engine. */
    card.profiles[profile(&card, "2g.20gb")].engines[2] = 1;
    card.profiles[profile(&card, "2g.20gb")].most = 1;
    want(&card, &wanted, "1g.10gb+me,2g.20gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), -ENOSPC);
    /* Unless a card has both: it then has more engines than the profiles say. */
    (void) add(&card, "1g.10gb+me", 0, false);
    (void) add(&card, "2g.20gb", 2, false);
    assert_int_equal(mig_plan(&card, &wanted, &plan, &err), 0);
    assert_int_equal(plan.outcome, MIG_REACHED);
}

static void test_mode(void **state) {
    struct mig_card card;
    struct mig_want wanted, none = {.enabled = false};
    struct mig_plan plan;
    (void) state;

    fill_card(&card, 1);
    want(&card, &wanted, "3g.40gb");
    card.enabled = false;
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_CHANGE);
    assert_true(plan.set_mode && plan.nmake == 1);
    card.in_use = true;
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_PENDING && plan.card_blocks);
    assert_int_equal(mig_plan(&card, &none, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_REACHED && !plan.set_mode);
    card.enabled = true;
    card.in_use = false;
    (void) add(&card, "3g.40gb", 0, false);
    assert_int_equal(mig_plan(&card, &none, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_CHANGE && plan.set_mode && plan.fate[0] == MIG_DESTROY);
    (void) add(&card, "1g.10gb", 4, true);
    assert_int_equal(mig_plan(&card, &none, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_PENDING && plan.blockers == 2 && !plan.card_blocks);
    card.capable = false;
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), -EOPNOTSUPP);
    assert_int_equal(mig_plan(&card, &none, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_REACHED);
}

/* ---- compute instances ---- */

static void test_parts_share_instances(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    (void) state;

    fill_card(&card, 1);
    want(&card, &wanted, "1c.3g.40gb,1c.3g.40gb,2c.3g.40gb,3g.40gb");
    assert_int_equal(wanted.n, 3);
    want(&card, &wanted, "1c.3g.40gb,2c.3g.40gb,1g.10gb");
    assert_int_equal(wanted.n, 2);
    assert_int_equal(wanted.instances[0].ncompute, 2);
    assert_int_equal(wanted.instances[0].compute[0], 2);
}

static void test_an_instance_is_refitted(void **state) {
    struct mig_card card;
    struct mig_want wanted;
    struct mig_plan plan;
    struct mig_refit refit;
    (void) state;

    fill_card(&card, 1);
    struct mig_instance *gi = add(&card, "3g.40gb", 4, false);
    gi->ncompute = 0; /* the program that made it ended before the compute instance */
    want(&card, &wanted, "3g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_CHANGE && plan.fate[0] == MIG_REFITS && plan.nmake == 0);
    assert_int_equal(mig_plan_refit(gi, 3, &wanted.instances[0], &refit), 0);
    assert_true(refit.destroy == 0 && refit.nmake == 1 && refit.make[0] == 3);
    /* One in use in the middle: two more fit beside it, one of two slices does not. */
    gi->ncompute = 1;
    gi->compute[0] = (struct mig_compute){0, 1, 1, true};
    gi->in_use = true;
    want(&card, &wanted, "1c.3g.40gb,1c.3g.40gb,1c.3g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_CHANGE && plan.fate[0] == MIG_REFITS);
    want(&card, &wanted, "2c.3g.40gb,1c.3g.40gb");
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_true(plan.outcome == MIG_PENDING && plan.blockers == 1);
    /* A pod holds the instance, none of its processes computes yet. */
    gi->compute[0].in_use = false;
    assert_int_equal(mig_plan(&card, &wanted, &plan, NULL), 0);
    assert_int_equal(plan.outcome, MIG_PENDING);
}

static void test_names(void **state) {
    static const char *const good[] = {"1g.10gb",        "1g.5gb+me",   "1c.3g.40gb",
                                       "2g.24gb+me.all", "4g.96gb+gfx", "1g.24gb-me"};
    static const char *const bad[] = {"",
                                      "1g",
                                      "1g.gb",
                                      "g.10gb",
                                      "1g.10",
                                      "1c.10gb",
                                      "1g.10gb+",
                                      "1g.10gb+1",
                                      "1g.10gb+me,",
                                      "1g.10gb +",
                                      "-1g.10gb",
                                      "1x.1g.10gb",
                                      "1c.1c.1g.10gb",
                                      "1g.10gb+m!",
                                      "99999g.10gb",
                                      "1g.10gb+me.",
                                      " 1g.10gb"};
    struct mig_name name;
    char text[MIG_PROFILE_NAME_MAX];
    (void) state;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(mig_name_parse(good[i], &name, NULL), 0);
        assert_string_equal(mig_name_format(&name, text), good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(mig_name_parse(bad[i], &name, NULL), -EINVAL);
    /* The GB of every profile of every model. */
    for (size_t m = 0; m < MODELS; m++) {
        size_t n;
        const struct mig_profile *rows = mig_profiles_by_name(models[m].name, &n);

        for (size_t i = 0; i < n; i++) {
            assert_int_equal(mig_name_parse(rows[i].name, &name, NULL), 0);
            assert_int_equal(mig_name_gb(rows[i].memory_mib, models[m].gib * GIB), name.gb);
            assert_string_equal(mig_name_attributes(rows[i].nvml), name.attributes);
        }
    }
    assert_int_equal(mig_name_gb(1, 0), 0);
}

static void test_holders(void **state) {
    char holders[MIG_HOLDERS_MAX] = "";
    (void) state;

    for (int i = 0; i < 100; i++)
        mig_card_add_holder(holders, "process 123456 (python3)");
    assert_true(strlen(holders) < sizeof(holders));
    assert_string_equal(holders + strlen(holders) - 5, ", ...");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_layout),
        cmocka_unit_test(test_beside_one_in_use),
        cmocka_unit_test(test_pending_names_the_blockers),
        cmocka_unit_test(test_exact_placements),
        cmocka_unit_test(test_leaves_room),
        cmocka_unit_test(test_limits_of_a_card),
        cmocka_unit_test(test_mode),
        cmocka_unit_test(test_parts_share_instances),
        cmocka_unit_test(test_an_instance_is_refitted),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_holders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
