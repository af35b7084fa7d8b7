/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/persistence.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "gpu/nvml/one_card.h"

static int apply(const struct nvml *n, nvmlDevice_t device, const uint64_t *want) {
    nvmlEnableState_t mode = NVML_FEATURE_DISABLED;

    ONE_CARD_SET(n, PersistenceMode, device, mode, want);
    (void) printf("%d\n", (int) mode);
    return EXIT_SUCCESS;
}

int gpu_persistence_main(int argc, char **argv) {
    static struct nvml n;
    nvmlDevice_t device = NULL;
    uint64_t want = 0;

    if (argc < 4 || argc > 5 || (argc == 5 && num_parse_u64(argv[4], 1, &want) < 0)) {
        (void) printf("%s is started by the agent itself\n", GPU_PERSISTENCE_COMMAND);
        return EXIT_FAILURE;
    }
    if (one_card_open(&n, argv[2], argv[3], &device) < 0)
        return EXIT_FAILURE;
    return apply(&n, device, argc == 5 ? &want : NULL);
}
