/* SPDX-License-Identifier: Apache-2.0 */

/* Packets from clients of the simulated driver, and what they do to the state of the machine. */

#include <stdlib.h>
#include <string.h>

#include "sim/machine.h"
#include "sim/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
    if (!condition)
        abort();
}

static void serve(struct sim_session *s, const struct sim_request *q) {
    struct sim_channel *c = session_channel(s, q->minor);
    uint64_t bytes;
    if (c && q->op == SIM_ALLOC)
        (void) channel_take(c, q->a);
    else if (c && q->op == SIM_FREE)
        channel_give(c, q->a);
    else if (c && q->op == SIM_CTX_CREATE)
        (void) channel_context_create(c, &bytes);
    else if (c && q->op == SIM_CTX_DESTROY)
        (void) channel_context_destroy(c);
}

/* Packets, each behind a byte with its length and, in the highest bit, the kind of socket. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sim_page page;
    struct sim_machine machine = {.ngpus = 1};
    memset(&page, 0, sizeof(page));
    machine_describe(&page, 0, model_find("T4"), "fuzz");
    machine.gpu[0].page = &page;
    const uint64_t token[2] = {1, 2};
    struct sim_session *s = session_begin(&machine, 1, token);
    if (!s)
        return 0;
    s->attached = 1;
    for (size_t at = 0; at < size;) {
        size_t n = data[at] & 0x7f;
        bool device_socket = data[at] & 0x80;
        n = n < size - at - 1 ? n : size - at - 1;
        struct sim_request q;
        if (request_parse(data + at + 1, n, device_socket, &q) == 0) {
            check(n == sizeof(q) && q.minor < SIM_MAX_GPUS && q.op > 0 && q.op < SIM_OP_END);
            check(device_socket == (q.op == SIM_ATTACH));
            serve(s, &q);
        }
        check(page.memory_used <= page.memory_total);
        at += 1 + n;
    }
    session_end(s);
    check(page.memory_used == 0 && page.clients == 0);
    return 0;
}
