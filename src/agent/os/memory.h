/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gives back memory that this process needed for a time only: free pages of the heap, and pages of
 * the program and its libraries that nothing can have changed. The latter stay in the page cache
 * and are mapped again at the next access. Any thread; other threads may run meanwhile. */
void memory_give_back(void);
