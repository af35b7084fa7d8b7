/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "share/arbitration.h"
#include "share/compute.h"

/* A tenant writes anything into its account, or truncates it, between the arbiter's polls. After
 * each poll the other tenant, which behaves, still gets its share. */

#define PIECE 64
#define POLL_NS 10000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char grants[64], path[64];

static struct compute *open_account(void) {
    struct compute *compute;

    (void) snprintf(grants, sizeof(grants), "/tmp/fuzz-accounts-%d-grants", (int) getpid());
    (void) snprintf(path, sizeof(path), "/tmp/fuzz-accounts-%d", (int) getpid());
    (void) unlink(path);
    (void) unlink(grants);
    if (compute_create(grants, path, NULL) < 0 || compute_open(grants, path, &compute, NULL) < 0)
        abort();
    return compute;
}

/* The first byte of a piece says what is done with the rest of it. */
static void scribble(const uint8_t *piece, size_t len) {
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);

    if (piece[0] == 0xff)
        (void) !ftruncate(fd, len > 1 ? piece[1] * 16 : 0);
    else
        /* Over the head and the first account, or where the processes begin. */
        (void) !pwrite(fd, piece + 1, len - 1,
                       piece[0] < 0x80 ? piece[0] * 4
                                       : (off_t) COMPUTE_SIZE_LEAST + (piece[0] - 0x80) * 34);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct compute *compute = open_account();
    struct arbitration_tenant t[2] = {{.policy = SHARE_BURST, .share_percent = 30},
                                      {.policy = SHARE_BURST, .share_percent = 70}};
    struct unsettled unsettled = {.devices = 1};
    uint64_t now = 1000000000;

    for (size_t at = 0; at < size && at < 64 * PIECE; at += PIECE) {
        uint64_t next;

        scribble(data + at, size - at < PIECE ? size - at : PIECE);
        unsettled_pass(&unsettled, POLL_NS, 0, 1);
        if (unsettled_reserve(&unsettled, t[0].usage.processes))
            compute_settle(compute, 0, &unsettled, now);
        t[0].pending_ns = unsettled.pending_ns;
        (void) compute_read(compute, 0, &t[0].usage);
        t[1].usage.charged += POLL_NS * 7 / 10;
        t[1].usage.waits++;
        now += POLL_NS;
        next = arbitration_step(t, 2, now);
        if (next == 0 || next > 1000000000 || t[1].entitled < 700000 || t[1].grant.rate < 690000)
            abort();
        for (size_t i = 0; i < 2; i++)
            compute_grant(compute, 0, &t[i].grant);
    }
    unsettled_done(&unsettled);
    compute = compute_free(compute);
    (void) unlink(path);
    (void) unlink(grants);
    return 0;
}
