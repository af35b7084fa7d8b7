/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory pools are booked by what they hold, not by what was allocated from them: a pool keeps
 * freed memory up to its release threshold, and grows in pieces larger than was asked for. */

#include "intercept/share.h"

/* Makes pools of this process give back what they keep without use, and books that. True if
 * anything changed. */
bool pools_give_back(struct share *share);

/* Brings the books up to what the pools hold now. */
void pools_refresh(struct share *share);

/* The program has waited for the device: frees that were in its streams have happened. */
void pools_waited(void);

/* For cuMemFree of memory that came from a pool: `book` is the link of the entry. */
void pool_freed(struct share *share, uint64_t book, uint64_t bytes);
