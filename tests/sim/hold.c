/* SPDX-License-Identifier: Apache-2.0 */

/* hold BYTES [DEVICE]: takes memory of a device and keeps it until standard input ends.
 * Prints the result, what is free then, and its PID. BYTES "free": all there is. */

#include <string.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    REQUIRE(argc >= 2);
    (void) check_start(argc > 2 ? (int) strtol(argv[2], NULL, 10) : 0);
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    size_t bytes = strcmp(argv[1], "free") == 0 ? free_bytes : strtoull(argv[1], NULL, 10);
    CUdeviceptr p = 0;
    CUresult r = cuMemAlloc_v2(&p, bytes);
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    (void) printf("%d %zu %d\n", (int) r, free_bytes, (int) getpid());
    (void) fflush(stdout);
    while (getchar() != EOF) {
    }
    if (r == CUDA_SUCCESS)
        OK(cuMemFree_v2(p));
    return 0;
}
