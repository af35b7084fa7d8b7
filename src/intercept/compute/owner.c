/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/owner.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The smallest page size. */
#define PAGE_BYTES 4096

/* Makes sure that there is memory behind a part of the file, where the file system has no more: a
 * write would end the process. With Linux before 5.14 or larger pages this is not known. */
static bool backed(void *part, size_t size) {
    size_t before = (uintptr_t) part % PAGE_BYTES;

    return madvise((char *) part - before, before + size, MADV_POPULATE_WRITE) == 0 ||
           errno == EINVAL;
}

static void clear(struct compute_file *file, uint32_t place) {
    for (uint32_t i = 0; i < COMPUTE_DEVICES; i++) {
        __atomic_store_n(&file->work[place][i].moves, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&file->work[place][i].added, 0, __ATOMIC_RELAXED);
        compute_release_held(file, place, i);
    }
}

/* The robust list's pending operation is always set. At the end of the thread the kernel treats it
 * as interrupted: it marks the futex if it has the thread's TID, and does nothing otherwise. */
static bool await_end(struct owner *owner, uint32_t *word) {
    owner->head.list.next = &owner->head.list;
    owner->head.futex_offset = (char *) word - (char *) &owner->place;
    owner->head.list_op_pending = &owner->place;
    return syscall(SYS_set_robust_list, &owner->head, sizeof(owner->head)) == 0;
}

/* The arbiter is notified of a slot before its use. */
static void raise_limit(struct compute_file *file, uint32_t n) {
    uint32_t old = __atomic_load_n(&file->processes, __ATOMIC_RELAXED);

    while (old < n && !__atomic_compare_exchange_n(&file->processes, &old, n, false,
                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* `taken`: the value of a slot that can be claimed. */
static int claim(struct owner *owner, struct compute_file *file, uint32_t taken) {
    uint32_t tid = (uint32_t) syscall(SYS_gettid);

    for (uint32_t i = 0; i < COMPUTE_PROCESSES; i++) {
        uint32_t expected = taken;

        if (__atomic_load_n(&file->owner[i], __ATOMIC_RELAXED) != taken)
            continue;
        if (!backed(file->work[i], sizeof(file->work[i])))
            return -1;
        raise_limit(file, i + 1);
        /* Without a mark the dead would count as stopped. */
        if (!await_end(owner, &file->owner[i]))
            return -1;
        if (!__atomic_compare_exchange_n(&file->owner[i], &expected, tid, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        clear(file, i);
        return (int) i;
    }
    return -1;
}

int owner_claim(struct owner *owner, struct compute_file *file) {
    int at;

    if (!backed(file->owner, sizeof(file->owner)))
        return -1;
    at = claim(owner, file, 0);
    /* Without an arbiter, places of dead processes are not freed. */
    return at >= 0 ? at : claim(owner, file, FUTEX_OWNER_DIED);
}
