/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/control.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "abi/nvml.h"
#include "base/buf.h"
#include "sim/daemon/config.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/fault.h"
#include "sim/daemon/host_view.h"

#define REPAIRS_MAX 65535u
#define ADVANCE_MAX_NS (86400ull * 1000000000ull)

int control_parse(const void *data, size_t len, struct sim_control *ret) {
    struct sim_control c;
    if (len != sizeof(c))
        return -EPROTO;
    memcpy(&c, data, sizeof(c));
    if (c.magic != SIM_CONTROL_MAGIC || c.op < SIM_DO_SHOW || c.op >= SIM_DO_END || c.zero != 0 ||
        !memchr(c.names, 0, sizeof(c.names)))
        return -EPROTO;
    *ret = c;
    return 0;
}

/* -- the state of the machine ----------------------------------------------------------------- */

static const char *const state_names[] = {"healthy", "needs-reset", "lost"};

static void show_gpu(const struct sim_machine *m, uint32_t minor, struct buf *out) {
    const struct sim_gpu *g = &m->gpu[minor];
    const struct sim_page *p = g->page;
    uint32_t state = atomic_load(&p->state);
    buf_printf(out,
               "gpu=%u uuid=%s state=%s memory_total=%llu memory_used=%llu pressure=%llu "
               "busy_ns=%llu switching_ns=%llu clock_ns=%llu clients=%u ",
               minor, p->uuid, state < 3 ? state_names[state] : "?",
               (unsigned long long) p->memory_total, (unsigned long long) g->used,
               (unsigned long long) g->pressure, (unsigned long long) g->meter.total,
               (unsigned long long) g->switching, (unsigned long long) g->now,
               atomic_load(&p->clients));
    buf_printf(out, "persistence=%s ",
               atomic_load(&p->setting[SIM_SETTING_PERSISTENCE]) ? "on" : "off");
    if (m->host->vgpu)
        buf_printf(out, "licence=%s ", config_licence_name(atomic_load(&p->licence)));
    buf_printf(out, "model=%s\n", p->name);
}

static void show_processes(const struct sim_machine *m, struct buf *out) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        for (uint32_t i = 0; i < m->nunits; i++) {
            const struct sim_channel *c = s->channel[i];
            if (c && (c->contexts > 0 || c->used > 0 || c->meter.total > 0))
                buf_printf(
                    out,
                    "process=%d gpu=%u contexts=%u memory=%llu busy_ns=%llu queued=%u broken=%u\n",
                    (int) s->pid, i, c->contexts, (unsigned long long) c->used,
                    (unsigned long long) c->meter.total, s->nitems, s->broken[i]);
        }
}

static void show_rules(const struct sim_machine *m, struct buf *out) {
    for (uint32_t i = 0; i < SIM_FAULTS; i++) {
        const struct sim_fault *f = &m->host->fault[i];
        const struct fault_rule *r = &m->rule[i];
        if (!(atomic_load(&f->generation) & 1))
            continue;
        buf_printf(out, "%s=%s status=%u skip=%u times=%u done=%u pid=%d",
                   r->hang ? "hang" : "error", f->names, r->status, r->skip, r->times, r->done,
                   (int) r->pid);
        if (r->one_card)
            buf_printf(out, " gpu=%u", r->card);
        buf_puts(out, "\n");
    }
}

struct limits_shown {
    uint32_t minor;
    struct buf *out;
};

static void show_limit(uint64_t id, const struct sim_memory_limits *l, void *userdata) {
    const struct limits_shown *shown = userdata;
    buf_printf(shown->out, "limit=%llu gpu=%u soft=%llu ", (unsigned long long) id, shown->minor,
               (unsigned long long) l->soft);
    if (l->hard == MEMLIMIT_NONE)
        buf_puts(shown->out, "hard=none");
    else
        buf_printf(shown->out, "hard=%llu", (unsigned long long) l->hard);
    buf_printf(shown->out, " used=%llu\n", (unsigned long long) l->used);
}

static void show_limits(const struct sim_machine *m, struct buf *out) {
    for (uint32_t i = 0; i < m->ngpus; i++) {
        struct limits_shown shown = {i, out};
        memlimit_each(&m->gpu[i], show_limit, &shown);
    }
}

static int do_show(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) c;
    const struct sim_machine *m = &d->machine;
    buf_printf(out, "driver=%s loaded=%s pids=%s events=%u\n", m->host->driver,
               d->unloaded ? "no" : "yes", m->host->host_pids ? "host" : "namespace",
               atomic_load(&m->host->events));
    for (uint32_t i = 0; i < m->nunits; i++)
        if (m->gpu[i].page)
            show_gpu(m, i, out);
    show_processes(m, out);
    show_limits(m, out);
    show_rules(m, out);
    return 0;
}

/* -- changes --------------------------------------------------------------------------------- */

static int do_xid_instance(struct daemon *d, const struct sim_control *c, struct buf *out) {
    int r = fault_xid_instance(&d->machine, c->minor, c->nth - 1, c->times - 1, c->code);
    if (r == -ENOENT)
        buf_printf(out, "GPU %u has no such MIG instance", c->minor);
    else if (r == -EINVAL)
        buf_printf(out, "XID %u takes the card off the bus with all its instances", c->code);
    return r;
}

static int do_xid(struct daemon *d, const struct sim_control *c, struct buf *out) {
    if (c->nth > 0)
        return do_xid_instance(d, c, out);
    if (c->pid && !fault_in_use(&d->machine, c->minor, (pid_t) c->pid)) {
        buf_printf(out, "process %u has no context on GPU %u", c->pid, c->minor);
        return -ESRCH;
    }
    fault_xid(&d->machine, c->minor, c->code, (pid_t) c->pid);
    return 0;
}

static int do_ecc(struct daemon *d, const struct sim_control *c, struct buf *out) {
    if (!d->machine.gpu[c->minor].page->ecc) {
        buf_printf(out, "GPU %u has no ECC", c->minor);
        return -EOPNOTSUPP;
    }
    fault_ecc(&d->machine, c->minor, c->code != 0, c->amount);
    return 0;
}

/* Rows are remapped from Ampere on, pages are retired before. */
static int do_repair(struct daemon *d, const struct sim_control *c, bool remap, struct buf *out) {
    const struct sim_page *page = d->machine.gpu[c->minor].page;
    bool remaps = page->architecture >= NVML_DEVICE_ARCH_AMPERE;
    if (!page->ecc || d->machine.host->vgpu || remap != remaps) {
        buf_printf(out, "GPU %u (%s) does not %s", c->minor, page->name,
                   remap ? "remap rows" : "retire pages");
        return -EOPNOTSUPP;
    }
    if (c->code >= SIM_REPAIRS || c->code == SIM_REPAIR_PENDING || c->amount > REPAIRS_MAX)
        return -EINVAL;
    fault_repair(&d->machine, c->minor, (enum sim_repair) c->code, (uint32_t) c->amount);
    return 0;
}

static int do_remap(struct daemon *d, const struct sim_control *c, struct buf *out) {
    return do_repair(d, c, true, out);
}

static int do_retire(struct daemon *d, const struct sim_control *c, struct buf *out) {
    return do_repair(d, c, false, out);
}

static int do_sram(struct daemon *d, const struct sim_control *c, struct buf *out) {
    struct sim_page *page = d->machine.gpu[c->minor].page;
    if (!page->ecc || page->architecture < NVML_DEVICE_ARCH_AMPERE) {
        buf_printf(out, "GPU %u (%s) has no threshold of SRAM errors", c->minor, page->name);
        return -EOPNOTSUPP;
    }
    atomic_store(&page->sram_exceeded, 1);
    return 0;
}

static int do_link(struct daemon *d, const struct sim_control *c, struct buf *out) {
    const struct sim_page *page = d->machine.gpu[c->minor].page;
    if (c->code >= page->nvlinks) {
        buf_printf(out, "GPU %u (%s) has %u NVLinks that lead somewhere", c->minor, page->name,
                   page->nvlinks);
        return -ENODEV;
    }
    fault_link(&d->machine, c->minor, c->code, c->amount == 0);
    return 0;
}

static int do_lose(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) out;
    fault_lose(&d->machine, c->minor);
    return 0;
}

static int reset_card(struct daemon *d, uint32_t minor) {
    int r = fault_reset(&d->machine, minor);
    if (r == 0)
        daemon_forget_instances(d, minor);
    return r;
}

static int do_return(struct daemon *d, const struct sim_control *c, struct buf *out) {
    if (atomic_load(&d->machine.gpu[c->minor].page->state) != SIM_LOST) {
        buf_printf(out, "GPU %u is not lost", c->minor);
        return -EINVAL;
    }
    return reset_card(d, c->minor);
}

static int check_reset(const struct daemon *d, uint32_t minor, bool forced, struct buf *out) {
    const struct sim_page *page = d->machine.gpu[minor].page;
    pid_t opener = fault_opener(&d->machine, minor, 0);
    if (atomic_load(&page->state) == SIM_LOST) {
        buf_printf(out, "GPU %u is off the bus; `return` brings it back", minor);
        return -EINVAL;
    }
    if (d->machine.host->vgpu && !forced) {
        buf_printf(out, "GPU %u is a vGPU: only its host can reset it", minor);
        return -EOPNOTSUPP;
    }
    if (opener && !forced) {
        buf_printf(out, "GPU %u is in use by another client: process %d has it open", minor,
                   (int) opener);
        return -EBUSY;
    }
    if (!forced && atomic_load(&page->setting[SIM_SETTING_PERSISTENCE])) {
        buf_printf(out, "GPU %u is in use by another client: its persistence mode is on", minor);
        return -EBUSY;
    }
    if (fault_in_use(&d->machine, minor, 0)) {
        buf_printf(out, "GPU %u is in use", minor);
        return -EBUSY;
    }
    return 0;
}

static int do_reset(struct daemon *d, const struct sim_control *c, struct buf *out) {
    int r = check_reset(d, c->minor, c->code != 0, out);
    return r < 0 ? r : reset_card(d, c->minor);
}

static int do_persistence(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) out;
    atomic_store(&d->machine.gpu[c->minor].page->setting[SIM_SETTING_PERSISTENCE], c->code != 0);
    return 0;
}

static int do_pressure(struct daemon *d, const struct sim_control *c, struct buf *out) {
    int r = fault_pressure(&d->machine, c->minor, c->amount);
    if (r < 0)
        buf_printf(out, "GPU %u has not that much memory left", c->minor);
    return r;
}

static int do_unload(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) c;
    (void) out;
    daemon_unload(d);
    for (uint32_t i = 0; i < d->machine.ngpus; i++)
        daemon_forget_instances(d, i);
    return 0;
}

static int do_load(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) c;
    (void) out;
    daemon_load(d);
    return 0;
}

static int no_such_gpu(const struct daemon *d, const struct sim_control *c, struct buf *out) {
    buf_printf(out, "there is no GPU %u, only %u of them", c->minor, d->machine.ngpus);
    return -ENODEV;
}

static int arm_fault(struct daemon *d, const struct sim_control *c, bool hang, struct buf *out) {
    const struct fault_rule rule = {
        .hang = hang,
        .status = c->code,
        .skip = c->nth > 0 ? c->nth - 1 : 0,
        .times = c->times,
        .pid = (pid_t) c->pid,
        .one_card = c->minor != SIM_ALL,
        .card = c->minor,
    };
    if (rule.one_card && rule.card >= d->machine.ngpus)
        return no_such_gpu(d, c, out);
    if (c->names[0] == '\0') {
        buf_puts(out, "no call is named");
        return -EINVAL;
    }
    int r = fault_arm(&d->machine, c->names, &rule);
    if (r < 0)
        buf_printf(out, "there are already %u rules; `release` ends them", SIM_FAULTS);
    return r < 0 ? r : 0;
}

static int do_fail(struct daemon *d, const struct sim_control *c, struct buf *out) {
    return arm_fault(d, c, false, out);
}

static int do_hang(struct daemon *d, const struct sim_control *c, struct buf *out) {
    return arm_fault(d, c, true, out);
}

static int do_release(struct daemon *d, const struct sim_control *c, struct buf *out) {
    uint32_t n = fault_release(&d->machine, c->names[0] ? c->names : NULL);
    if (n == 0 && c->names[0]) {
        buf_printf(out, "there is no rule for '%s'", c->names);
        return -ENOENT;
    }
    return 0;
}

static int do_advance(struct daemon *d, const struct sim_control *c, struct buf *out) {
    if (!d->stepped) {
        buf_puts(out, "the clock of this machine goes by itself; see `clock = stepped`");
        return -EINVAL;
    }
    if (c->amount > ADVANCE_MAX_NS) {
        buf_puts(out, "that is more than a day");
        return -EINVAL;
    }
    d->clock += c->amount;
    return 0;
}

static int do_destroy(struct daemon *d, const struct sim_control *c, struct buf *out) {
    int r = daemon_end_instance(d, c->minor, c->code);
    if (r == -ENOENT)
        buf_printf(out, "GPU %u has no GPU instance %u", c->minor, c->code);
    else if (r == -EBUSY)
        buf_printf(out, "a descriptor keeps memory of GPU instance %u of GPU %u", c->code,
                   c->minor);
    return r;
}

static int do_swap(struct daemon *d, const struct sim_control *c, struct buf *out) {
    uint32_t other = c->code;
    if (other >= d->machine.ngpus || other == c->minor) {
        buf_printf(out, "there is no other GPU %u", other);
        return -ENODEV;
    }
    bool forced = c->amount != 0;
    int r = check_reset(d, c->minor, forced, out);
    if (r == 0)
        r = check_reset(d, other, forced, out);
    if (r == 0)
        r = reset_card(d, c->minor);
    if (r == 0)
        r = reset_card(d, other);
    if (r < 0)
        return r;
    struct err err;
    struct sim_page *a = d->machine.gpu[c->minor].page, *b = d->machine.gpu[other].page;
    atomic_store(&b->number, atomic_exchange(&a->number, atomic_load(&b->number)));
    listener_swap(d, c->minor, other);
    r = capability_swap(d, c->minor, other, &err);
    if (r == 0)
        r = host_view_renumber(d->dir, &d->machine, c->minor, &err);
    if (r == 0)
        r = host_view_renumber(d->dir, &d->machine, other, &err);
    if (r < 0)
        buf_puts(out, err.text);
    return r;
}

static int do_temperature(struct daemon *d, const struct sim_control *c, struct buf *out) {
    (void) out;
    atomic_store(&d->machine.gpu[c->minor].page->temperature, c->code);
    return 0;
}

static int do_licence(struct daemon *d, const struct sim_control *c, struct buf *out) {
    if (!d->machine.host->vgpu || c->code >= SIM_LICENCES) {
        buf_puts(out, "only the vGPUs of a guest have a licence; see `virtualization = vgpu`");
        return -EINVAL;
    }
    machine_license(d->machine.gpu[c->minor].page, (enum sim_licence) c->code, daemon_wall_s());
    return 0;
}

static const struct {
    int (*run)(struct daemon *d, const struct sim_control *c, struct buf *out);
    bool about_a_gpu;
} operations[SIM_DO_END] = {
    [SIM_DO_SHOW] = {do_show, false},        [SIM_DO_XID] = {do_xid, true},
    [SIM_DO_ECC] = {do_ecc, true},           [SIM_DO_LOSE] = {do_lose, true},
    [SIM_DO_RETURN] = {do_return, true},     [SIM_DO_RESET] = {do_reset, true},
    [SIM_DO_PRESSURE] = {do_pressure, true}, [SIM_DO_UNLOAD] = {do_unload, false},
    [SIM_DO_LOAD] = {do_load, false},        [SIM_DO_FAIL] = {do_fail, false},
    [SIM_DO_ADVANCE] = {do_advance, false},  [SIM_DO_HANG] = {do_hang, false},
    [SIM_DO_RELEASE] = {do_release, false},  [SIM_DO_PERSISTENCE] = {do_persistence, true},
    [SIM_DO_LICENCE] = {do_licence, true},   [SIM_DO_DESTROY] = {do_destroy, true},
    [SIM_DO_SRAM] = {do_sram, true},         [SIM_DO_SWAP] = {do_swap, true},
    [SIM_DO_REMAP] = {do_remap, true},       [SIM_DO_RETIRE] = {do_retire, true},
    [SIM_DO_LINK] = {do_link, true},         [SIM_DO_TEMPERATURE] = {do_temperature, true},
};

int control_serve(struct daemon *d, int fd, const struct sim_control *c) {
    _cleanup_buf_ struct buf out = BUF_INIT(SIM_CONTROL_TEXT);
    struct {
        int32_t status;
        uint32_t len;
    } head = {0};
    if (operations[c->op].about_a_gpu && c->minor >= d->machine.ngpus) {
        head.status = no_such_gpu(d, c, &out);
    } else {
        head.status = operations[c->op].run(d, c, &out);
    }
    head.len = (uint32_t) out.len;
    struct iovec iov[2] = {{&head, sizeof(head)}, {out.data, out.len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}
