/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

/* The loader writes to writable segments only: libraries of today have no text relocations. */
static int unmap_read_only(struct dl_phdr_info *info, size_t size, void *userdata) {
    const uintptr_t page = (uintptr_t) getpagesize();

    (void) size, (void) userdata;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type != PT_LOAD || p->p_flags & PF_W)
            continue;
        uintptr_t begin = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
        uintptr_t end = (info->dlpi_addr + p->p_vaddr + p->p_filesz + page - 1) & ~(page - 1);
        (void) madvise((void *) begin, end - begin, MADV_DONTNEED);
    }
    return 0;
}

void memory_give_back(void) {
    (void) malloc_trim(0);
    (void) dl_iterate_phdr(unmap_read_only, NULL);
}
