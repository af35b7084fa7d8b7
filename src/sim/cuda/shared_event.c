/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/shared_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/cuda/ring.h"
#include "sim/cuda/stream.h"

CUresult shared_event_open(const uint64_t *id, struct shared_event **ret) {
    struct client_answer a = {.list = NULL};
    struct sim_request q = {.magic = SIM_MAGIC,
                            .op = id ? SIM_EVENT_OPEN : SIM_EVENT_SHARE,
                            .token = {id ? id[0] : 0, id ? id[1] : 0}};
    int r = client_request(&cuda_client, &q, -1, &a);
    struct shared_event *e = r == 0 ? calloc(1, sizeof(*e)) : NULL;
    void *page = MAP_FAILED;
    if (e)
        page = mmap(NULL, sizeof(*e->page), PROT_READ | PROT_WRITE, MAP_SHARED, a.fds[0], 0);
    if (a.fds[0] >= 0)
        (void) close(a.fds[0]);
    if (page != MAP_FAILED) {
        *e = (struct shared_event){
            .id = {a.reply.token[0], a.reply.token[1]}, .slot = (uint32_t) a.reply.a, .page = page};
        *ret = e;
        return CUDA_SUCCESS;
    }
    if (r == 0)
        (void) client_do(&cuda_client, SIM_EVENT_CLOSE, 0, a.reply.a);
    free(e);
    if (r == -ENOENT)
        return CUDA_ERROR_INVALID_VALUE;
    return r == 0 || r == -EMFILE ? CUDA_ERROR_OUT_OF_MEMORY : cuda_from_errno(r);
}

void shared_event_close(struct shared_event *e) {
    (void) client_do(&cuda_client, SIM_EVENT_CLOSE, 0, e->slot);
    (void) munmap(e->page, sizeof(*e->page));
    free(e);
}

CUresult shared_event_record(CUstream s, struct shared_event *e) {
    return stream_submit(s, SIM_SIGNAL, e->slot, atomic_fetch_add(&e->page->recorded, 1) + 1);
}

bool shared_event_is_complete(const struct shared_event *e) {
    return atomic_load(&e->page->passed) >= atomic_load(&e->page->recorded);
}

CUresult shared_event_wait(CUstream s, struct shared_event *e) {
    if (shared_event_is_complete(e))
        return CUDA_SUCCESS;
    return stream_submit(s, SIM_AWAIT, e->slot, atomic_load(&e->page->recorded));
}

CUresult shared_event_synchronize(struct shared_event *e) {
    uint64_t n = atomic_load(&e->page->recorded);
    return ring_wait_word(&e->page->passed, n, &e->page->waiters);
}
