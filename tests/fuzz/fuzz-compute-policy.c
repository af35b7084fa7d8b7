/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shares/compute_policy.h"
#include "base/err.h"

/* What pods write into their annotations: four texts with a zero byte between, behind a byte that
 * says how much of the card the container has. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_texts(const char *text, size_t size, struct pod *pod) {
    for (size_t w = 0; w < POD_SETTINGS && size > 0; w++) {
        size_t len = strnlen(text, size);

        pod->settings[w] = strndup(text, len);
        len += len < size;
        text += len;
        size -= len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct compute_policy_node node = {SHARE_FIXED, (1u << SHARE_FIXED) | (1u << SHARE_BURST),
                                             false};
    uint32_t core = size ? data[0] % 120u : 0;
    struct pod pod = {0};
    struct slot_terms t;
    struct err why = {0};
    int r;

    if (size == 0)
        return 0;
    take_texts((const char *) data + 1, size - 1, &pod);
    r = compute_policy_read(&node, &pod, "main", core, &t, &why);
    /* Only what the node lets pods choose, numbers in their ranges, and a reason for each refusal.
     */
    if (t.policy != SHARE_FIXED && t.policy != SHARE_BURST && t.policy != SHARE_BEST_EFFORT)
        abort();
    if (t.policy == SHARE_BEST_EFFORT && core > 0 && core < 100)
        abort();
    if (t.weight > 100 || t.ceiling > 100 || t.memory_limit > INT64_MAX || (r < 0 && !why.text[0]))
        abort();
    pod_done(&pod);
    return 0;
}
