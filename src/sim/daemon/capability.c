/* SPDX-License-Identifier: Apache-2.0 */

/* Capabilities of MIG: sockets in place of /dev/nvidia-caps/nvidia-cap<number>, and the files of
 * /proc that say which number is what. */

#include <limits.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/host_file.h"
#include "sim/daemon/instance.h"

#define CAPABILITIES "proc/driver/nvidia/capabilities"
#define MINORS "proc/driver/nvidia-caps/mig-minors"
#define LISTED_CARDS 32u /* so many has the driver's list, whatever the machine has */

#define MODE_OWNER 0400
#define MODE_ALL 0444

/* Keeps the socket of an instance that was there before under the same number. */
static int add_node(struct daemon *d, uint32_t number, mode_t mode, struct err *err) {
    for (const struct watch *w = d->watches; w; w = w->next)
        if (w->kind == WATCH_CAPABILITY_LISTENER && w->minor == number)
            return 0;
    char name[64];
    (void) snprintf(name, sizeof(name), SIM_CAP_NAME "%u", number);
    return listener_add(d, &(struct listener){name, WATCH_CAPABILITY_LISTENER, number, mode}, err);
}

static int add_file(const struct daemon *d, const char *name, uint32_t number, mode_t mode,
                    struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(256);
    buf_printf(&text, "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", number,
               (unsigned int) mode);
    return host_file_put(d->dir, name, &text, err);
}

static int add_fixed(struct daemon *d, const char *name, uint32_t number, mode_t mode,
                     struct err *err) {
    char path[128];
    (void) snprintf(path, sizeof(path), CAPABILITIES "/mig/%s", name);
    int r = add_file(d, path, number, mode, err);
    return r < 0 ? r : add_node(d, number, mode == MODE_OWNER ? 0600 : 0666, err);
}

static void list_minors(uint32_t cards, struct buf *out) {
    buf_printf(out, "config %u\nmonitor %u\n", SIM_CAP_CONFIG, SIM_CAP_MONITOR);
    for (uint32_t gpu = 0; gpu < cards; gpu++)
        for (uint32_t gi = 0; gi < SIM_CAP_GPU_INSTANCES; gi++) {
            buf_printf(out, "gpu%u/gi%u/access %u\n", gpu, gi, sim_cap_number(gpu, gi, UINT32_MAX));
            for (uint32_t ci = 0; ci < SIM_CAP_COMPUTE_INSTANCES; ci++)
                buf_printf(out, "gpu%u/gi%u/ci%u/access %u\n", gpu, gi, ci,
                           sim_cap_number(gpu, gi, ci));
        }
}

void capability_end(struct daemon *d) {
    static const char *const names[] = {SIM_CAPS_DIR, CAPABILITIES, "proc/driver/nvidia-caps"};
    for (size_t i = 0; d->dir && i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX];
        (void) snprintf(path, sizeof(path), "%s/%s", d->dir, names[i]);
        (void) dir_remove(path, NULL);
    }
}

/* Now, and not when the first instance with a high number is made. */
static int check_paths(const char *dir, uint32_t cards, struct err *err) {
    struct sockaddr_un sa;
    char longest[PATH_MAX];
    uint32_t last = sim_cap_number(cards, 0, UINT32_MAX) - 1;
    int n = snprintf(longest, sizeof(longest), "%s/" SIM_CAP_NAME "%u.new", dir, last);
    return n < (int) sizeof(sa.sun_path)
               ? 0
               : err_set(err, ENAMETOOLONG,
                         "%s is too long for the paths of sockets: %d of %zu bytes", dir, n,
                         sizeof(sa.sun_path) - 1);
}

int capability_start(struct daemon *d, struct err *err) {
    char nodes[PATH_MAX];
    uint32_t cards = d->machine.ngpus > LISTED_CARDS ? d->machine.ngpus : LISTED_CARDS;
    if (check_paths(d->dir, cards, err) < 0)
        return -ENAMETOOLONG;
    capability_end(d);
    (void) snprintf(nodes, sizeof(nodes), "%s/" SIM_CAPS_DIR, d->dir);
    _cleanup_buf_ struct buf minors = BUF_INIT(0);
    list_minors(cards, &minors);
    int r = dir_make(nodes, 0755, err);
    if (r == 0)
        r = host_file_put(d->dir, MINORS, &minors, err);
    if (r == 0)
        r = add_fixed(d, "config", SIM_CAP_CONFIG, MODE_OWNER, err);
    return r < 0 ? r : add_fixed(d, "monitor", SIM_CAP_MONITOR, MODE_ALL, err);
}

/* The node and the file of a GPU instance (ci is UINT32_MAX) or of a compute instance. */
static int update_one(struct daemon *d, uint32_t minor, uint32_t gi, uint32_t ci, bool exists,
                      struct err *err) {
    char part[32] = "", name[160];
    uint32_t card = atomic_load(&d->machine.gpu[minor].page->number);
    uint32_t number = sim_cap_number(card, gi, ci);
    if (ci != UINT32_MAX)
        (void) snprintf(part, sizeof(part), "/ci%u", ci);
    (void) snprintf(name, sizeof(name), CAPABILITIES "/gpu%u/mig/gi%u%s/access", card, gi, part);
    if (!exists) {
        host_file_remove(d->dir, name);
        return 0;
    }
    int r = add_node(d, number, 0666, err);
    return r < 0 ? r : add_file(d, name, number, MODE_ALL, err);
}

int capability_update(struct daemon *d, uint32_t minor, struct err *err) {
    for (uint32_t gi = 0; gi < SIM_GPU_INSTANCES_MAX; gi++) {
        const struct sim_gpu_instance *i = instance_at(&d->machine, minor, gi);
        int r = 0;
        for (uint32_t ci = 0; r == 0 && ci < COMPUTE_INSTANCES_MAX; ci++)
            r = update_one(d, minor, gi, ci, i && i->ci[ci].unit, err);
        if (r == 0)
            r = update_one(d, minor, gi, UINT32_MAX, i != NULL, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int capability_swap(struct daemon *d, uint32_t a, uint32_t b, struct err *err) {
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        (void) snprintf(path, sizeof(path), "%s/" CAPABILITIES "/gpu%u", d->dir,
                        atomic_load(&d->machine.gpu[i ? a : b].page->number));
        (void) dir_remove(path, NULL);
    }
    int r = capability_update(d, a, err);
    return r < 0 ? r : capability_update(d, b, err);
}

static bool has(const struct daemon *d, const struct sim_session *s, uint32_t number) {
    if (s->administrator)
        return true;
    for (const struct watch *w = d->watches; w; w = w->next)
        if (w->kind == WATCH_CAPABILITY && w->session == s && w->minor == number)
            return true;
    return false;
}

int capability_check(const struct daemon *d, const struct sim_session *s, uint32_t number,
                     struct answer *a) {
    if (has(d, s, number))
        return 0;
    a->reply.a = number;
    return -EACCES;
}
