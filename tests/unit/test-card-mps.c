/* SPDX-License-Identifier: Apache-2.0 */

/* Limits of MPS clients, as the control daemon answers them. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/mps/limits.h"
#include "base/units.h"

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
        cmocka_unit_test(limits_are_read_back),
        cmocka_unit_test(clients),
    };

    return cmocka_run_group_tests_name("card-mps", tests, NULL, NULL);
}
