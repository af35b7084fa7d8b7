/* SPDX-License-Identifier: Apache-2.0 */

/* Packets from clients of the simulated driver, and what they do to the state of the machine. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/ipc_memory.h"
#include "sim/daemon/machine.h"
#include "sim/daemon/request.h"
#include "sim/daemon/session.h"
#include "sim/daemon/shared_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
    if (!condition)
        abort();
}

/* Names are given here as the fuzzer likes, so that two sessions meet in them. */
static void serve_shared(struct sim_session *s, const struct sim_request *q) {
    struct sim_share *share = ipc_memory_find(s->machine, q->token);
    struct sim_channel *c = session_channel(s, q->minor);
    struct sim_shared_event *e = shared_event_find(s->machine, q->token);
    uint32_t slot;
    if (q->op == SIM_SHARE && c && !share)
        (void) ipc_memory_new(c, q->a, -1, q->token);
    else if (q->op == SIM_SHARE_OPEN && share)
        (void) ipc_memory_hold(share, s);
    else if (q->op == SIM_SHARE_CLOSE && share)
        (void) ipc_memory_release(share, s);
    else if (q->op == SIM_SHARE_EXPORT && share)
        ipc_memory_export(share);
    else if (q->op == SIM_SHARE_IMPORT && share && share->exports > 0)
        ipc_memory_unexport(s->machine, share);
    else if (q->op == SIM_EVENT_CLOSE)
        (void) shared_event_close(s, q->a);
    else if (q->op == SIM_EVENT_OPEN && e)
        check(shared_event_open(s, e, &slot) < 0 || slot < SIM_SHARED_EVENTS);
    else if (q->op == SIM_EVENT_SHARE && !e) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(page != MAP_FAILED);
        if (shared_event_new(s, page, -1, q->token, &slot) < 0)
            (void) munmap(page, 4096);
    }
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
    else if (c && q->op == SIM_SUSPEND)
        (void) channel_suspend(c);
    else if (c && q->op == SIM_RESUME)
        (void) channel_resume(c);
}

/* Packets, each behind a byte with its length and, in the highest bits, the kind of socket and
 * which of two processes sent it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sim_page page;
    static struct sim_machine machine;
    memset(&machine, 0, sizeof(machine));
    machine.ngpus = machine.nunits = 1;
    memset(&page, 0, sizeof(page));
    machine_describe(&page, 0, model_find("T4"), "fuzz");
    machine.gpu[0].page = &page;
    const uint64_t token[2] = {1, 2};
    struct sim_session *s = session_begin(&machine, 1, token);
    struct sim_session *other = session_begin(&machine, 2, token);
    if (!s || !other)
        abort();
    session_attach(s, 0);
    session_attach(other, 0);
    for (size_t at = 0; at < size;) {
        size_t n = data[at] & 0x3f;
        bool device_socket = data[at] & 0x80;
        struct sim_session *sender = data[at] & 0x40 ? other : s;
        n = n < size - at - 1 ? n : size - at - 1;
        struct sim_request q;
        if (request_parse(data + at + 1, n, device_socket, &q) == 0) {
            check(n == sizeof(q) && q.minor < SIM_MAX_UNITS && q.op > 0 && q.op < SIM_OP_END);
            check(device_socket == (q.op == SIM_ATTACH));
            serve(sender, &q);
            serve_shared(sender, &q);
        }
        check(page.memory_used <= page.memory_total);
        at += 1 + n;
    }
    session_end(s);
    session_end(other);
    while (machine.shares) { /* kept by descriptors only */
        check(machine.shares->exports > 0 && !machine.shares->holders);
        ipc_memory_unexport(&machine, machine.shares);
    }
    check(page.memory_used == 0 && page.clients == 0 && !machine.events);
    return 0;
}
