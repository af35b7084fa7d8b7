/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/shared_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/daemon/wake.h"
#include "sim/list.h"

struct sim_shared_event *shared_event_find(struct sim_machine *m, const uint64_t id[2]) {
    for (struct sim_shared_event *i = m->events; i; i = i->next)
        if (i->id[0] == id[0] && i->id[1] == id[1])
            return i;
    return NULL;
}

int shared_event_open(struct sim_session *s, struct sim_shared_event *e, uint32_t *ret_slot) {
    for (uint32_t i = 0; i < SIM_SHARED_EVENTS; i++)
        if (!s->event[i]) {
            s->event[i] = e;
            e->holders++;
            *ret_slot = i;
            return 0;
        }
    return -EMFILE;
}

int shared_event_new(struct sim_session *s, struct sim_shared_event_page *page, int fd,
                     const uint64_t id[2], uint32_t *ret_slot) {
    struct sim_shared_event *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    int r = shared_event_open(s, e, ret_slot);
    if (r < 0) {
        free(e);
        return r;
    }
    e->id[0] = id[0];
    e->id[1] = id[1];
    e->page = page;
    e->fd = fd;
    LIST_PUSH(s->machine->events, e, next);
    return 0;
}

void shared_event_pass(struct sim_machine *m, struct sim_shared_event *e, uint64_t n) {
    if (n <= e->passed)
        return;
    e->passed = n;
    atomic_store(&e->page->passed, n);
    if (atomic_exchange(&e->page->waiters, 0))
        sim_wake(&e->page->passed);
    m->event_passed = true;
}

static void destroy_event(struct sim_machine *m, struct sim_shared_event *e) {
    struct sim_shared_event **p = &m->events;
    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    (void) munmap(e->page, sizeof(*e->page));
    (void) close(e->fd);
    free(e);
}

int shared_event_close(struct sim_session *s, uint64_t slot) {
    struct sim_shared_event *e = slot < SIM_SHARED_EVENTS ? s->event[slot] : NULL;
    if (!e)
        return -EINVAL;
    s->event[slot] = NULL;
    if (--e->holders == 0)
        destroy_event(s->machine, e);
    return 0;
}

void shared_event_close_all(struct sim_session *s) {
    for (uint32_t i = 0; i < SIM_SHARED_EVENTS; i++)
        if (s->event[i])
            (void) shared_event_close(s, i);
}
