/* SPDX-License-Identifier: Apache-2.0 */

/* What the agent reads of a tenant's processes and settings, and what it concludes from figures
 * that a tenant chose. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/verdicts/audit_memory.h"
#include "agent/verdicts/overhead.h"
#include "base/proc.h"
#include "model/scaling.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_texts(const char *text) {
    enum overuse_policy policy;
    uint32_t factor = 0;

    (void) proc_stat_is_ending(text);
    if (overuse_policy_of(OVERUSE_STOP, NULL, "ns", text) != OVERUSE_STOP)
        abort(); /* a pod made it milder */
    (void) overuse_policy_parse(text, &policy);
    (void) overuse_policy_of(OVERUSE_REPORT, text, "ns", NULL);
    (void) overuse_rules_check(text);
    if (scaling_parse(text, &factor) == 0 && (factor < SCALING_ONE || factor > SCALING_MAX))
        abort();
}

struct step {
    uint64_t used, operation, driver, limit;
    uint32_t processes, bypassing;
};

static void conclude(const uint8_t *data, size_t size) {
    struct overhead r = {0};
    struct audit_memory o = {0};
    uint64_t most = 0, now = 1;

    for (; size >= sizeof(struct step); data += sizeof(struct step), size -= sizeof(struct step)) {
        struct audit_memory_poll look;
        struct step s;

        memcpy(&s, data, sizeof(s));
        overhead_begin(&r, s.used, s.operation);
        (void) overhead_end(&r, s.used, s.operation, s.driver, s.processes);
        most = s.driver > most ? s.driver : most;
        if (r.bytes > most || r.bytes % OVERHEAD_GRAIN != 0)
            abort(); /* more than the driver ever said */
        look = (struct audit_memory_poll){
            .now_ms = now += 500, .limit = s.limit, .driver = s.driver, .bypassing = s.bypassing};
        (void) audit_memory_poll(&o, &look);
        if (o.state == AUDIT_MEMORY_OVER && s.driver <= s.limit)
            abort(); /* accused within its limit */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[512];
    size_t len = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

    memcpy(text, data, len);
    text[len] = 0;
    read_texts(text);
    conclude(data, size);
    return 0;
}
