/* SPDX-License-Identifier: Apache-2.0 */

/* Launches of kernels, in all their variants: through the throttle, then on to the driver. */

#include "intercept/compute/throttle.h"
#include "intercept/resolve/driver.h"

/* Their first parameters; cuLaunchKernel has one more. */
#define KERNEL_PARAMETERS                                                                          \
    CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,       \
        unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,              \
        unsigned int shared_mem_bytes, CUstream stream, void **kernel_params
#define KERNEL_ARGUMENTS                                                                           \
    f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,                  \
        shared_mem_bytes, stream, kernel_params

/* Enters the throttle, calls the driver and leaves. */
#define LAUNCH(per_thread, ...)                                                                    \
    struct passage p;                                                                              \
                                                                                                   \
    throttle_enter(&p, f, throttle_grid(grid_dim_x, grid_dim_y, grid_dim_z),                       \
                   throttle_grid(block_dim_x, block_dim_y, block_dim_z), stream, per_thread);      \
    return throttle_leave(&p, driver.__VA_ARGS__)

CUresult cuLaunchKernel(KERNEL_PARAMETERS, void **extra) {
    LAUNCH(false, cuLaunchKernel(KERNEL_ARGUMENTS, extra));
}

CUresult cuLaunchKernel_ptsz(KERNEL_PARAMETERS, void **extra) {
    LAUNCH(true, cuLaunchKernel_ptsz(KERNEL_ARGUMENTS, extra));
}

CUresult cuLaunchCooperativeKernel(KERNEL_PARAMETERS) {
    LAUNCH(false, cuLaunchCooperativeKernel(KERNEL_ARGUMENTS));
}

CUresult cuLaunchCooperativeKernel_ptsz(KERNEL_PARAMETERS) {
    LAUNCH(true, cuLaunchCooperativeKernel_ptsz(KERNEL_ARGUMENTS));
}

static inline void enter_config(struct passage *p, const CUlaunchConfig *config, CUfunction f,
                                bool per_thread) {
    p->card = NULL;
    if (config)
        throttle_enter(p, f, throttle_grid(config->gridDimX, config->gridDimY, config->gridDimZ),
                       throttle_grid(config->blockDimX, config->blockDimY, config->blockDimZ),
                       config->hStream, per_thread);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                          void **extra) {
    struct passage p;

    enter_config(&p, config, f, false);
    return throttle_leave(&p, driver.cuLaunchKernelEx(config, f, kernel_params, extra));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                               void **extra) {
    struct passage p;

    enter_config(&p, config, f, true);
    return throttle_leave(&p, driver.cuLaunchKernelEx_ptsz(config, f, kernel_params, extra));
}

/* Makes the context of a stream current; false when it has none of its own. */
static bool push_context(CUstream stream) {
    CUcontext context = NULL;

    return driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context &&
           driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static void pop_context(void) {
    CUcontext context;

    (void) driver.cuCtxPopCurrent_v2(&context);
}

/* Each of the devices is charged for its own part, one after the other, in its own context. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launch_params_list,
                                              unsigned int num_devices, unsigned int flags) {
    struct passage p[GATE_DEVICES_MAX];
    unsigned int n = launch_params_list && num_devices <= GATE_DEVICES_MAX ? num_devices : 0;
    CUresult r;

    for (unsigned int i = 0; i < n; i++) {
        const CUDA_LAUNCH_PARAMS *l = &launch_params_list[i];

        p[i].card = NULL;
        if (throttle_open() || !push_context(l->hStream))
            continue;
        throttle_enter(&p[i], l->function, throttle_grid(l->gridDimX, l->gridDimY, l->gridDimZ),
                       throttle_grid(l->blockDimX, l->blockDimY, l->blockDimZ), l->hStream, false);
        pop_context();
    }
    r = driver.cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags);
    for (unsigned int i = 0; i < n; i++) {
        if (!p[i].card || !push_context(launch_params_list[i].hStream))
            continue;
        (void) throttle_leave(&p[i], r);
        pop_context();
    }
    return r;
}

CUresult cuLaunch(CUfunction f) {
    struct passage p;

    throttle_enter(&p, f, 0, 0, NULL, false);
    return throttle_leave(&p, driver.cuLaunch(f));
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    struct passage p;

    throttle_enter(&p, f, throttle_grid((unsigned int) grid_width, (unsigned int) grid_height, 0),
                   0, NULL, false);
    return throttle_leave(&p, driver.cuLaunchGrid(f, grid_width, grid_height));
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream stream) {
    struct passage p;

    throttle_enter(&p, f, throttle_grid((unsigned int) grid_width, (unsigned int) grid_height, 0),
                   0, stream, false);
    return throttle_leave(&p, driver.cuLaunchGridAsync(f, grid_width, grid_height, stream));
}
