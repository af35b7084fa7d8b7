/* SPDX-License-Identifier: Apache-2.0 */

/* spin NS COUNT [DEVICE]: COUNT kernels of NS each. Prints its PID, waits for a line on standard
 * input, so that several can start together, and prints the milliseconds that it took by the clock
 * and by events. */

#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    REQUIRE(argc >= 3);
    unsigned long long ns = strtoull(argv[1], NULL, 10);
    long count = strtol(argv[2], NULL, 10);
    (void) check_start(argc > 3 ? (int) strtol(argv[3], NULL, 10) : 0);
    CUfunction spin = check_function("spin");
    CUevent begin, end;
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    (void) printf("%d\n", (int) getpid());
    (void) fflush(stdout);
    (void) getchar();
    unsigned long long before = check_now_ns();
    OK(cuEventRecord(begin, NULL));
    for (long i = 0; i < count; i++)
        check_spin(spin, ns, NULL);
    OK(cuEventRecord(end, NULL));
    OK(cuEventSynchronize(end));
    unsigned long long after = check_now_ns();
    float ms;
    OK(cuEventElapsedTime(&ms, begin, end));
    (void) printf("%.3f %.3f\n", (double) (after - before) / 1e6, (double) ms);
    return 0;
}
