/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Libraries: modules that belong to no context. Each context that uses one gets a module of its
 * own, loaded at first use. */

#include "sim/cuda/module.h"

/* The function that a kernel is in the calling thread's context. `kernel` has TAG_KERNEL. */
CUresult library_function(CUkernel kernel, CUfunction *ret);

/* A context that ends takes its modules with it. */
void library_release_context(CUcontext ctx);
