/* SPDX-License-Identifier: Apache-2.0 */

/* What the arbiter costs: 128 containers on 16 cards, all idle, then all computing; percent of one
 * CPU of the arbiter's thread, and decisions about a card per second. The accounts are moved by
 * another thread, whose CPU time is not counted. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "share/arbiter.h"

#define CARDS 16
#define PER_CARD 8
#define N (CARDS * PER_CARD)
#define SECONDS 3

static struct tenant {
    struct compute_file *accounts;
    struct arbiter_member *member;
} tenants[N];

static int join(struct arbiter *a, const char *dir, int i) {
    char grants[128], compute[128];
    struct share_limits limits = {.ndevices = 1};
    int r;

    (void) snprintf(grants, sizeof(grants), "%s/%d-grants", dir, i);
    (void) snprintf(compute, sizeof(compute), "%s/%d-compute", dir, i);
    (void) snprintf(limits.device[0].uuid, sizeof(limits.device[0].uuid), "GPU-%d", i % CARDS);
    limits.device[0].core_percent = 100 / PER_CARD;
    limits.device[0].policy = SHARE_BURST;
    r = compute_create(grants, compute, NULL);
    if (r == 0)
        r = compute_map(compute, &tenants[i].accounts);
    return r < 0 ? r : arbiter_join(a, &limits, grants, compute, &tenants[i].member, NULL);
}

static void pass_time(bool computing) {
    const struct timespec t = {.tv_nsec = 5000000};

    for (int k = 0; k < SECONDS * 200; k++) {
        for (int i = 0; i < N && computing; i++) {
            tenants[i].accounts->device[0].charged += 5000000 / PER_CARD;
            tenants[i].accounts->device[0].waits++;
        }
        (void) nanosleep(&t, NULL);
    }
}

static void measure(struct arbiter *a, const char *what, bool computing) {
    struct arbiter_stats before, after;
    struct timespec t0, t1;
    double wall;

    pass_time(computing);
    arbiter_stats(a, &before);
    (void) clock_gettime(CLOCK_MONOTONIC, &t0);
    pass_time(computing);
    arbiter_stats(a, &after);
    (void) clock_gettime(CLOCK_MONOTONIC, &t1);
    wall = (double) (t1.tv_sec - t0.tv_sec) + (double) (t1.tv_nsec - t0.tv_nsec) / 1e9;
    printf("%s.cpu-percent\t%.2f\n%s.steps-per-second\t%.0f\n", what,
           (double) (after.cpu_ns - before.cpu_ns) / wall / 1e7, what,
           (double) (after.steps - before.steps) / wall);
}

int main(void) {
    char dir[] = "/dev/shm/arbiter-bench-XXXXXX";
    struct arbiter *a;
    int r;

    if (!mkdtemp(dir) || arbiter_start(&a, NULL) < 0)
        return EXIT_FAILURE;
    for (int i = 0; i < N; i++)
        if (join(a, dir, i) < 0)
            return EXIT_FAILURE;
    measure(a, "idle", false);
    measure(a, "computing", true);
    a = arbiter_stop(a);
    r = dir_remove(dir, NULL);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
