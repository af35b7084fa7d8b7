/* SPDX-License-Identifier: Apache-2.0 */

/* Settings of a card that a program may not change while other containers use it; and counters of
 * the whole card that cannot be divided by user. */

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"

#define NVML_DENY(symbol, answer, params, args)                                                    \
    nvmlReturn_t symbol params {                                                                   \
        return nvml_limited() ? NVML_ERROR_##answer : driver.symbol args;                          \
    }
#include "abi/hooks.def"

/* The profiling samples (nvmlGpmSampleGet) are refused: so the device does not have them. */
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpm_support) {
    nvmlReturn_t r = driver.nvmlGpmQueryDeviceSupport(device, gpm_support);

    if (r == NVML_SUCCESS && gpm_support && nvml_limited())
        gpm_support->isSupportedDevice = 0;
    return r;
}
