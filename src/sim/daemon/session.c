/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/session.h"

#include <stdlib.h>
#include <unistd.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/engine.h"
#include "sim/daemon/ipc_memory.h"
#include "sim/daemon/memlimit.h"
#include "sim/daemon/shared_event.h"
#include "sim/list.h"

struct sim_session *session_begin(struct sim_machine *m, pid_t pid, const uint64_t token[2]) {
    struct sim_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->machine = m;
    s->pid = pid;
    s->pidfd = -1;
    s->proc = -1;
    s->token[0] = token[0];
    s->token[1] = token[1];
    LIST_PUSH(m->sessions, s, next);
    return s;
}

struct sim_session *session_by_token(struct sim_machine *m, const uint64_t token[2]) {
    for (struct sim_session *s = m->sessions; s; s = s->next)
        if (s->token[0] == token[0] && s->token[1] == token[1])
            return s;
    return NULL;
}

/* With a card, its parts. */
static void detach_parts(struct sim_session *s, uint32_t minor) {
    const struct sim_machine *m = s->machine;
    for (uint32_t i = SIM_MAX_GPUS; minor < m->ngpus && i < m->nunits; i++)
        if (m->gpu[i].page && m->gpu[i].page->parent == minor)
            session_detach(s, i);
}

void session_detach(struct sim_session *s, uint32_t minor) {
    detach_parts(s, minor);
    struct sim_channel *c = s->channel[minor];
    s->attached[minor / 64] &= ~(1ull << (minor % 64));
    s->monitored[minor / 64] &= ~(1ull << (minor % 64));
    if (!c)
        return;
    engine_drop_channel(c);
    s->channel[minor] = c; /* until its shares are released */
    ipc_memory_release_all(s, minor);
    memlimit_release_all(&c->charges);
    channel_give(c, c->used);
    if (c->contexts)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    s->channel[minor] = NULL;
    free(c);
}

void session_end(struct sim_session *s) {
    for (uint32_t i = 0; i < s->machine->nunits; i++)
        session_detach(s, i);
    engine_drop_session(s);
    shared_event_close_all(s);
    for (struct sim_session **p = &s->machine->sessions; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    if (s->proc >= 0)
        (void) close(s->proc);
    free(s);
}

void session_break(struct sim_session *s, uint32_t minor, uint32_t result, bool lost) {
    struct sim_channel *c = s->channel[minor];
    if (!session_attached(s, minor) || (c && c->contexts == 0 && !lost) || (!c && !lost))
        return;
    s->broken[minor] = result;
    if (s->ring)
        atomic_store(&s->ring->broken[minor], result);
    if (!c)
        return;
    engine_stop_channel(c);
    if (!lost)
        return;
    ipc_memory_release_all(s, minor);
    memlimit_release_all(&c->charges);
    channel_give(c, c->used);
    if (c->contexts)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    c->contexts = 0;
}
