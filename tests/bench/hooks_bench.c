/* SPDX-License-Identifier: Apache-2.0 */

/* What libaliquot.so adds to a call of the driver: CPU time with the library less CPU time without,
 * against a driver that does nothing; each the best of many rounds, in a process of its own. Prints
 * one `name<TAB>nanoseconds` a line. */

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "abi/cuda.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "share/ledger.h"
#include "share/limits.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define CALLS 20000
#define ROUNDS 60
#define INITS 40
#define CALL_KINDS 3
#define KINDS 4

static const char *const names[KINDS] = {"cuMemAlloc+cuMemFree", "cuLaunchKernel", "cuMemGetInfo",
                                         "cuInit, once a process"};

static double cpu_ns(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec * 1e9 + (double) t.tv_nsec;
}

static void call(int kind) {
    CUdeviceptr pointer;
    size_t free_bytes, total;

    if (kind == 0) {
        if (cuMemAlloc_v2(&pointer, 4096) == CUDA_SUCCESS)
            (void) cuMemFree_v2(pointer);
    } else if (kind == 1) {
        (void) cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    } else {
        (void) cuMemGetInfo_v2(&free_bytes, &total);
    }
}

static double best_of(int kind) {
    double best = 1e18;

    for (int round = 0; round < ROUNDS; round++) {
        double start = cpu_ns(), taken;

        for (int i = 0; i < CALLS; i++)
            call(kind);
        taken = (cpu_ns() - start) / CALLS;
        best = taken < best ? taken : best;
    }
    return best;
}

/* Each in a child, which has not begun yet. */
static double best_init(void) {
    double best = 1e18;

    for (int i = 0; i < INITS; i++) {
        double taken = 1e18;
        int ends[2];
        pid_t pid;

        if (pipe(ends) < 0 || (pid = fork()) < 0)
            return -1;
        if (pid == 0) {
            double start = cpu_ns();
            (void) cuInit(0);
            taken = cpu_ns() - start;
            _exit(write(ends[1], &taken, sizeof(taken)) == (ssize_t) sizeof(taken) ? 0 : 1);
        }
        if (read(ends[0], &taken, sizeof(taken)) != (ssize_t) sizeof(taken))
            taken = 1e18;
        (void) waitpid(pid, NULL, 0);
        (void) close(ends[0]);
        (void) close(ends[1]);
        best = taken < best ? taken : best;
    }
    return best;
}

static int measure(void) {
    double init = best_init();

    (void) cuInit(0);
    for (int kind = 0; kind < CALL_KINDS; kind++)
        (void) printf("%.3f\n", best_of(kind));
    (void) printf("%.3f\n", init);
    return 0;
}

/* Runs this program again with the null driver, and with the library where there is one. */
static int run_measured(const char *self, const char *driver_dir, const char *library,
                        const char *share, double ret[KINDS]) {
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    int ends[2];
    pid_t pid;
    FILE *f;

    if (pipe(ends) < 0 || (pid = fork()) < 0)
        return -1;
    if (pid == 0) {
        (void) dup2(ends[1], STDOUT_FILENO);
        (void) setenv("LD_LIBRARY_PATH", driver_dir, 1);
        if (library) {
            (void) setenv("LD_PRELOAD", library, 1);
            (void) setenv("ALIQUOT_SHARE_DIR", share, 1);
        }
        (void) execl(self, self, "--measure", (char *) NULL);
        _exit(127);
    }
    (void) close(ends[1]);
    f = fdopen(ends[0], "r");
    for (int i = 0; f && i < KINDS; i++)
        ret[i] = getline(&line, &size, f) > 0 ? strtod(line, NULL) : -1;
    if (f)
        (void) fclose(f);
    return waitpid(pid, NULL, 0) == pid && ret[KINDS - 1] >= 0 ? 0 : -1;
}

static int make_share(const char *dir, struct err *err) {
    struct share_limits limits = {.ndevices = 1};
    char path[PATH_MAX];

    (void) snprintf(limits.device[0].uuid, sizeof(limits.device[0].uuid),
                    "GPU-01010101-0101-0101-0101-010101010101");
    limits.device[0].memory_bytes = 1 << 30;
    (void) snprintf(path, sizeof(path), "%s/limits", dir);
    if (limits_create(path, &limits, err) < 0)
        return -1;
    (void) snprintf(path, sizeof(path), "%s/ledger", dir);
    return ledger_create(path, err);
}

static bool sibling(const char *self, const char *relative, char ret[PATH_MAX]) {
    char path[PATH_MAX];
    const char *slash = strrchr(self, '/');

    if (snprintf(path, sizeof(path), "%.*s/%s", (int) (slash - self), self, relative) >=
        (int) sizeof(path))
        return false;
    return realpath(path, ret) != NULL;
}

int main(int argc, char **argv) {
    char self[PATH_MAX], driver_dir[PATH_MAX], library[PATH_MAX],
        share[] = "/tmp/aliquot-bench-XXXXXX";
    double without[KINDS], with[KINDS];
    struct err err = {.text = "cannot run"};
    int r = 1;

    if (argc > 1 && strcmp(argv[1], "--measure") == 0)
        return measure();
    if (!realpath("/proc/self/exe", self) || !sibling(self, "null", driver_dir) ||
        !sibling(self, "../../src/intercept/libaliquot.so", library) || !mkdtemp(share)) {
        (void) fprintf(stderr, "hooks_bench: run it in the build tree, with everything built\n");
        return 1;
    }
    if (make_share(share, &err) == 0 && run_measured(self, driver_dir, NULL, NULL, without) == 0 &&
        run_measured(self, driver_dir, library, share, with) == 0) {
        for (int kind = 0; kind < KINDS; kind++)
            (void) printf("%s\t%.1f\n", names[kind], with[kind] - without[kind]);
        r = 0;
    } else {
        (void) fprintf(stderr, "hooks_bench: %s\n", err.text);
    }
    (void) dir_remove(share, NULL);
    return r;
}
