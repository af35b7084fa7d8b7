/* SPDX-License-Identifier: Apache-2.0 */

/* Launches of kernels and graphs, in all their variants: through the gate, then on to the driver.
 */

#include "intercept/driver.h"
#include "intercept/gate.h"

bool gate_closed;

void gate_wait(CUstream stream) {
    (void) stream;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                        unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                        unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                        void **kernel_params, void **extra) {
    gate_pass(stream);
    return driver.cuLaunchKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y,
                                 block_dim_z, shared_mem_bytes, stream, kernel_params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                             unsigned int grid_dim_z, unsigned int block_dim_x,
                             unsigned int block_dim_y, unsigned int block_dim_z,
                             unsigned int shared_mem_bytes, CUstream stream, void **kernel_params,
                             void **extra) {
    gate_pass(stream);
    return driver.cuLaunchKernel_ptsz(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x,
                                      block_dim_y, block_dim_z, shared_mem_bytes, stream,
                                      kernel_params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                          void **extra) {
    gate_pass(config ? config->hStream : NULL);
    return driver.cuLaunchKernelEx(config, f, kernel_params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                               void **extra) {
    gate_pass(config ? config->hStream : NULL);
    return driver.cuLaunchKernelEx_ptsz(config, f, kernel_params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                   unsigned int grid_dim_z, unsigned int block_dim_x,
                                   unsigned int block_dim_y, unsigned int block_dim_z,
                                   unsigned int shared_mem_bytes, CUstream stream,
                                   void **kernel_params) {
    gate_pass(stream);
    return driver.cuLaunchCooperativeKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x,
                                            block_dim_y, block_dim_z, shared_mem_bytes, stream,
                                            kernel_params);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int grid_dim_x,
                                        unsigned int grid_dim_y, unsigned int grid_dim_z,
                                        unsigned int block_dim_x, unsigned int block_dim_y,
                                        unsigned int block_dim_z, unsigned int shared_mem_bytes,
                                        CUstream stream, void **kernel_params) {
    gate_pass(stream);
    return driver.cuLaunchCooperativeKernel_ptsz(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x,
                                                 block_dim_y, block_dim_z, shared_mem_bytes, stream,
                                                 kernel_params);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launch_params_list,
                                              unsigned int num_devices, unsigned int flags) {
    gate_pass(launch_params_list && num_devices ? launch_params_list[0].hStream : NULL);
    return driver.cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags);
}

CUresult cuLaunch(CUfunction f) {
    gate_pass(NULL);
    return driver.cuLaunch(f);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    gate_pass(NULL);
    return driver.cuLaunchGrid(f, grid_width, grid_height);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream stream) {
    gate_pass(stream);
    return driver.cuLaunchGridAsync(f, grid_width, grid_height, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    gate_pass(stream);
    return driver.cuGraphLaunch(exec, stream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    gate_pass(stream);
    return driver.cuGraphLaunch_ptsz(exec, stream);
}
