/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Long work of an event loop is done in steps. What cannot wait until the work ends runs between
 * two of them. */

#include <stdint.h>

/* From now on `urgent` runs at the end of a step of this thread, at the earliest `every_ns` after
 * this call or its own last end. It must change nothing that work in steps uses; the ends of its
 * own steps do nothing. NULL: nothing runs. */
void step_set_urgent(void (*urgent)(void *userdata), void *userdata, uint64_t every_ns);

/* The end of a step. To be called where the caller's state is whole, as often as is easy: it only
 * reads the clock when nothing is due. Keeps errno. */
void step_end(void);

/* From step_hold() to step_release() of this thread ends of steps do nothing: what `urgent` reads
 * is not whole. They nest. */
void step_hold(void);
void step_release(void);
