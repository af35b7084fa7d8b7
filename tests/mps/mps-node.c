/* SPDX-License-Identifier: Apache-2.0 */

/* MPS of a node with one card, without the rest of the agent: prints each state, and obeys lines of
 * standard input.
 *
 *     mps-node PROGRAM DIR SELINUX CONTROL SERVER NVML UUID DEADLINE_MS INTERVAL_MS
 *
 *     run PERCENT MIB CLIENTS   the card is to be under MPS, with these limits
 *     stop                      it is not
 *     held NUMBER               so many containers have the card
 *     lost, back                the card is unhealthy, healthy again
 *     fault, reset              the verdict takes the card from new pods, gives it back
 *     pause, resume             the card is to be closed, for a reset; it may be opened again
 *     start, restart            prints how a container starts on the card, and starts again
 *     divided                   the card is in MIG mode
 *     close                     the agent ends
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/mps/mps.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "base/units.h"

static struct {
    struct mps *mps;
    uv_pipe_t in;
    struct gpu_snapshot snapshot;
    struct mps_card card;
    struct mps_driver driver;
    uint32_t held;
    bool lost, paused;
    char line[256];
    size_t have;
    char shown[512];
} node;

static bool find_driver(struct mps_driver *ret, char ret_why[static GPU_REASON_MAX],
                        void *userdata) {
    (void) userdata;
    text_copy(ret_why, GPU_REASON_MAX, "no GPU driver was found on this node");
    *ret = node.driver;
    return ret->nvml[0] != 0;
}

static uint32_t count_holders(const char *uuid, void *userdata) {
    (void) uuid;
    (void) userdata;
    return node.held;
}

static void show(void *userdata) {
    struct mps_card_status status = {0};
    char text[512];

    (void) userdata;
    if (!node.mps)
        return;
    if (node.paused)
        (void) snprintf(text, sizeof(text), "%s",
                        mps_pause(node.mps, node.card.uuid) ? "paused" : "pausing");
    else if (!mps_card_status(node.mps, node.card.uuid, &status))
        (void) snprintf(text, sizeof(text), "none");
    else
        (void) snprintf(text, sizeof(text), "%s restarts=%llu %s",
                        status.ready ? "ready" : "not-ready", (unsigned long long) status.restarts,
                        status.why);
    if (strcmp(text, node.shown) == 0)
        return;
    text_copy(node.shown, sizeof(node.shown), text);
    (void) puts(text);
    (void) fflush(stdout);
}

static void show_start(bool again) {
    const char *dir = "";
    struct err err;
    int r = mps_card_directory(node.mps, node.card.uuid, again, &dir, &err);

    (void) printf("start: %s\n", r < 0 ? err.text : r > 0 ? dir : "without MPS");
    (void) fflush(stdout);
}

static void on_closed(void *userdata) {
    uv_close((uv_handle_t *) &node.in, NULL);
    (void) userdata;
}

static void obey(const char *line) {
    struct gpu_device *d = &node.snapshot.devices[0];
    unsigned long long mib;

    if (sscanf(line, "run %u %llu %u", &node.card.limits.percent, &mib,
               &node.card.limits.clients) == 3) {
        node.card.limits.memory = mib * MIB;
        mps_set_cards(node.mps, &node.card, 1);
    } else if (strcmp(line, "stop") == 0) {
        mps_set_cards(node.mps, NULL, 0);
    } else if (strncmp(line, "held", 4) == 0) {
        node.held = (uint32_t) strtoul(line + 4, NULL, 10);
    } else if (strcmp(line, "close") == 0) {
        mps_close(take_ptr(node.mps), on_closed, NULL);
        return;
    }
    if (strcmp(line, "resume") == 0)
        mps_resume(node.mps, node.card.uuid);
    node.paused = node.paused ? strcmp(line, "resume") != 0 : strcmp(line, "pause") == 0;
    if (strcmp(line, "fault") == 0)
        d->service = GPU_SERVES_NONE;
    else if (strcmp(line, "reset") == 0)
        d->service = GPU_SERVES;
    node.lost = node.lost ? strcmp(line, "back") != 0 : strcmp(line, "lost") == 0;
    d->divided = d->divided || strcmp(line, "divided") == 0;
    d->healthy = !node.lost;
    d->reason[0] = 0;
    (void) mps_judge(node.mps, d);
    mps_update(node.mps, &node.snapshot);
    show(NULL);
    if (strcmp(line, "start") == 0 || strcmp(line, "restart") == 0)
        show_start(strcmp(line, "restart") == 0);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *ret) {
    (void) handle;
    (void) size;
    *ret = uv_buf_init(node.line + node.have, (unsigned) (sizeof(node.line) - 1 - node.have));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    char *end;

    (void) buf;
    if (n < 0)
        (void) uv_read_stop(stream);
    node.have += n > 0 ? (size_t) n : 0;
    node.line[node.have] = 0;
    while (node.mps && (end = strchr(node.line, '\n'))) {
        *end = 0;
        obey(node.line);
        node.have -= (size_t) (end + 1 - node.line);
        memmove(node.line, end + 1, node.have + 1);
    }
}

int main(int argc, char **argv) {
    struct mps_options options = {
        .daemon = {.driver = find_driver, .bounded = true, .on_change = show},
        .holders = count_holders};
    struct err err;

    if (argc != 10)
        return EXIT_FAILURE;
    options.daemon.program = argv[1];
    options.dir = argv[2];
    options.daemon.selinux = argv[3];
    text_copy(node.driver.control, sizeof(node.driver.control), argv[4]);
    text_copy(node.driver.server, sizeof(node.driver.server), argv[5]);
    text_copy(node.driver.nvml, sizeof(node.driver.nvml), argv[6]);
    text_copy(node.card.uuid, sizeof(node.card.uuid), argv[7]);
    options.daemon.deadline_ms = (unsigned) strtoul(argv[8], NULL, 10);
    options.daemon.interval_ms = (unsigned) strtoul(argv[9], NULL, 10);
    options.daemon.retry_max_ms = 500;
    node.snapshot.ndevices = 1;
    node.snapshot.devices[0].healthy = true;
    text_copy(node.snapshot.devices[0].uuid, sizeof(node.snapshot.devices[0].uuid), argv[7]);
    if (mps_start(uv_default_loop(), &options, &node.mps, &err) < 0) {
        (void) fprintf(stderr, "%s\n", err.text);
        return EXIT_FAILURE;
    }
    (void) uv_pipe_init(uv_default_loop(), &node.in, 0);
    (void) uv_pipe_open(&node.in, 0);
    (void) uv_read_start((uv_stream_t *) &node.in, on_alloc, on_read);
    show(NULL);
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
