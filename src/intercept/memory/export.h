/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that several processes have open. Whoever made it has booked it, who opens it books
 * nothing: the one slot of the ledger where it stands is kept, also after its owner's death, while
 * anybody in the container has such memory open (share/ledger_core.h). Memory of another container
 * is booked by who opens it. */

#include "intercept/memory/charge.h"

/* Others can open the memory at `base` from now on. */
void export_pointer(CUdeviceptr base);

/* Memory that was exported has been freed here. It stays booked while others have it open. */
void export_freed(struct share *share, int device, uint64_t bytes);

/* Takes what nobody has open any more out of the books; true if anything changed. */
bool exports_give_back(struct share *share);

struct import {
    struct share *share; /* NULL: nothing to note */
    bool foreign;        /* nobody in this container exports anything */
};

/* Around a call that opens the memory of others. False: the share is broken, or it cannot be kept
 * booked for lack of a descriptor: answer CUDA_ERROR_OUT_OF_MEMORY. */
bool import_begin(struct import *import);
CUresult import_settle(struct import *import, CUresult result);

/* What was opened has been closed. */
void import_ended(struct share *share);
