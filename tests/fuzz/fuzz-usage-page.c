/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "scheduler/figures/usage_page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each pod is there once, and is found. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pod_use *uses = NULL;
    size_t n = 0;

    if (usage_page_read((const char *) data, size, &uses, &n, NULL) < 0)
        return 0;
    if (n > USAGE_PODS_MAX)
        abort();
    for (size_t i = 0; i < n; i++)
        if (usage_find(uses, n, uses[i].uid) != &uses[i])
            abort();
    free(uses);
    return 0;
}
