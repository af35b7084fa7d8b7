/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a GPU busy as well as it can: gpu-spin NANOSECONDS [KERNELS]. One kernel of that length
 * after the other, a few always queued; KERNELS of them and then "done=KERNELS wall_ms=...", else
 * for ever. Says "started" when the first has been launched.
 *
 * gpu-spin NANOSECONDS 0 SHORT: for ever 1,000 kernels of SHORT nanoseconds, each waited for, and
 * then 20 of NANOSECONDS. The function and its grid are the same, so a measurement mostly sees the
 * short ones.
 */

#include <inttypes.h>
#include <stdint.h>
#include <time.h>

#include "kernel.h"

#define QUEUED 24

static uint64_t now_ns(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

#define SHORT_KERNELS 1000
#define LONG_KERNELS 20

static void alternate(CUfunction function, uint64_t long_ns, uint64_t short_ns) {
    for (uint64_t n = 0;; n++) {
        launch(function, n % (SHORT_KERNELS + LONG_KERNELS) < SHORT_KERNELS ? short_ns : long_ns);
        OK(CUDA(cuCtxSynchronize, (void) )());
    }
}

int main(int argc, char **argv) {
    uint64_t ns = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000, begin;
    uint64_t kernels = argc > 2 ? strtoull(argv[2], NULL, 10) : UINT64_MAX, n = 0;
    CUfunction wait = load();
    CUevent event[2];

    end_on_sigterm();
    if (argc > 3)
        alternate(wait, ns, strtoull(argv[3], NULL, 10));
    for (int i = 0; i < 2; i++)
        OK(CUDA(cuEventCreate, (CUevent *, unsigned int) )(&event[i], CU_EVENT_DISABLE_TIMING));
    begin = now_ns();
    for (; n < kernels; n++) {
        launch(wait, ns);
        if (n == 0) {
            (void) puts("started");
            (void) fflush(stdout);
        }
        if (n % QUEUED != QUEUED - 1)
            continue;
        OK(CUDA(cuEventRecord, (CUevent, CUstream))(event[n / QUEUED % 2], NULL));
        if (n >= QUEUED)
            OK(CUDA(cuEventSynchronize, (CUevent))(event[(n / QUEUED + 1) % 2]));
    }
    OK(CUDA(cuCtxSynchronize, (void) )());
    (void) printf("done=%" PRIu64 " wall_ms=%.1f\n", n, (double) (now_ns() - begin) / 1e6);
    return 0;
}
