/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "sim/daemon/engine.h"
#include "sim/daemon/ipc_memory.h"
#include "sim/daemon/memlimit.h"
#include "sim/daemon/shared_event.h"

#define PCI_BUSES 32u /* cards of one domain */

/* splitmix64's output function: spreads a counter over 64 bits. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t hash_text(const char *text, uint64_t h) {
    for (; *text; text++)
        h = mix(h ^ (uint8_t) *text);
    return h;
}

static void describe_identity(struct sim_page *p, const char *seed) {
    uint64_t hi = hash_text(seed, 0x616c6971756f74ull + p->minor);
    uint64_t lo = mix(hi);
    hi = (hi & ~0xf000ull) | 0x4000ull; /* the shape of a random UUID */
    lo = (lo >> 2) | (1ull << 63);
    for (int i = 0; i < 8; i++) {
        p->uuid_bytes[i] = (uint8_t) (hi >> (56 - 8 * i));
        p->uuid_bytes[8 + i] = (uint8_t) (lo >> (56 - 8 * i));
    }
    (void) snprintf(p->uuid, sizeof(p->uuid), "GPU-%08x-%04x-%04x-%04x-%012llx",
                    (unsigned) (hi >> 32), (unsigned) (hi >> 16) & 0xffff, (unsigned) hi & 0xffff,
                    (unsigned) (lo >> 48), (unsigned long long) (lo & 0xffffffffffffull));
    (void) snprintf(p->serial, sizeof(p->serial), "%013llu",
                    (unsigned long long) (mix(lo) % 10000000000000ull));
}

void machine_describe(struct sim_page *p, uint32_t minor, const struct sim_model *m,
                      const char *seed) {
    p->magic = SIM_MAGIC;
    p->minor = minor;
    (void) snprintf(p->name, sizeof(p->name), "%s", m->name);
    describe_identity(p, seed);
    p->memory_total = m->memory;
    p->context_bytes = m->context_mib * MIB;
    p->cc_major = m->cc_major;
    p->cc_minor = m->cc_minor;
    p->sm_count = m->sm_count;
    p->cores = (uint32_t) m->sm_count * m->cores_per_sm;
    p->sm_clock_mhz = m->sm_mhz;
    p->memory_clock_mhz = m->memory_mhz;
    p->bus_bits = m->bus_bits;
    p->l2_bytes = (uint32_t) m->l2_mib << 20;
    p->shared_per_sm = (uint32_t) m->shared_kib << 10;
    p->power_limit_mw = m->watts * 1000u;
    p->power_idle_mw = m->idle_watts * 1000u;
    p->memory_mbps = m->memory_gbps * 1000u;
    p->pci_domain = minor / PCI_BUSES;
    p->pci_bus = 0x07 + minor % PCI_BUSES * 4u;
    p->pci_id = (uint32_t) m->pci_device << 16 | 0x10de;
    p->pci_subsystem = (uint32_t) m->pci_subdevice << 16 | 0x10de;
    p->architecture = m->architecture;
    p->brand = m->brand;
    p->pcie_gen = m->pcie_gen;
    p->pcie_width = 16;
    p->ecc = m->ecc;
    (void) snprintf(p->vbios, sizeof(p->vbios), "%s", m->vbios);
    p->passive = m->brand != 15;
    p->nvlink_version = m->nvlink_version;
    p->nvlink_max = m->nvlinks;
    p->parent = minor;
    p->setting[SIM_SETTING_PERSISTENCE] = 1;
    p->setting[SIM_SETTING_POWER_LIMIT] = p->power_limit_mw;
}

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
    s->next = m->sessions;
    m->sessions = s;
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

struct sim_channel *session_channel(struct sim_session *s, uint32_t minor) {
    if (minor >= s->machine->nunits || !s->machine->gpu[minor].page || !session_attached(s, minor))
        return NULL;
    if (!s->channel[minor]) {
        struct sim_channel *c = calloc(1, sizeof(*c));
        if (!c)
            return NULL;
        c->session = s;
        c->gpu = &s->machine->gpu[minor];
        c->meter.period_ns = c->gpu->meter.period_ns;
        s->channel[minor] = c;
    }
    return s->channel[minor];
}

/* The use of an instance is also in the figures of the card and of the other instances. */
static void set_used(struct sim_gpu *g, uint64_t used) {
    struct sim_machine *m = g->machine;
    uint64_t before = g->used;
    g->used = used;
    if (!g->bank) {
        atomic_store(&g->page->memory_used, used);
        return;
    }
    g->bank->used += used - before;
    for (uint32_t i = SIM_MAX_GPUS; i < m->nunits; i++)
        if (m->gpu[i].page && m->gpu[i].bank == g->bank)
            atomic_store(&m->gpu[i].page->memory_used, g->bank->used);
    struct sim_gpu *card = &m->gpu[g->page->parent];
    set_used(card, card->used + used - before);
}

static uint64_t free_bytes(const struct sim_gpu *g) {
    return g->bank ? g->bank->total - g->bank->used
                   : g->page->memory_total - g->page->memory_reserved - g->used;
}

int channel_take(struct sim_channel *c, uint64_t bytes) {
    struct sim_gpu *g = c->gpu;
    if (bytes > free_bytes(g))
        return -ENOMEM;
    set_used(g, g->used + bytes);
    c->used += bytes;
    if (c->used > c->peak)
        c->peak = c->used;
    return 0;
}

void machine_give(struct sim_gpu *g, uint64_t bytes) {
    set_used(g, g->used - bytes);
}

void channel_give(struct sim_channel *c, uint64_t bytes) {
    if (bytes > c->used - c->shared)
        bytes = c->used - c->shared;
    c->used -= bytes;
    machine_give(c->gpu, bytes);
    if (c->managed > c->used - c->shared)
        c->managed = c->used - c->shared;
}

int channel_context_create(struct sim_channel *c, uint64_t *ret_bytes) {
    uint64_t bytes = c->gpu->page->context_bytes;
    int r = channel_take(c, bytes);
    if (r < 0)
        return r;
    if (c->contexts++ == 0)
        atomic_fetch_add(&c->gpu->page->clients, 1);
    *ret_bytes = bytes;
    return 0;
}

int channel_context_destroy(struct sim_channel *c) {
    if (c->contexts == 0)
        return -EINVAL;
    if (--c->contexts == 0)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    memlimit_release(c, c->gpu->page->context_bytes, NULL);
    channel_give(c, c->gpu->page->context_bytes);
    return 0;
}

int channel_suspend(struct sim_channel *c) {
    if (c->suspended)
        return -EALREADY;
    if (c->shared > 0)
        return -EBUSY;
    c->suspended = true;
    c->away = c->used;
    c->contexts_away = c->contexts;
    channel_give(c, c->used);
    if (c->contexts > 0)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    c->contexts = 0;
    memlimit_release_all(&c->charges);
    return 0;
}

int channel_resume(struct sim_channel *c) {
    if (!c->suspended)
        return -EALREADY;
    int r = channel_take(c, c->away);
    if (r < 0)
        return r;
    if (c->contexts_away > 0 && c->contexts == 0)
        atomic_fetch_add(&c->gpu->page->clients, 1);
    c->contexts += c->contexts_away;
    c->suspended = false;
    c->away = c->contexts_away = 0;
    return 0;
}
