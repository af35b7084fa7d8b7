/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's side against a ledger that a hostile tenant has written on: the input is a list of
 * patches, 12 bytes each: where (4 bytes) and what (8 bytes). The place 0xffffffff sets the file's
 * size instead. */

#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "share/ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATCH 12
#define RESIZE UINT32_MAX

static char path[64];

static int fresh_ledger(void) {
    int fd;

    if (!path[0]) {
        (void) snprintf(path, sizeof(path), "/tmp/aliquot-fuzz-ledger-%d", (int) getpid());
    }
    (void) unlink(path);
    if (ledger_create(path, NULL) < 0)
        abort();
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

static void scribble(int fd, const uint8_t *data, size_t size) {
    for (size_t i = 0; i + PATCH <= size; i += PATCH) {
        uint32_t where;
        uint64_t what;

        memcpy(&where, data + i, sizeof(where));
        memcpy(&what, data + i + 4, sizeof(what));
        if (where == RESIZE) {
            if (ftruncate(fd, (off_t) (what % (2 * sizeof(struct ledger_file)))) < 0)
                abort();
        } else if (pwrite(fd, &what, sizeof(what), where % sizeof(struct ledger_file)) !=
                   sizeof(what)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_close_ int fd = fresh_ledger();
    struct ledger_process process[8];
    struct ledger_usage usage;
    struct ledger *ledger;
    uint64_t orphaned;
    int r;

    /* Opened while it was whole, as the agent does; what follows happens behind its back. */
    if (ledger_open(path, &ledger, NULL) < 0)
        abort();
    scribble(fd, data, size);
    r = ledger_sweep(ledger);
    if (r < -EBADMSG || r > LEDGER_SLOTS)
        abort();
    r = ledger_processes(ledger, process, 8);
    if (r > 8)
        abort();
    (void) ledger_get_orphaned(ledger, (unsigned int) size % LEDGER_DEVICES, &orphaned);
    if (ledger_credit(ledger, 0, size) > 0)
        abort();
    r = ledger_snapshot(ledger, &usage);
    if (r != 0 && r != -EBADMSG)
        abort();
    r = ledger_sweep_for(ledger, 0);
    if (r < -EBADMSG || r > 1)
        abort();
    ledger_free(ledger);
    if (ledger_open(path, &ledger, NULL) == 0)
        ledger_free(ledger);
    (void) unlink(path);
    return 0;
}
