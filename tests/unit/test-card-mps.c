/* SPDX-License-Identifier: Apache-2.0 */

/* Which cards are to be under MPS, by option and by the configuration of the node. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/config/node_config.h"
#include "agent/mps/limits.h"
#include "base/err.h"
#include "base/units.h"

static const struct gpu_device first = {.index = 0, .uuid = "GPU-a"};
static const struct gpu_device second = {.index = 1, .uuid = "GPU-b"};
static const struct gpu_device instance = {.kind = GPU_MIG_INSTANCE, .uuid = "MIG-a"};

/* Bit n: card n. */
static unsigned wanted(const char *list, const char *text) {
    struct node_config *c = NULL;
    struct err err = {0};
    unsigned cards;

    if (node_config_parse(text, strlen(text), "node", &c, &err) < 0)
        fail_msg("%s", err.text);
    cards = card_mps_is_wanted(list, c, &first) + 2u * card_mps_is_wanted(list, c, &second);
    assert_false(card_mps_is_wanted(list, c, &instance));
    (void) node_config_free(c);
    return cards;
}

#define CARDS "version: v1\naliquot:\n  cards:\n"

static void by_option(void **state) {
    (void) state;
    assert_int_equal(wanted("all", "version: v1\n"), 3);
    assert_int_equal(wanted("1", "version: v1\n"), 2);
    assert_int_equal(wanted("GPU-a", "version: v1\n"), 1);
    assert_int_equal(wanted("7,GPU-a,1", "version: v1\n"), 3);
    assert_int_equal(wanted("GPU", "version: v1\n"), 0);
    assert_int_equal(wanted("10", "version: v1\n"), 0);
    /* It takes precedence. */
    assert_int_equal(wanted("1", CARDS "  - {devices: all, mode: mps}\n"), 2);
}

static void by_configuration(void **state) {
    (void) state;
    assert_int_equal(wanted("", "version: v1\n"), 0);
    assert_int_equal(wanted("", CARDS "  - {devices: all, mode: mps}\n"), 3);
    assert_int_equal(wanted("", CARDS "  - {devices: 1, mode: mps}\n"), 1);
    assert_int_equal(wanted("", CARDS "  - {devices: [1], mode: mps}\n"), 2);
    assert_int_equal(wanted("", CARDS "  - {devices: [0, \"GPU-b\"], mode: mps}\n"), 3);
    /* The first one with a mode decides. */
    assert_int_equal(wanted("", CARDS "  - {devices: [0], memoryScaling: 1.5}\n"
                                      "  - {devices: [0], mode: share}\n"
                                      "  - {devices: all, mode: mps}\n"),
                     2);
}

static const struct mps_limits limits = {.percent = 30, .memory = 2048 * MIB};

static void limits_are_read_back(void **state) {
    static const char *const right[] = {"30.0\n2G\n", "30.0\n30.0\n2G\n", "30\n2048M\n",
                                        "30.04\n2G"};
    static const char *const wrong[] = {"",
                                        "30.0\n",
                                        "30.0\n2\n",
                                        "30.0\n2T\n",
                                        "30.1\n2G\n",
                                        "300\n2G\n",
                                        "2G\n30.0\n",
                                        "30.0\n1G\n",
                                        "x30\n2G\n",
                                        "30.0x\n2G\n",
                                        "30.0\nG\n",
                                        "nan\n2G\n",
                                        "30.0\n99999999999999999999G\n"};
    char commands[MPS_COMMANDS_MAX];

    (void) state;
    mps_limits_commands(&limits, commands);
    assert_non_null(strstr(commands, "set_default_active_thread_percentage 30\n"));
    assert_non_null(strstr(commands, "set_default_device_pinned_mem_limit 0 2048M\n"));
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        assert_int_equal(mps_limits_check(&limits, right[i], NULL), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (mps_limits_check(&limits, wrong[i], NULL) != -EBADMSG)
            fail_msg("accepted: %s", wrong[i]);
}

static void clients(void **state) {
    (void) state;
    assert_int_equal(mps_clients_max(6), 16);
    assert_int_equal(mps_clients_max(7), 48);
    assert_int_equal(mps_clients_max(9), 48);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_option),
        cmocka_unit_test(by_configuration),
        cmocka_unit_test(limits_are_read_back),
        cmocka_unit_test(clients),
    };

    return cmocka_run_group_tests_name("card-mps", tests, NULL, NULL);
}
