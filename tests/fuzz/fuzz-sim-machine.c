/* SPDX-License-Identifier: Apache-2.0 */

/* Machine files. What is accepted describes a machine that can be. */

#include <stdlib.h>
#include <string.h>

#include "sim/daemon/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sim_config c;
    static struct sim_host host;
    struct err err = {0};
    if (config_parse("fuzz", (const char *) data, size, &c, &err) < 0) {
        check(err.code > 0 && strncmp(err.text, "fuzz:", 5) == 0);
        return 0;
    }
    check(c.ngpus > 0 && c.ngpus <= SIM_MAX_GPUS && c.slice_ns > 0 && c.sample_ns > 0);
    check(memchr(c.driver, 0, sizeof(c.driver)) != NULL);
    memset(&host, 0, sizeof(host));
    config_describe_host(&c, &host);
    for (uint32_t i = 0; i < c.ngpus; i++) {
        struct sim_page page = {0};
        config_describe_gpu(&c, i, "fuzz", &page);
        check(page.memory_total > 0 && page.context_bytes <= page.memory_total);
        check(page.nvlinks <= SIM_MAX_LINKS && page.numa < c.numa_nodes);
        check(strlen(page.uuid) == 40);
        for (uint32_t k = 0; k < c.ngpus; k++)
            check(host.level[i][k] == host.level[k][i]);
    }
    return 0;
}
