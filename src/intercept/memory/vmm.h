/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What refers to memory of cuMemCreate beside its handles and mappings (vmm.c): a place in an
 * object, which is a multicast object or a sparse array. */

#include "intercept/memory/holdings.h"

/* Around calls of the driver that make or end a reference to memory of cuMemCreate, together with
 * what is entered of it (vmm.c). `share` may be NULL. */
void handle_lock(struct share *share);
void handle_unlock(struct share *share);

/* Reserves room for one binding and takes a reference to the handle; false: it is not in our books.
 */
bool binding_begin(struct share *share, uint64_t handle);

/* Enters the binding of `handle` at `place` of `object`, or gives the reference back where the
 * driver has refused it. */
CUresult binding_settle(struct share *share, CUresult result, uint64_t object, uint64_t place,
                        uint64_t handle);

/* Around a call of the driver that ends the bindings of an object with from <= place < to of memory
 * on a device (-1: on any): marks those that there are, so that one that another thread makes at
 * the same place meanwhile stays, and ends them, or unmarks them where the driver has refused. */
uint32_t bindings_mark(struct share *share, uint64_t object, uint64_t from, uint64_t to,
                       CUdevice device);
CUresult bindings_settle(struct share *share, CUresult result, uint32_t mark);

/* The handle mapped at an address, or 0. */
uint64_t handle_mapped_at(struct share *share, CUdeviceptr address);
