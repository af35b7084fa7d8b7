/* SPDX-License-Identifier: Apache-2.0 */

/* A context whose maker has ended: another process with the same memory and descriptors goes on in
 * it. Prints the maker's result; for each line of its standard input the other process allocates
 * argv[1] bytes and prints the result. */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static char stack[1 << 18] __attribute__((aligned(16)));
static size_t bytes;

static int go_on(void *unused) {
    CUdeviceptr p;
    char c;

    (void) unused;
    while (read(STDIN_FILENO, &c, 1) == 1) {
        (void) printf("%d\n", (int) cuMemAlloc_v2(&p, bytes));
        (void) fflush(stdout);
    }
    syscall(SYS_exit_group, 0);
    return 0;
}

int main(int argc, char **argv) {
    CUcontext ctx;
    CUresult r;

    if (argc != 2)
        return 2;
    bytes = strtoull(argv[1], NULL, 10);
    r = cuInit(0);
    if (r == CUDA_SUCCESS)
        r = cuCtxCreate_v2(&ctx, 0, 0);
    (void) printf("%d\n", (int) r);
    (void) fflush(stdout);
    if (r != CUDA_SUCCESS || clone(go_on, stack + sizeof(stack), CLONE_VM, NULL) < 0)
        return 1;
    syscall(SYS_exit_group, 0);
    return 0;
}
