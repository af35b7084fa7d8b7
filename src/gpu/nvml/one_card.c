/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/one_card.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/err.h"

int one_card_fail(const struct nvml *n, const char *call, nvmlReturn_t code) {
    (void) printf("%s: %s\n", call, n->error_string(code));
    return EXIT_FAILURE;
}

int one_card_open(struct nvml *n, const char *library, const char *uuid, nvmlDevice_t *ret) {
    struct err err;
    nvmlReturn_t code;

    /* The next agent may want something else. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nvml_load(library, n, &err) < 0) {
        (void) printf("%s\n", err.text);
        return -ENOENT;
    }
    code = n->nvmlInit_v2();
    if (code != NVML_SUCCESS) {
        (void) one_card_fail(n, "nvmlInit", code);
        return -EIO;
    }
    code = ONE_CARD_CALL(n, nvmlDeviceGetHandleByUUID, uuid, ret);
    if (code != NVML_SUCCESS) {
        (void) one_card_fail(n, "nvmlDeviceGetHandleByUUID", code);
        return -EIO;
    }
    return 0;
}
