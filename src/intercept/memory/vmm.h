/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What refers to memory of cuMemCreate beside its handles and mappings (vmm.c): a place in an
 * object, which is a multicast object or a sparse array. */

#include "intercept/share.h"

/* Promises room for one binding and takes a reference to the handle; false: it is not in our books.
 */
bool binding_begin(struct share *share, uint64_t handle);

/* Enters the binding of `handle` at `place` of `object`, or gives the reference back where the
 * driver has refused it. */
CUresult binding_settle(struct share *share, CUresult result, uint64_t object, uint64_t place,
                        uint64_t handle);

/* Ends the bindings of an object with from <= place < to of memory on a device (-1: on any). */
void bindings_end(struct share *share, uint64_t object, uint64_t from, uint64_t to,
                  CUdevice device);

/* The handle mapped at an address, or 0. */
uint64_t handle_mapped_at(struct share *share, CUdeviceptr address);
