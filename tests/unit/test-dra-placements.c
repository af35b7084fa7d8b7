/* SPDX-License-Identifier: Apache-2.0 */

/* The devices that a card in MIG mode can be divided into: no two that overlap are of different
 * counters, and each is found again by its name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/dra/placements.h"
#include "base/text.h"
#include "base/units.h"
#include "gpu/device.h"

#define CARD "GPU-01234567-89AB-cdef-0123-456789abcdef"

static const struct row {
    const char *name;
    uint32_t id, most, starts, size, gib, decoders;
} rows[] = {
    {"1g.10gb", 19, 7, 0x7f, 1, 10, 0},       {"1g.10gb+me", 20, 1, 0x7f, 1, 10, 1},
    {"2g.20gb", 14, 3, 0x15, 2, 20, 1},       {"3g.40gb", 9, 2, 0x11, 4, 40, 2},
    {"1g.24gb+me.all", 30, 1, 0x1, 2, 20, 5}, {"4g.40gb", 5, 1, 0x1, 4, 40, 2},
    {"7g.80gb", 0, 1, 0x1, 8, 80, 5},         {"1g.10gb-me", 21, 7, 0x7f, 1, 10, 0},
};

static struct mig_card a100(void) {
    struct mig_card card = {.capable = true, .enabled = true};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mig_card_profile *p = &card.profiles[card.nprofiles++];

        *p = (struct mig_card_profile){.id = rows[i].id,
                                       .most = rows[i].most,
                                       .starts = rows[i].starts,
                                       .size = rows[i].size,
                                       .memory = rows[i].gib * GIB,
                                       .engines = {rows[i].decoders}};
        assert_int_equal(mig_name_parse(rows[i].name, &p->name, NULL), 0);
    }
    return card;
}

static void the_largest_comes_first(void **state) {
    struct mig_place places[DRA_PLACEMENTS_MAX];
    struct slice_device d = {.index = 4};
    struct mig_card card = a100();

    (void) state;
    assert_int_equal(dra_placements(&card, places), 1 + 1 + 2 + 3 + 1 + 7 + 7 + 7);
    dra_placement_describe(CARD, &card, &places[0], &d);
    assert_string_equal(d.name, "gpu-01234567-89ab-cdef-0123-456789abcdef-7g-80gb-0");
    assert_string_equal(d.profile, "7g.80gb");
    assert_string_equal(d.parent, CARD);
    assert_int_equal(d.core, 100);
    assert_int_equal(d.memory, 80 * GIB);
    assert_int_equal(d.index, 4);
    dra_placement_describe(CARD, &card, &places[1], &d);
    assert_string_equal(d.profile, "4g.40gb");
    dra_placement_describe(CARD, &card, &places[3], &d);
    assert_string_equal(d.name, "gpu-01234567-89ab-cdef-0123-456789abcdef-3g-40gb-4");
    assert_int_equal(d.core, 42);
    assert_int_equal(d.uses.slices, 0xf0);
    assert_int_equal(d.uses.engines[0], 2);
}

/* Each name is a label of DNS of its own, and is found again; what it takes is in the set. */
static void names_and_counters(void **state) {
    struct mig_place places[DRA_PLACEMENTS_MAX], found;
    char names[DRA_PLACEMENTS_MAX][DEVICE_NAME_MAX];
    struct mig_card card = a100();
    uint32_t n = dra_placements(&card, places);
    struct slice_counters set;
    struct slice_device d;

    (void) state;
    dra_placement_set(CARD, &card, &set);
    assert_int_equal(set.slices, 0xff);
    assert_int_equal(set.engines[0], 5);
    for (uint32_t i = 0; i < n; i++) {
        memset(&d, 0, sizeof(d));
        dra_placement_describe(CARD, &card, &places[i], &d);
        memcpy(names[i], d.name, sizeof(names[i]));
        assert_int_equal(strspn(d.name, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(d.name));
        assert_true(dra_placement_find(CARD, &card, d.name, &found));
        assert_true(mig_name_equal(&found.name, &places[i].name));
        assert_int_equal(found.start, places[i].start);
        assert_string_equal(d.uses.name, set.name);
        assert_int_equal(d.uses.slices & ~set.slices, 0);
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(names[k], names[i]);
    }
    assert_false(dra_placement_find(CARD, &card, "gpu-01234567", &found));
    assert_false(dra_placement_find("GPU-other", &card, names[0], &found));
}

static void the_instance_at_a_place(void **state) {
    struct mig_card card = a100();
    struct mig_place place;
    struct gpu_snapshot s = {.ndevices = 2};
    struct gpu_device *d = &s.devices[1];

    (void) state;
    text_copy(s.devices[0].uuid, sizeof(s.devices[0].uuid), CARD);
    *d = (struct gpu_device){
        .kind = GPU_MIG_INSTANCE,
        .parent = CARD,
        .mig = {.profile_id = 9, .start = 4, .size = 4, .gi_slices = 3, .ci_slices = 3}};
    assert_true(dra_placement_find(CARD, &card,
                                   "gpu-01234567-89ab-cdef-0123-456789abcdef-3g-40gb-4", &place));
    assert_ptr_equal(dra_placement_instance(&s, CARD, &card, &place), d);
    assert_null(dra_placement_instance(&s, "GPU-other", &card, &place));
    d->mig.ci_slices = 1; /* it is divided once more */
    assert_null(dra_placement_instance(&s, CARD, &card, &place));
    d->mig.ci_slices = 3;
    d->mig.start = 0;
    assert_null(dra_placement_instance(&s, CARD, &card, &place));
    d->mig.start = 4;
    d->mig.profile_id = 5;
    assert_null(dra_placement_instance(&s, CARD, &card, &place));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_comes_first),
        cmocka_unit_test(names_and_counters),
        cmocka_unit_test(the_instance_at_a_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
