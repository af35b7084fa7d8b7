/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/err.h"
#include "base/log.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/nvml/monitor_internal.h"
#include "gpu/nvml/worker.h"

#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 5000
#define SEARCH_MS 500 /* search interval while there is no driver */

#define SLOW_PARTS 8   /* a card is slow after this part of the deadline */
#define PROMPT_POLLS 3 /* a card that was slow is no longer: so many prompt answers */
#define NO_CARD UINT32_MAX

static bool start_main(struct gpu_monitor *m);
static void on_start_due(uv_timer_t *timer);

void gpu_monitor_changed(struct gpu_monitor *m) {
    step_hold(); /* devices that are not judged yet look as if they serve */
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        m->now.devices[i].released = is_released(m, gpu_card_index(&m->now, &m->now.devices[i]));
    for (uint32_t i = 0; i < m->now.ndevices && m->options.judge; i++)
        m->options.judge(&m->now.devices[i], m->options.userdata);
    step_release();
    m->options.on_update(m->options.userdata);
}

/* Requests for limits that the former main child has not answered are dropped. */
static void set_main(struct gpu_monitor *m, struct poller *p) {
    m->main = p;
    m->limit_generation++;
}

/* ---- who reads which card ---- */

static uint64_t watched_cards(const struct gpu_monitor *m) {
    uint64_t cards = 0;

    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i])
            cards |= bit_of(m->watchers[i]->card);
    return cards;
}

static struct poller *watcher_of(const struct gpu_monitor *m, uint32_t card) {
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i] && m->watchers[i]->card == card)
            return m->watchers[i];
    return NULL;
}

static struct poller **watcher_place(struct gpu_monitor *m, const struct poller *p) {
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i] == p)
            return &m->watchers[i];
    return NULL;
}

/* Only while all cards answer at once is a long call a short time: the first poll of the first
 * child initialises cards. */
static uint64_t slow_ms(const struct poller *p) {
    const struct gpu_monitor *m = p->monitor;

    return m->options.deadline_ms / (p->answered || watched_cards(m) ? SLOW_PARTS : 2);
}

/* ---- health ---- */

void gpu_monitor_judge(struct gpu_monitor *m) {
    gpu_monitor_changed(m);
}

/* A poll may take the deadline, and the next one begins an interval later. */
static bool is_stale(const struct gpu_monitor *m, uint64_t answered_at) {
    uint64_t longest = (uint64_t) m->options.interval_ms + m->options.deadline_ms;

    return uv_now(m->loop) - answered_at >=
           (longest > MONITOR_STALE_MS ? longest : MONITOR_STALE_MS);
}

static bool stale(const struct gpu_monitor *m) {
    return is_stale(m, m->answered_at);
}

static void mark_stale(struct gpu_monitor *m) {
    bool any = false;

    for (uint32_t i = 0; i < m->now.ndevices; i++) {
        struct gpu_device *d = &m->now.devices[i];
        uint32_t card = gpu_card_index(&m->now, d);

        if (card >= GPU_CARDS_MAX || is_released(m, card) || !is_stale(m, m->card_answered[card]) ||
            (!d->healthy && watcher_of(m, card)))
            continue;
        any = any || d->healthy || d->saved;
        gpu_set_unhealthy(d, m->text[0] ? m->text : "the driver does not answer");
        d->stale = stale(m);
    }
    if (any)
        gpu_monitor_changed(m);
}

/* A card that a watcher reads, or none: its figures are not those of the main child's poll. */
static void mark_late(struct gpu_monitor *m) {
    for (uint32_t i = 0; i < m->now.ndevices; i++) {
        uint32_t card = gpu_card_index(&m->now, &m->now.devices[i]);

        m->now.devices[i].late =
            card < GPU_CARDS_MAX && (watcher_of(m, card) || is_released(m, card));
    }
}

static void mark_hanging(struct gpu_monitor *m, struct poller *watcher) {
    char why[GPU_REASON_MAX];

    (void) snprintf(why, sizeof(why), "a call of NVML for it has not returned for %u ms",
                    m->options.deadline_ms);
    watcher->hangs = true;
    m->hangs++;
    log_warn("GPU %u: %s", watcher->card, why);
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (gpu_card_index(&m->now, &m->now.devices[i]) == watcher->card)
            gpu_set_unhealthy(&m->now.devices[i], why);
    gpu_monitor_changed(m);
}

/* ---- the end of a child ---- */

/* The last handle of a monitor that closes frees it. */
static void release(struct gpu_monitor *m) {
    if (--m->handles == 0)
        on_closed_free(&m->on_closed, m);
}

static void on_child_freed(void *userdata) {
    struct poller *p = userdata;
    struct gpu_monitor *m = p->monitor;
    struct poller **place = &m->all;

    while (*place != p)
        place = &(*place)->next;
    if (m->dying == p)
        m->dying = NULL;
    *place = p->next;
    free(p);
    if (m->options.on_ended)
        m->options.on_ended(m->options.userdata);
    release(m);
}

static void kill_poller(struct poller *p) {
    gpu_collect_clear(&p->answer);
    gpu_child_kill(p->child);
}

static void start_later(struct gpu_monitor *m, uint64_t ms) {
    (void) uv_timer_start(&m->timer, on_start_due, ms, 0);
}

void gpu_monitor_kill(struct gpu_monitor *m, struct poller *p) {
    if (p == m->main) {
        m->dying = p;
        set_main(m, NULL);
    } else {
        *watcher_place(m, p) = NULL;
    }
    kill_poller(p);
}

void gpu_monitor_start_soon(struct gpu_monitor *m) {
    if (!m->main)
        start_later(m, 0);
}

/* Ends the main child, whatever it is doing, and plans the next one. */
static void restart(struct gpu_monitor *m, const char *why) {
    if (why)
        text_copy(m->text, sizeof(m->text), why);
    if (m->main)
        gpu_monitor_kill(m, m->main);
    m->backoff_ms = m->backoff_ms * 2 > RESTART_MAX_MS ? RESTART_MAX_MS : m->backoff_ms * 2;
    start_later(m, m->backoff_ms);
    gpu_monitor_changed(m);
}

/* The main child takes its card, for whose XIDs it is not registered: it is started again. */
static void lose_watcher(struct gpu_monitor *m, struct poller *watcher) {
    gpu_monitor_kill(m, watcher);
    restart(m, NULL);
}

static void fail(struct poller *p, const char *why) {
    if (p == p->monitor->main)
        restart(p->monitor, why);
    else
        lose_watcher(p->monitor, p);
}

/* ---- requests ---- */

static int request_poll(struct poller *p, uint64_t left_out) {
    struct gpu_message_poll msg = {.header = {.magic = GPU_MESSAGE_MAGIC, .type = GPU_MESSAGE_POLL},
                                   .left_out = left_out,
                                   .drops_limits = p != p->monitor->main};

    p->sequence = msg.header.sequence = ++p->monitor->sequence;
    p->left_out = left_out;
    p->opened |= ~left_out;
    if (p->heard == 0)
        p->heard = ~left_out;
    return gpu_child_send(p->child, &msg, sizeof(msg));
}

static void send_poll(struct poller *p) {
    struct gpu_monitor *m = p->monitor;
    bool is_main = p == m->main;

    if (is_main && m->options.on_poll)
        m->options.on_poll(m->options.userdata);
    if (request_poll(p, is_main ? watched_cards(m) | m->released : ~bit_of(p->card)) < 0) {
        fail(p, "the NVML process takes no requests");
        return;
    }
    p->polling = true;
    p->reading = NO_CARD;
    p->since = uv_now(m->loop);
    gpu_child_arm(p->child, m->options.deadline_ms);
}

/* ---- slow cards ---- */

/* The main child is left alone with the card that it reads, and a new one reads the others: another
 * process, since the call may hold locks of the library. The request waits in the channel until the
 * call has returned; it drops the limits that wait there. */
static bool leave_behind(struct gpu_monitor *m) {
    struct poller **place = watcher_place(m, NULL), *p = m->main;
    uint64_t waited = uv_now(m->loop) - p->since;

    if (!place)
        return false;
    log_warn("GPU %u: a call of NVML takes more than %u ms; another process reads the other GPUs",
             p->reading, (unsigned) waited);
    *place = p;
    set_main(m, NULL);
    p->polling = true;
    p->limiting = false;
    p->card = p->reading;
    p->prompt = 0;
    p->hangs = false;
    mark_late(m);
    if (request_poll(p, ~bit_of(p->card)) < 0) {
        lose_watcher(m, p);
        return true;
    }
    gpu_child_arm(p->child, m->options.deadline_ms > waited ? m->options.deadline_ms - waited : 0);
    (void) start_main(m);
    return true;
}

/* The card answers at once again: one child for it and the others. The older one stays, for it is
 * registered for the XIDs of more cards. */
static void merge_watcher(struct gpu_monitor *m, struct poller *watcher) {
    struct poller *newer = m->main;

    log_info("GPU %u: NVML answers in time again", watcher->card);
    *watcher_place(m, watcher) = NULL;
    if (!newer || watcher->number < newer->number) {
        set_main(m, watcher);
        (void) uv_timer_stop(&m->timer);
        gpu_child_arm(watcher->child, 0);
    } else {
        newer = watcher;
    }
    if (newer)
        kill_poller(newer);
}

static void on_child_timer(void *userdata) {
    struct poller *p = userdata;
    struct gpu_monitor *m = p->monitor;
    uint64_t waited = uv_now(m->loop) - p->since;

    mark_stale(m);
    if (!p->polling && !p->limiting)
        send_poll(p);
    else if (p != m->main)
        mark_hanging(m, p);
    else if (p->reading != NO_CARD && leave_behind(m))
        ; /* p is a watcher now */
    else if (waited < m->options.deadline_ms)
        gpu_child_arm(p->child, m->options.deadline_ms - waited);
    else {
        m->hangs++;
        restart(m, "a call of the driver did not return in time; its process was killed");
        mark_stale(m);
    }
}

/* ---- contexts ---- */

static uint64_t known_context(const struct gpu_monitor *m, const char *uuid) {
    for (size_t i = 0; i < m->ncontexts; i++)
        if (strcmp(m->contexts[i].uuid, uuid) == 0)
            return m->contexts[i].bytes;
    return 0;
}

static void learn_context(struct gpu_monitor *m, const char *uuid, uint64_t bytes) {
    size_t i = 0;

    while (i < m->ncontexts && strcmp(m->contexts[i].uuid, uuid) != 0)
        i++;
    if (i == GPU_MAX)
        return;
    if (i == m->ncontexts)
        m->ncontexts++;
    text_copy(m->contexts[i].uuid, sizeof(m->contexts[i].uuid), uuid);
    m->contexts[i].bytes = bytes;
    for (uint32_t d = 0; d < m->now.ndevices; d++)
        if (strcmp(m->now.devices[d].uuid, uuid) == 0)
            m->now.devices[d].context_bytes = bytes;
}

/* Measuring takes memory of the card for a moment, and makes calls of all cards: only while there
 * is a card to learn about, and none is slow. */
static bool must_measure(const struct gpu_monitor *m) {
    if (watched_cards(m) || m->released)
        return false;
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (gpu_gives_shares(&m->now.devices[i]) && m->now.devices[i].context_bytes == 0)
            return true;
    return m->now.ndevices == 0;
}

/* ---- receiving ---- */

static void take_figures(const struct poller *p, struct gpu_device *d) {
    uint32_t card = gpu_card_index(&p->monitor->now, d);

    d->context_bytes = known_context(p->monitor, d->uuid);
    if (card < GPU_CARDS_MAX && !(p->left_out & bit_of(card)))
        d->read_at = uv_now(p->monitor->loop);
}

static void take_answer(struct poller *p) {
    struct gpu_monitor *m = p->monitor;

    gpu_collect_end(&p->answer, &m->now, p->left_out, &m->room);
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        take_figures(p, &m->now.devices[i]);
    for (uint32_t card = 0; card < GPU_CARDS_MAX; card++)
        if (!(p->left_out & bit_of(card)))
            m->card_answered[card] = uv_now(m->loop);
    p->polling = false;
    p->answered = true;
}

static void end_of_main(struct poller *p) {
    struct gpu_monitor *m = p->monitor;

    m->answered_at = uv_now(m->loop);
    m->complete = true;
    m->text[0] = 0;
    m->backoff_ms = RESTART_MIN_MS;
    m->polls++;
    gpu_child_arm(p->child, m->poll_again ? 0 : m->options.interval_ms);
    m->poll_again = false;
}

static void end_of_watcher(struct poller *p) {
    struct gpu_monitor *m = p->monitor;
    bool prompt = uv_now(m->loop) - p->since < m->options.deadline_ms / SLOW_PARTS;

    if (p->hangs)
        log_info("GPU %u: the call of NVML has returned", p->card);
    p->hangs = false;
    p->prompt = prompt ? p->prompt + 1 : 0;
    if (p->prompt >= PROMPT_POLLS)
        merge_watcher(m, p);
    else
        gpu_child_arm(p->child, m->options.interval_ms);
}

static void receive_end(struct poller *p) {
    struct gpu_monitor *m = p->monitor;

    take_answer(p);
    if (p == m->main)
        end_of_main(p);
    else
        end_of_watcher(p);
    mark_late(m);
    gpu_monitor_changed(m);
}

static enum gpu_limit_result limit_result_of(int32_t status) {
    return status == NVML_SUCCESS               ? GPU_LIMIT_SET
           : status == NVML_ERROR_NOT_SUPPORTED ? GPU_LIMIT_UNSUPPORTED
                                                : GPU_LIMIT_REFUSED;
}

/* The calls for a limit have ended. */
static void end_of_limit(struct poller *p) {
    struct gpu_monitor *m = p->monitor;
    uint64_t passed = uv_now(m->loop) - m->answered_at;

    p->reading = NO_CARD;
    if (p->polling) {
        p->since = uv_now(m->loop);
        gpu_child_arm(p->child, m->options.deadline_ms);
    } else if (p->limiting) {
        gpu_child_arm(p->child, m->poll_again || passed > m->options.interval_ms
                                    ? 0
                                    : m->options.interval_ms - passed);
        m->poll_again = false;
    }
    p->limiting = false;
}

/* A child that was left behind may have overwritten a limit that another one has set since: all are
 * requested again. */
static void receive_limit(struct poller *p, const struct gpu_message_limit *msg) {
    struct gpu_monitor *m = p->monitor;
    const struct gpu_limit_answer answer = {.uuid = msg->uuid,
                                            .cgroup = msg->cgroup,
                                            .bytes = msg->bytes,
                                            .before = msg->before,
                                            .result = limit_result_of(msg->status),
                                            .text = msg->error};

    if (p != m->main) {
        m->limit_generation++;
        return;
    }
    end_of_limit(p);
    if (m->options.on_limit)
        m->options.on_limit(&answer, m->options.userdata);
}

/* Of the main child: its next calls concern one card. */
static void receive_reading(struct poller *p, uint32_t index) {
    p->limiting = !p->polling;
    p->reading = index;
    p->since = uv_now(p->monitor->loop);
    gpu_child_arm(p->child, slow_ms(p));
}

static const char *uuid_of_card(const struct gpu_snapshot *s, uint32_t index) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].kind == GPU_CARD && s->devices[i].index == index)
            return s->devices[i].uuid;
    return "";
}

/* The one child whose events of the card count, of those that are registered for it: the one that
 * reads the card, once it has answered; while that one starts, the oldest. */
static const struct poller *listener_of(const struct gpu_monitor *m, uint32_t card) {
    const struct poller *reader = watcher_of(m, card), *oldest = NULL;

    reader = reader ? reader : m->main;
    if (reader && reader->answered && (reader->heard & bit_of(card)))
        return reader;
    for (size_t i = 0; i <= WATCHERS_MAX; i++) {
        const struct poller *p = i < WATCHERS_MAX ? m->watchers[i] : m->main;

        if (p && (p->heard & bit_of(card)) && (!oldest || p->number < oldest->number))
            oldest = p;
    }
    return oldest;
}

static void receive_event(struct poller *p, const struct gpu_message_event *msg) {
    struct gpu_monitor *m = p->monitor;
    const struct gpu_xid xid = {.uuid = uuid_of_card(&m->now, msg->header.index),
                                .index = msg->header.index,
                                .gi = msg->gi,
                                .ci = msg->ci,
                                .xid = msg->xid};

    if (listener_of(m, msg->header.index) != p)
        return;
    if (m->options.on_xid)
        m->options.on_xid(&xid, m->options.userdata);
    (void) gpu_monitor_poll(m);
}

/* Of the poll that runs. */
static void receive_answer(struct poller *p, const union gpu_message *msg, int type) {
    if (type == GPU_MESSAGE_END) {
        receive_end(p);
        return;
    }
    gpu_collect_add(&p->answer, &p->monitor->now, msg);
}

static void on_message(const void *message, int type, void *userdata) {
    const union gpu_message *msg = message;
    struct poller *p = userdata;
    struct gpu_monitor *m = p->monitor;

    switch (type) {
    case GPU_MESSAGE_POLL:
        fail(p, "the NVML process sent something malformed");
        break;
    case GPU_MESSAGE_FAILED:
        fail(p, msg->text.text);
        break;
    case GPU_MESSAGE_CONTEXT:
        learn_context(m, msg->context.uuid, msg->context.bytes);
        gpu_monitor_changed(m);
        break;
    case GPU_MESSAGE_EVENT:
        receive_event(p, &msg->event);
        break;
    case GPU_MESSAGE_LIMIT:
        receive_limit(p, &msg->limit);
        break;
    case GPU_MESSAGE_READING:
        if (p == m->main)
            receive_reading(p, msg->header.index);
        break;
    default:
        if (p->polling && msg->header.sequence == p->sequence)
            receive_answer(p, msg, type);
        break;
    }
}

static void on_child_end(bool malformed, void *userdata) {
    struct poller *p = userdata;

    fail(p, malformed             ? "the NVML process sent something malformed"
            : p->monitor->text[0] ? NULL
                                  : "the NVML process ended");
}

/* ---- probes ---- */

static void on_probe_done(struct gpu_probe *probe, const char *uuid, const char *error,
                          void *userdata) {
    struct gpu_monitor *m = userdata;

    for (size_t i = 0; i < PROBES_MAX; i++)
        if (m->probes[i] == probe)
            m->probes[i] = NULL;
    if (m->options.on_probe)
        m->options.on_probe(uuid, error, m->options.userdata);
}

static void on_probe_freed(void *userdata) {
    release(userdata);
}

int gpu_monitor_probe(struct gpu_monitor *m, const char *uuid) {
    const struct gpu_probe_options options = {.program = m->program,
                                              .library = m->options.library(m->options.userdata),
                                              .uuid = uuid,
                                              .deadline_ms = m->options.deadline_ms,
                                              .on_done = on_probe_done,
                                              .on_freed = on_probe_freed,
                                              .userdata = m};

    for (size_t i = 0; i < PROBES_MAX && options.library; i++) {
        if (m->probes[i])
            continue;
        if (gpu_probe_start(m->loop, &options, &m->probes[i]) < 0)
            break;
        m->handles++;
        return 0;
    }
    return -EAGAIN;
}

/* ---- starting ---- */

static int start_poller(struct gpu_monitor *m, const char *library, struct poller **ret) {
    static const struct gpu_child_handlers handlers = {on_message, on_child_end, on_child_timer,
                                                       on_child_freed};
    struct poller *p = calloc(1, sizeof(*p));
    const struct gpu_child_options options = {.program = m->program,
                                              .library = library,
                                              .mode = must_measure(m) ? GPU_WORKER_MEASURE : NULL,
                                              .handlers = &handlers,
                                              .userdata = p};
    int r;

    if (!p)
        return -ENOMEM;
    r = gpu_child_start(m->loop, &options, &p->child);
    if (r < 0) {
        free(p);
        return r;
    }
    p->monitor = m;
    p->next = m->all;
    m->all = p;
    p->number = ++m->starts;
    m->handles++;
    *ret = p;
    return 0;
}

bool gpu_monitor_reads_none(const struct gpu_monitor *m) {
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (!is_released(m, gpu_card_index(&m->now, &m->now.devices[i])))
            return false;
    return m->now.ndevices > 0;
}

/* Whether there is a new process. */
static bool start_main(struct gpu_monitor *m) {
    const char *library = m->options.library(m->options.userdata);
    struct poller *p;

    if (gpu_monitor_reads_none(m)) {
        text_copy(m->text, sizeof(m->text), "all cards are released");
        return false;
    }
    if (!library) {
        text_copy(m->text, sizeof(m->text), "no GPU driver was found on this node");
        start_later(m, SEARCH_MS);
        return false;
    }
    if (start_poller(m, library, &p) < 0) {
        restart(m, "cannot start the NVML process");
        return false;
    }
    set_main(m, p);
    send_poll(p);
    return true;
}

static void on_start_due(uv_timer_t *timer) {
    struct gpu_monitor *m = timer->data;

    mark_stale(m);
    if (m->dying) {
        /* Another one would only hang beside it. */
        start_later(m, RESTART_MIN_MS);
        return;
    }
    m->restarts += start_main(m) && m->starts > 1;
}

int gpu_monitor_start(uv_loop_t *loop, const struct gpu_monitor_options *options,
                      struct gpu_snapshot *initial, struct gpu_monitor **ret, struct err *err) {
    struct gpu_monitor *m = calloc(1, sizeof(*m));

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    m->loop = loop;
    m->options = *options;
    m->options.interval_ms = options->interval_ms ? options->interval_ms : 1000;
    m->options.deadline_ms = options->deadline_ms ? options->deadline_ms : 4000;
    m->backoff_ms = RESTART_MIN_MS;
    m->answered_at = uv_now(loop);
    for (uint32_t card = 0; card < GPU_CARDS_MAX; card++)
        m->card_answered[card] = m->answered_at;
    text_copy(m->program, sizeof(m->program), options->program);
    if (initial) {
        gpu_snapshot_move(&m->now, initial);
        for (uint32_t i = 0; i < m->now.ndevices; i++)
            if (m->now.devices[i].context_bytes > 0)
                learn_context(m, m->now.devices[i].uuid, m->now.devices[i].context_bytes);
    }
    (void) uv_timer_init(loop, &m->timer);
    m->timer.data = m;
    m->handles = 1;
    start_later(m, 0);
    *ret = m;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    release(handle->data);
}

void gpu_monitor_close(struct gpu_monitor *m, void (*on_closed)(void *userdata), void *userdata) {
    m->on_closed = (struct on_closed){on_closed, userdata};
    if (m->main)
        kill_poller(m->main);
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i])
            kill_poller(m->watchers[i]);
    for (size_t i = 0; i < PROBES_MAX; i++)
        if (m->probes[i])
            gpu_probe_cancel(m->probes[i]);
    gpu_snapshot_done(&m->now);
    uv_close((uv_handle_t *) &m->timer, on_timer_closed);
}

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    return &m->now;
}

uint64_t gpu_monitor_poll(struct gpu_monitor *m) {
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i] && !m->watchers[i]->polling)
            gpu_child_arm(m->watchers[i]->child, 0);
    if (!m->main)
        return 0;
    if (!m->main->polling && !m->main->limiting) {
        gpu_child_arm(m->main->child, 0);
        return m->polls + 1;
    }
    m->poll_again = true;
    return m->polls + (m->main->polling ? 2 : 1);
}

int gpu_monitor_limit(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    const struct gpu_device *d = gpu_find(&m->now, uuid);
    union gpu_message msg = {0};

    if (strlen(cgroup) >= sizeof(msg.limit.cgroup) || strlen(uuid) >= sizeof(msg.limit.uuid))
        return -ENAMETOOLONG;
    if (!m->main || (d && (d->late || d->released)))
        return -EAGAIN;
    msg.header =
        (struct gpu_message_header){.magic = GPU_MESSAGE_MAGIC,
                                    .type = GPU_MESSAGE_LIMIT,
                                    .index = d && d->kind == GPU_CARD ? d->index : NO_CARD};
    msg.limit.bytes = bytes;
    text_copy(msg.limit.uuid, sizeof(msg.limit.uuid), uuid);
    text_copy(msg.limit.cgroup, sizeof(msg.limit.cgroup), cgroup);
    return gpu_child_send(m->main->child, &msg, sizeof(msg.limit)) < 0 ? -EAGAIN : 0;
}

void gpu_monitor_set_interval(struct gpu_monitor *m, unsigned interval_ms) {
    m->options.interval_ms = interval_ms;
}

/* A call that runs has the new deadline, too. */
static void rearm(struct poller *p) {
    const struct gpu_monitor *m = p->monitor;
    uint64_t waited = uv_now(m->loop) - p->since;
    uint64_t due = p == m->main && p->reading != NO_CARD ? slow_ms(p) : m->options.deadline_ms;

    if ((p->polling || p->limiting) && !p->hangs)
        gpu_child_arm(p->child, due > waited ? due - waited : 0);
}

void gpu_monitor_set_deadline(struct gpu_monitor *m, unsigned deadline_ms) {
    if (deadline_ms == m->options.deadline_ms)
        return;
    m->options.deadline_ms = deadline_ms;
    if (m->main)
        rearm(m->main);
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (m->watchers[i])
            rearm(m->watchers[i]);
}

bool gpu_monitor_hangs(const struct gpu_monitor *m, uint32_t card) {
    const struct poller *watcher = watcher_of(m, card);

    return watcher && watcher->hangs;
}

/* A child whose poll leaves out every card answers, and knows nothing of any. */
static bool all_hang(const struct gpu_monitor *m) {
    for (uint32_t i = 0; i < m->now.ndevices; i++) {
        uint32_t card = gpu_card_index(&m->now, &m->now.devices[i]);

        if (!gpu_monitor_hangs(m, card) && !is_released(m, card))
            return false;
    }
    return !gpu_monitor_reads_none(m) && m->now.ndevices > 0;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    bool hangs = all_hang(m);

    *ret = (struct gpu_monitor_status){
        .answering = (m->complete && !stale(m) && !hangs) || gpu_monitor_reads_none(m),
        .complete = m->complete,
        .pid = m->main ? gpu_child_pid(m->main->child) : 0,
        .polls = m->polls,
        .restarts = m->restarts,
        .hangs = m->hangs,
        .limit_generation = m->limit_generation,
        .text = hangs && !m->text[0] ? "a call for each card has not returned" : m->text,
    };
}
