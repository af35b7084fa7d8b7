/* SPDX-License-Identifier: Apache-2.0 */

/* The ring that a client of the simulated driver shares with the daemon: any bytes at all in it. */

#include <stdlib.h>
#include <string.h>

#include "sim/daemon/engine.h"
#include "sim/daemon/machine.h"
#include "sim/daemon/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sim_ring ring, honest_ring;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sim_page page;
    struct sim_machine machine = {.ngpus = 1, .nunits = 1};
    memset(&page, 0, sizeof(page));
    memset(&ring, 0, sizeof(ring));
    memset(&honest_ring, 0, sizeof(honest_ring));
    machine_describe(&page, 0, model_find("T4"), "fuzz");
    machine.gpu[0].page = &page;
    const uint64_t tokens[2][2] = {{1, 2}, {3, 4}};
    struct sim_session *s = session_begin(&machine, 1, tokens[0]);
    struct sim_session *honest = session_begin(&machine, 2, tokens[1]);
    if (!s || !honest)
        abort();
    session_attach(s, 0);
    session_attach(honest, 0);
    s->ring = &ring;
    honest->ring = &honest_ring;
    honest_ring.entries[0] = (struct sim_entry){.kind = SIM_KERNEL, .a = 1000};
    honest_ring.tail = 1;
    uint64_t now = 0;
    for (size_t at = 0; at + sizeof(struct sim_entry) <= size; at += sizeof(struct sim_entry)) {
        struct sim_entry e;
        memcpy(&e, data + at, sizeof(e));
        uint32_t tail = ring.tail;
        ring.entries[tail % SIM_RING_SIZE] = e;
        ring.tail = e.kind == 0xff ? e.slot : tail + 1;
        ring.queue[e.queue % SIM_QUEUES].released = e.slot;
        (void) engine_run(&machine, now += 1000 + e.a % 10000000);
    }
    /* Whatever it was: the other process has its turn. */
    (void) engine_run(&machine, now += 2 * ENGINE_SLICE_NS);
    (void) engine_run(&machine, now += 2 * ENGINE_SLICE_NS);
    if (honest_ring.queue[0].done != 1)
        abort();
    s->ring = honest->ring = NULL;
    session_end(s);
    session_end(honest);
    return 0;
}
