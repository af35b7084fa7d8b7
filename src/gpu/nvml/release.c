/* SPDX-License-Identifier: Apache-2.0 */

/* Cards that the monitor closes and opens again: single ones, since the driver refuses the reset of
 * a card, and its own unload, while a process has the card open; all of them for another library.
 */

#include <errno.h>

#include "gpu/nvml/monitor_internal.h"

static struct poller *opener_of(const struct gpu_monitor *m, uint32_t card) {
    struct poller *p = m->all;

    while (p && !(p->opened & bit_of(card)))
        p = p->next;
    return p;
}

/* A child that was left with another card may have opened this one before. */
static void kill_openers(struct gpu_monitor *m, uint32_t card) {
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i] && (m->watchers[i]->opened & bit_of(card)))
            gpu_monitor_kill(m, m->watchers[i]);
    if (m->main && (m->main->opened & bit_of(card)))
        gpu_monitor_kill(m, m->main);
}

static void forget_figures(struct gpu_monitor *m, uint32_t card) {
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (gpu_card_index(&m->now, &m->now.devices[i]) == card)
            gpu_set_unhealthy(&m->now.devices[i], "the agent has closed it");
}

int gpu_monitor_release(struct gpu_monitor *m, const char *uuid) {
    const struct gpu_device *d = gpu_find(&m->now, uuid);

    if (!d || d->kind != GPU_CARD || d->index >= GPU_CARDS_MAX)
        return -ENOENT;
    if (is_released(m, d->index))
        return 0;
    m->released |= bit_of(d->index);
    kill_openers(m, d->index);
    forget_figures(m, d->index);
    gpu_monitor_start_soon(m);
    gpu_monitor_changed(m);
    return 0;
}

bool gpu_monitor_has_released(const struct gpu_monitor *m, const char *uuid) {
    const struct gpu_device *d = gpu_find(&m->now, uuid);

    return d && is_released(m, d->index) && !opener_of(m, d->index);
}

/* The main child is not registered for events of the card: another one takes its place. */
void gpu_monitor_resume(struct gpu_monitor *m, const char *uuid) {
    const struct gpu_device *d = gpu_find(&m->now, uuid);

    if (!d || !is_released(m, d->index))
        return;
    m->released &= ~bit_of(d->index);
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (gpu_card_index(&m->now, &m->now.devices[i]) == d->index)
            m->now.devices[i].saved = true; /* until it is read */
    m->card_answered[d->index] = uv_now(m->loop);
    if (m->main)
        gpu_monitor_kill(m, m->main);
    gpu_monitor_start_soon(m);
    gpu_monitor_changed(m);
}

void gpu_monitor_reload(struct gpu_monitor *m) {
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i])
            gpu_monitor_kill(m, m->watchers[i]);
    if (m->main)
        gpu_monitor_kill(m, m->main);
    gpu_monitor_start_soon(m);
}
