/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a process has a file mapped so that it can write it, by the kernel's word. The answer
 * takes as long as the process can keep its address space busy, so it is read by a thread of its
 * own, which nothing waits for. */

#include <stdint.h>
#include <sys/types.h>

enum mapped_answer {
    MAPPED_PENDING,
    MAPPED_YES,
    MAPPED_NO,
    MAPPED_UNKNOWN, /* it is gone, or could not be asked */
};

struct mapped_query;

/* Starts a search of the process's mappings for the file of that device and inode. NULL: no thread
 * could be started. The caller owns the result. */
struct mapped_query *mapped_query(int pid, dev_t device, ino_t inode);

enum mapped_answer mapped_answer(const struct mapped_query *query);

/* Also while it is pending. Returns NULL; accepts NULL. */
struct mapped_query *mapped_free(struct mapped_query *query);
