/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a GPU busy for a part of the time, which a file says: gpu-load FILE. Each 20 ms one kernel
 * of so many percent of them; what the file says is read each time, and is 0 where it says nothing.
 */

#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"

#define PERIOD_NS UINT64_C(20000000)

/* Of a card; at most 100. */
static uint64_t read_percent(const char *path) {
    FILE *file = fopen(path, "re");
    char text[16] = "";

    if (!file)
        return 0;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void) fclose(file);
    uint64_t percent = strtoull(text, NULL, 10);
    return percent < 100 ? percent : 100;
}

int main(int argc, char **argv) {
    CUfunction wait = load();
    struct timespec next;

    if (argc != 2)
        return EXIT_FAILURE;
    end_on_sigterm();
    (void) clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        uint64_t ns = PERIOD_NS / 100 * read_percent(argv[1]);

        if (ns > 0)
            launch(wait, ns);
        OK(CUDA(cuCtxSynchronize, (void) )());
        next.tv_nsec += (long) PERIOD_NS;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}
