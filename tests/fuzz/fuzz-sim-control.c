/* SPDX-License-Identifier: Apache-2.0 */

/* Packets on the control socket, carried out on a machine with a process on it. */

#include <stdlib.h>
#include <string.h>

#include "sim/daemon/control.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/fault.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct daemon d;
    static struct sim_host host;
    static struct sim_page page;
    const uint64_t token[2] = {1, 2};
    uint64_t bytes;
    uint32_t status;
    memset(&d, 0, sizeof(d));
    memset(&host, 0, sizeof(host));
    memset(&page, 0, sizeof(page));
    machine_describe(&page, 0, model_find("A30"), "fuzz");
    d.machine.host = &host;
    d.machine.ngpus = d.machine.nunits = 1;
    d.machine.gpu[0].page = &page;
    struct sim_session *s = session_begin(&d.machine, 1, token);
    check(s != NULL);
    session_attach(s, 0);
    (void) channel_context_create(session_channel(s, 0), &bytes);
    for (size_t at = 0; at < size; at += sizeof(struct sim_control)) {
        struct sim_control c;
        size_t n = size - at < sizeof(c) ? size - at : sizeof(c);
        /* The clients themselves are the daemon's, and there is none here to lose. */
        if (control_parse(data + at, n, &c) < 0 || c.op == SIM_DO_UNLOAD)
            continue;
        check(control_serve(&d, -1, &c) < 0); /* no connection for the answer */
        for (uint32_t i = 0; i < SIM_FAULTS; i++)
            (void) fault_judge(&d.machine, i, host.fault[i].generation, 1, c.minor, &status);
        check(page.memory_used <= page.memory_total && host.faults <= SIM_FAULTS);
        check(page.state <= SIM_LOST);
    }
    session_end(s);
    check(page.memory_used == d.machine.gpu[0].pressure && page.clients == 0);
    return 0;
}
