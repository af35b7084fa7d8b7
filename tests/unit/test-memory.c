/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that the agent gives back. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/os/memory.h"

/* Of /proc/self/status, in KiB. */
static unsigned long status_of(const char *name) {
    char line[128];
    unsigned long found = 0;
    FILE *f = fopen("/proc/self/status", "re");

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtoul(line + strlen(name), NULL, 10);
    assert_int_equal(fclose(f), 0);
    return found;
}

static void test_pages_of_files(void **state) {
    unsigned long before = status_of("RssFile:"), after;

    (void) state;
    memory_give_back();
    after = status_of("RssFile:");
    assert_true(before > 0 && after < before);
    /* What has been given back is there when it is needed. */
    memory_give_back();
    assert_true(status_of("RssFile:") > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages_of_files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
