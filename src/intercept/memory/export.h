/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that several processes have open. The process that made it has booked it, those that open
 * it book nothing: the slot of the ledger in which it is booked is kept, also after the end of its
 * owner, while a process of the container has such memory open (share/ledger_core.h). Memory of
 * another container is booked by the process that opens it. */

#include "intercept/memory/charge.h"

/* Other processes can open the memory at `base` from now on. */
void export_pointer(CUdeviceptr base);

/* Exported memory has been freed here. It stays booked while other processes have it open. */
void export_freed(struct share *share, int device, uint64_t bytes);

/* Refunds freed memory that no process has open any more; true if anything changed. */
bool exports_give_back(struct share *share);

struct import {
    struct share *share; /* NULL: nothing to note */
    bool foreign;        /* no process of this container exports anything */
};

/* Around a call that opens memory of another process. False: the share is broken, or it cannot be
 * kept booked for lack of a descriptor: answer CUDA_ERROR_OUT_OF_MEMORY. */
bool import_begin(struct import *import);
CUresult import_settle(struct import *import, CUresult result);

/* What was opened has been closed. */
void import_ended(struct share *share);
