/* SPDX-License-Identifier: Apache-2.0 */

/* Memory limits of control groups, as drivers from 615 on have them. */

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "sim/nvml/nvml.h"

/* Which code NVML gives for what the driver says is not documented: a limit below the present use
 * is taken to be an unknown error. */
static nvmlReturn_t from_errno(int r) {
    switch (r) {
    case 0:
        return NVML_SUCCESS;
    case -EOPNOTSUPP:
        return NVML_ERROR_NOT_SUPPORTED;
    case -EPERM:
        return NVML_ERROR_NO_PERMISSION;
    case -EINVAL:
        return NVML_ERROR_INVALID_ARGUMENT;
    case -EPIPE:
    case -ENODEV:
        return NVML_ERROR_GPU_IS_LOST;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

static nvmlReturn_t limits_request(nvmlDevice_t device, enum sim_limits what, const char *group,
                                   const unsigned long long limits[2], struct client_answer *a) {
    if (!nvml_client()->host->limits || nvml_is_part(device))
        return nvml_refuse();
    int fd = group ? open(group, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (group && fd < 0)
        return errno == ENOENT ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
    struct sim_request q = {.magic = SIM_MAGIC,
                            .op = SIM_LIMITS,
                            .minor = device->page->minor,
                            .a = what,
                            .token = {limits[0], limits[1]}};
    nvmlReturn_t r = from_errno(client_request(nvml_client(), &q, fd, a));
    if (fd >= 0)
        (void) close(fd);
    return r;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
    NVML_TRY(nvml_enter_working(device));
    if (!limits || !limits->nameSpace || limits->softLimit > limits->hardLimit)
        return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned long long values[2] = {limits->softLimit, limits->hardLimit};
    struct client_answer a = {.list = NULL};
    return limits_request(device, SIM_LIMITS_SET, limits->nameSpace, values, &a);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    static const unsigned long long none[2];
    NVML_TRY(nvml_enter_working(device));
    if (!limits || !limits->nameSpace)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct client_answer a = {.list = NULL};
    NVML_TRY(limits_request(device, SIM_LIMITS_GET, limits->nameSpace, none, &a));
    limits->hardLimit = a.reply.a;
    limits->softLimit = a.reply.b;
    limits->currentUsed = a.reply.token[0];
    return NVML_SUCCESS;
}

bool nvml_own_limit(nvmlDevice_t device, unsigned long long *ret_hard,
                    unsigned long long *ret_used) {
    static const unsigned long long none[2];
    struct client_answer a = {.list = NULL};
    if (!nvml_client()->host->limits ||
        limits_request(device, SIM_LIMITS_MINE, NULL, none, &a) != NVML_SUCCESS ||
        a.reply.a >= device->page->memory_total)
        return false;
    *ret_hard = a.reply.a;
    *ret_used = a.reply.token[0];
    return true;
}
