/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The token by which agents let this command read what containers use. It is of ServiceAccount
 * aliquot-figures and for agents only, so that it works for every way to log in, and is of no use
 * elsewhere. */

#include "base/err.h"

/* The token for the agents in the namespace, requested when it is first needed and again before it
 * expires. NULL with a text that names cause and remedy where it cannot be had; the agents of older
 * versions answer without. Valid until the next call. Each thread has one of its own. */
const char *agent_token(const char *system, struct err *err);

/* To be called when an agent does not take it: the next call requests another one, but not within a
 * minute of the last, as one agent alone may do so. */
void agent_token_refused(void);

/* No trace of it stays: of a thread that ends. */
void agent_token_forget(void);
