/* SPDX-License-Identifier: Apache-2.0 */

/* Which MIG instances are offered under which name, by the strategies of NVIDIA's device plugin. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/backends/backend.h"
#include "agent/backends/whole_rows.h"
#include "base/err.h"
#include "base/text.h"

/* ---- the node ---- */

static struct gpu_snapshot node;

static void add_card(const char *uuid, bool divided) {
    struct gpu_device *d = &node.devices[node.ndevices++];

    *d = (struct gpu_device){.index = node.ndevices, .divided = divided, .healthy = true};
    text_copy(d->uuid, sizeof(d->uuid), uuid);
}

static struct gpu_device *add_instance(const char *card, const char *uuid, const char *profile) {
    struct gpu_device *d = &node.devices[node.ndevices++];

    *d = (struct gpu_device){.kind = GPU_MIG_INSTANCE, .healthy = true};
    text_copy(d->parent, sizeof(d->parent), card);
    text_copy(d->uuid, sizeof(d->uuid), uuid);
    text_copy(d->mig.profile, sizeof(d->mig.profile), profile);
    return d;
}

static int empty_node(void **state) {
    (void) state;
    node.ndevices = 0;
    return 0;
}

/* ---- what kubelet is offered ---- */

static struct {
    const struct resource *rows[8];
    size_t n;
    int refusal;
} taken;

static int take(const struct resource *r, void *userdata) {
    (void) userdata;
    if (taken.refusal < 0)
        return taken.refusal;
    assert_in_range(taken.n, 0, 7);
    assert_true(backend_is_whole(r));
    taken.rows[taken.n++] = r;
    return 0;
}

/* "nvidia.com/mig-1g.10gb: MIG-a MIG-b; " for each row that lists something. */
static const char *offer(struct whole_rows *m) {
    static char text[512];
    char id[BACKEND_ID_SIZE];
    size_t len = 0;

    whole_rows_update(m, &node, take, NULL);
    text[0] = 0;
    for (size_t i = 0; i < taken.n; i++) {
        const struct resource *r = taken.rows[i];
        uint32_t n = r->backend->list(r, &node);

        if (n == 0)
            continue;
        len += (size_t) snprintf(text + len, sizeof(text) - len, "%s:", r->name);
        for (uint32_t k = 0; k < n; k++) {
            r->backend->id(r, &node, k, id);
            assert_int_equal(r->backend->number(r, &node, id), k);
            len += (size_t) snprintf(text + len, sizeof(text) - len, " %s", id);
        }
        len += (size_t) snprintf(text + len, sizeof(text) - len, "; ");
    }
    return text;
}

static void begin(struct whole_rows *m, enum mig_strategy strategy) {
    memset(&taken, 0, sizeof(taken));
    *m = (struct whole_rows){.strategy = strategy};
}

static void make_mixed_node(void) {
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    add_instance("GPU-0", "MIG-b", "1g.10gb");
    add_instance("GPU-0", "MIG-c", "1g.10gb+me");
    add_card("GPU-1", false);
    add_card("GPU-2", true);
    add_instance("GPU-2", "MIG-d", "1g.10gb");
}

static void strategies(void **state) {
    static const char *const names[] = {"none", "single", "mixed"};
    enum mig_strategy s;

    (void) state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mig_strategy_parse(names[i], &s), 0);
        assert_int_equal(s, i);
    }
    assert_int_equal(mig_strategy_parse("Mixed", &s), -EINVAL);
    assert_int_equal(mig_strategy_parse("", &s), -EINVAL);
}

static void none_offers_nothing(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_NONE);
    make_mixed_node();
    assert_string_equal(offer(&m), "");
    assert_int_equal(taken.n, 0);
    whole_rows_done(&m);
}

/* Rows come with their first instance, and list what is there. */
static void mixed_offers_each_profile(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    assert_string_equal(offer(&m), "");
    make_mixed_node();
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; "
                                   "nvidia.com/mig-1g.10gb: MIG-b MIG-d; "
                                   "nvidia.com/mig-1g.10gb.me: MIG-c; ");
    node.ndevices = 2;
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; ");
    add_instance("GPU-0", "MIG-e", "1g.10gb");
    add_instance("GPU-0", "MIG-f", "2g.20gb");
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; "
                                   "nvidia.com/mig-1g.10gb: MIG-e; "
                                   "nvidia.com/mig-2g.20gb: MIG-f; ");
    assert_int_equal(taken.n, 4);
    assert_string_equal(whole_rows_trouble(&m), "");
    whole_rows_done(&m);
}

/* The longest names of NVIDIA's profiles are names of a resource and of a socket. */
static void long_names(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "1g.24gb+me.all");
    add_instance("GPU-0", "MIG-b", "2g.48gb-me");
    add_instance("GPU-0", "MIG-c", "4g.96gb+gfx");
    assert_string_equal(offer(&m), "nvidia.com/mig-1g.24gb.me.all: MIG-a; "
                                   "nvidia.com/mig-2g.48gb-me: MIG-b; "
                                   "nvidia.com/mig-4g.96gb.gfx: MIG-c; ");
    whole_rows_done(&m);
}

/* Only an instance that has its whole GPU instance is in a resource. */
static void a_part_of_a_gpu_instance(void **state) {
    struct gpu_device *d;
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    add_card("GPU-0", true);
    d = add_instance("GPU-0", "MIG-a", "1c.3g.40gb");
    d->mig.gi_slices = 3;
    d->mig.ci_slices = 1;
    d = add_instance("GPU-0", "MIG-b", "3g.40gb");
    d->mig.gi_slices = d->mig.ci_slices = 3;
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-b; ");
    whole_rows_done(&m);
}

static const char *name_gpu(const char *profile, void *userdata) {
    (void) profile;
    (void) userdata;
    return "nvidia.com/gpu";
}

/* The name of all cards is another plugin's unless the strategy is `single`. */
static void gpus_that_another_plugin_serves(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    m.named = name_gpu;
    m.elsewhere = "nvidia.com/gpu";
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    assert_string_equal(offer(&m), "");
    m.strategy = MIG_STRATEGY_SINGLE;
    assert_string_equal(offer(&m), "nvidia.com/gpu: MIG-a; ");
    whole_rows_done(&m);
}

static void single_offers_gpus(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_SINGLE);
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    add_instance("GPU-0", "MIG-b", "3g.40gb");
    add_card("GPU-1", true);
    add_instance("GPU-1", "MIG-c", "3g.40gb");
    assert_string_equal(offer(&m), "nvidia.com/gpu: MIG-a MIG-b MIG-c; ");
    assert_string_equal(whole_rows_trouble(&m), "");
    whole_rows_done(&m);
}

/* NVIDIA's plugin ends on such a node; here the reason is told and the row is empty until the node
 * is even. */
static void single_on_an_uneven_node(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_SINGLE);
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    assert_string_equal(offer(&m), "nvidia.com/gpu: MIG-a; ");
    add_instance("GPU-0", "MIG-b", "1g.10gb");
    assert_string_equal(offer(&m), "");
    assert_non_null(strstr(whole_rows_trouble(&m), "profile 3g.40gb and of profile 1g.10gb"));
    node.ndevices--;
    add_card("GPU-1", true);
    assert_string_equal(offer(&m), "");
    assert_non_null(strstr(whole_rows_trouble(&m), "(GPU-1) is in MIG mode without instances"));
    node.devices[node.ndevices - 1].divided = false;
    assert_string_equal(offer(&m), "");
    assert_non_null(strstr(whole_rows_trouble(&m), "(GPU-1) is not in MIG mode"));
    node.ndevices--;
    assert_string_equal(offer(&m), "nvidia.com/gpu: MIG-a; ");
    assert_string_equal(whole_rows_trouble(&m), "");
    assert_int_equal(taken.n, 1);
    whole_rows_done(&m);
}

/* A node without a divided card is not this back end's. */
static void single_without_mig(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_SINGLE);
    add_card("GPU-0", false);
    assert_string_equal(offer(&m), "");
    assert_string_equal(whole_rows_trouble(&m), "");
    whole_rows_done(&m);
}

static void one_profile_is_left_to_another_plugin(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    m.elsewhere = "nvidia.com/mig-1g.10gb.me,nvidia.com/mig-3g.40gb";
    make_mixed_node();
    assert_string_equal(offer(&m), "nvidia.com/mig-1g.10gb: MIG-b MIG-d; ");
    whole_rows_done(&m);
}

static const char *by_configuration(const char *profile, void *userdata) {
    assert_ptr_equal(userdata, &node);
    return profile[0] == '1' ? "nvidia.com/small" : NULL;
}

/* The configuration names resources, of any kind of instance. */
static void resources_by_configuration(void **state) {
    struct gpu_device *d;
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    m.named = by_configuration;
    m.userdata = &node;
    make_mixed_node();
    d = add_instance("GPU-2", "MIG-e", "1c.3g.40gb");
    d->mig.gi_slices = 3;
    d->mig.ci_slices = 1;
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; "
                                   "nvidia.com/small: MIG-b MIG-c MIG-d MIG-e; ");
    whole_rows_done(&m);
}

/* Also while they are served. */
static void settings_change(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_NONE);
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    assert_string_equal(offer(&m), "");
    m.strategy = MIG_STRATEGY_MIXED;
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; ");
    m.strategy = MIG_STRATEGY_SINGLE;
    assert_string_equal(offer(&m), "nvidia.com/gpu: MIG-a; ");
    m.strategy = MIG_STRATEGY_MIXED;
    m.elsewhere = "nvidia.com/mig-3g.40gb";
    assert_string_equal(offer(&m), "");
    m.elsewhere = "nvidia.com/gpu";
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; ");
    m.strategy = MIG_STRATEGY_NONE;
    assert_string_equal(offer(&m), "");
    assert_int_equal(taken.n, 2);
    whole_rows_done(&m);
}

/* kubelet's plugins were full, or there was no memory. */
static void a_row_is_added_later(void **state) {
    struct whole_rows m;

    (void) state;
    begin(&m, MIG_STRATEGY_MIXED);
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "3g.40gb");
    taken.refusal = -ENOMEM;
    assert_string_equal(offer(&m), "");
    taken.refusal = 0;
    assert_string_equal(offer(&m), "nvidia.com/mig-3g.40gb: MIG-a; ");
    whole_rows_done(&m);
}

/* ---- one resource ---- */

static const struct whole_rows mixed = {.strategy = MIG_STRATEGY_MIXED};
static struct whole_row row;

static void expect_sick(bool a, bool b, bool c) {
    const bool held[3] = {true, true, true};
    bool sick[3] = {false, false, false};

    row.resource.backend->health(&row.resource, &node,
                                 &(struct backend_held){.count = 3, .ids = held}, sick);
    assert_int_equal(sick[0], a);
    assert_int_equal(sick[1], b);
    assert_int_equal(sick[2], c);
}

static void health_is_the_instances_own(void **state) {
    (void) state;
    whole_row_make(&row, &mixed, "nvidia.com/mig-1g.10gb");
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "1g.10gb");
    add_instance("GPU-0", "MIG-b", "1g.10gb");
    add_card("GPU-1", true);
    add_instance("GPU-1", "MIG-c", "1g.10gb");
    expect_sick(false, false, false);
    node.devices[2].healthy = false;
    expect_sick(false, true, false);
    node.devices[3].healthy = false; /* the card */
    expect_sick(false, true, true);
}

static void expect_choice(const char *available, const char *must, size_t want,
                          const char *expected) {
    char texts[2][256], *ids[2][16], *chosen[16], *at, got[256] = "";
    const char *lists[2] = {available, must};
    size_t n[2] = {0, 0}, count;

    for (size_t i = 0; i < 2; i++) {
        (void) snprintf(texts[i], sizeof(texts[i]), "%s", lists[i]);
        for (char *id = strtok_r(texts[i], " ", &at); id; id = strtok_r(NULL, " ", &at))
            ids[i][n[i]++] = id;
    }
    count = row.resource.backend->prefer(&(struct backend_choice){.resource = &row.resource,
                                                                  .devices = &node,
                                                                  .available = ids[0],
                                                                  .navailable = n[0],
                                                                  .must = ids[1],
                                                                  .nmust = n[1],
                                                                  .want = want},
                                         chosen);
    for (size_t i = 0; i < count; i++)
        (void) snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", chosen[i]);
    assert_string_equal(got, expected);
}

/* The card with the fewest free instances first. */
static void the_choice_keeps_cards_idle(void **state) {
    (void) state;
    whole_row_make(&row, &mixed, "nvidia.com/mig-1g.10gb");
    for (unsigned card = 0; card < 3; card++) {
        char uuid[16], instance[16];

        (void) snprintf(uuid, sizeof(uuid), "GPU-%u", card);
        add_card(uuid, true);
        for (unsigned i = 0; i < 3; i++) {
            (void) snprintf(instance, sizeof(instance), "%u%c", card, 'a' + (int) i);
            add_instance(uuid, instance, "1g.10gb");
        }
    }
    expect_choice("0a 0b 0c 1b 2a 2b", "", 1, "1b ");
    expect_choice("0a 0b 0c 1b 2a 2b", "", 3, "1b 2a 2b ");
    expect_choice("0a 0b 0c 1b 2a 2b", "0b", 2, "0b 1b ");
    expect_choice("0a 0b 0c 2a 2b", "0b 0c", 3, "0b 0c 0a ");
    expect_choice("gone 0a", "", 2, "0a gone ");
    expect_choice("0a", "", 2, "0a ");
}

static void allocate_knows_its_devices(void **state) {
    static const char *const mine[] = {"MIG-a"}, *const others[] = {"MIG-a", "MIG-b"};
    char name[BACKEND_CDI_NAME_MAX];
    struct backend_ids ids = {.resource = &row.resource, .devices = &node, .ids = mine, .n = 1};

    (void) state;
    whole_row_make(&row, &mixed, "nvidia.com/mig-1g.10gb");
    add_card("GPU-0", true);
    add_instance("GPU-0", "MIG-a", "1g.10gb");
    add_instance("GPU-0", "MIG-b", "3g.40gb");
    assert_int_equal(row.resource.backend->allocate(&ids, name), 0);
    ids.ids = others;
    ids.n = 2;
    assert_int_equal(row.resource.backend->allocate(&ids, name), -ENODEV);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies),
        cmocka_unit_test_setup(none_offers_nothing, empty_node),
        cmocka_unit_test_setup(mixed_offers_each_profile, empty_node),
        cmocka_unit_test_setup(long_names, empty_node),
        cmocka_unit_test_setup(a_part_of_a_gpu_instance, empty_node),
        cmocka_unit_test_setup(gpus_that_another_plugin_serves, empty_node),
        cmocka_unit_test_setup(single_offers_gpus, empty_node),
        cmocka_unit_test_setup(single_on_an_uneven_node, empty_node),
        cmocka_unit_test_setup(single_without_mig, empty_node),
        cmocka_unit_test_setup(one_profile_is_left_to_another_plugin, empty_node),
        cmocka_unit_test_setup(resources_by_configuration, empty_node),
        cmocka_unit_test_setup(settings_change, empty_node),
        cmocka_unit_test_setup(a_row_is_added_later, empty_node),
        cmocka_unit_test_setup(health_is_the_instances_own, empty_node),
        cmocka_unit_test_setup(the_choice_keeps_cards_idle, empty_node),
        cmocka_unit_test_setup(allocate_knows_its_devices, empty_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
