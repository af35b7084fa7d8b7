/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/mps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/text.h"

struct card {
    struct mps_card card;
    struct mps_daemon *daemon;
    bool wanted;
    bool running;             /* it was told to run */
    bool healthy;             /* as it was judged last */
    bool served;              /* it was healthy and served new pods at the last snapshot */
    bool reached;             /* it was ready, as far as is known, since MPS has begun */
    bool paused;              /* its daemon is not to run now */
    bool ending;              /* while all is closed: it is being stopped */
    char why[GPU_REASON_MAX]; /* what delays its start or its end; "": see the daemon */
};

struct mps {
    uv_loop_t *loop;
    struct mps_options options;
    char dir[128];
    struct card cards[MPS_CARDS_MAX];
    size_t ncards;
    bool closing;
    unsigned open; /* daemons that are not closed yet */
    struct on_closed on_closed;
};

static struct card *find(const struct mps *m, const char *uuid) {
    for (size_t i = 0; i < m->ncards; i++)
        if (strcmp(m->cards[i].card.uuid, uuid) == 0)
            return (struct card *) (uintptr_t) &m->cards[i];
    return NULL;
}

static void close_ended(struct mps *m);

static void on_change(void *userdata) {
    struct mps *m = userdata;

    if (m->closing)
        close_ended(m);
    else
        m->options.daemon.on_change(m->options.daemon.userdata);
}

static bool find_driver(struct mps_driver *ret, char ret_why[static GPU_REASON_MAX],
                        void *userdata) {
    struct mps *m = userdata;

    return m->options.daemon.driver(ret, ret_why, m->options.daemon.userdata);
}

static struct card *add(struct mps *m, const char *uuid, struct err *err) {
    struct mps_daemon_options options = m->options.daemon;
    struct card *c = &m->cards[m->ncards];

    if (m->ncards == MPS_CARDS_MAX) {
        (void) err_set(err, ENOSPC, "too many cards");
        return NULL;
    }
    *c = (struct card){0};
    options.driver = find_driver;
    options.on_change = on_change;
    options.userdata = m;
    if (mps_daemon_new(m->loop, &options, m->dir, uuid, &c->daemon, err) < 0)
        return NULL;
    text_copy(c->card.uuid, sizeof(c->card.uuid), uuid);
    m->ncards++;
    return c;
}

/* ---- start and end of a card ---- */

static void set_why(struct mps *m, struct card *c, const char *why) {
    if (strcmp(c->why, why) == 0)
        return;
    text_copy(c->why, sizeof(c->why), why);
    if (why[0])
        log_warn("MPS of GPU %s: %s", c->card.uuid, why);
    m->options.daemon.on_change(m->options.daemon.userdata);
}

/* Whether MPS of the card has begun, also under a former agent: containers that have it then got it
 * with MPS. */
static bool has_begun(const struct card *c) {
    unsigned mode;

    return c->running || mps_record_read(mps_daemon_directories(c->daemon), &mode, NULL) != -ENOENT;
}

static uint32_t holders(const struct mps *m, const struct card *c) {
    return m->options.holders(c->card.uuid, m->options.daemon.userdata);
}

/* The text is an Event of all pods on the card, and names none. */
static void wait_for_holders(struct mps *m, struct card *c, const char *what) {
    char why[GPU_REASON_MAX];

    (void) snprintf(why, sizeof(why), "%s have ended: %u left", what, holders(m, c));
    set_why(m, c, why);
}

static void update_wanted(struct mps *m, struct card *c, const struct gpu_device *d) {

    if (d && d->divided) {
        set_why(m, c, "a card in MIG mode takes no MPS");
    } else if (!d || (!c->healthy && !c->running)) {
        set_why(m, c, "");
    } else if (!has_begun(c) && holders(m, c) > 0) {
        wait_for_holders(m, c, "MPS begins when containers without it");
    } else {
        set_why(m, c, "");
        /* A reset, or another driver, has the default compute mode. A reset between two polls shows
         * in the service only. */
        if (c->running && c->healthy && d->service == GPU_SERVES && !c->served)
            mps_daemon_check_mode(c->daemon);
        c->running = true;
        mps_daemon_run(c->daemon, &c->card.limits);
    }
    c->served = d && c->healthy && d->service == GPU_SERVES;
}

/* Until its containers have ended the daemon is kept running. */
static void update_unwanted(struct mps *m, struct card *c) {
    if (has_begun(c) && holders(m, c) > 0) {
        wait_for_holders(m, c, "MPS ends when its containers");
        return;
    }
    set_why(m, c, "");
    c->running = false;
    mps_daemon_stop(c->daemon);
}

const char *mps_judge(struct mps *m, const struct gpu_device *d) {
    struct card *c = find(m, d->uuid);
    struct mps_card_status status;

    if (!c)
        return NULL;
    c->healthy = d->healthy;
    if (!mps_card_status(m, d->uuid, &status))
        return NULL;
    c->reached |= status.ready;
    return d->healthy && !status.ready ? status.why : NULL;
}

void mps_update(struct mps *m, const struct gpu_snapshot *s) {
    for (size_t i = 0; i < m->ncards && !m->closing; i++) {
        struct card *c = &m->cards[i];

        c->reached = c->reached && has_begun(c);
        if (c->paused)
            continue;
        if (c->wanted)
            update_wanted(m, c, gpu_find(s, c->card.uuid));
        else
            update_unwanted(m, c);
    }
}

bool mps_pause(struct mps *m, const char *uuid) {
    struct card *c = find(m, uuid);
    struct mps_status status;

    if (!c)
        return true;
    if (!c->paused) {
        c->paused = true;
        c->running = false;
        set_why(m, c, "");
        mps_daemon_stop(c->daemon);
    }
    mps_daemon_status(c->daemon, &status);
    return status.pid == 0 && !status.busy;
}

void mps_resume(struct mps *m, const char *uuid) {
    struct card *c = find(m, uuid);

    if (c)
        c->paused = false;
}

void mps_set_cards(struct mps *m, const struct mps_card *cards, size_t n) {
    struct err err;

    for (size_t i = 0; i < m->ncards; i++)
        m->cards[i].wanted = false;
    for (size_t i = 0; i < n; i++) {
        struct card *c = find(m, cards[i].uuid);

        if (!c)
            c = add(m, cards[i].uuid, &err);
        if (!c) {
            log_error("GPU %s is not given out under MPS: %s", cards[i].uuid, err.text);
            continue;
        }
        c->card = cards[i];
        c->wanted = true;
    }
}

bool mps_has_begun(const struct mps *m, const char *uuid) {
    const struct card *c = find(m, uuid);

    return c && has_begun(c);
}

bool mps_is_in_force(const struct mps *m, const char *uuid) {
    const struct card *c = find(m, uuid);

    return c && c->reached && has_begun(c);
}

bool mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret) {
    const struct card *c = find(m, uuid);
    struct mps_status status;

    if (!c)
        return false;
    if (!c->wanted && !mps_daemon_exists(c->daemon))
        return false;
    mps_daemon_status(c->daemon, &status);
    ret->ready = c->wanted && status.state == MPS_READY && !c->why[0];
    ret->why = c->why[0]       ? c->why
               : status.why[0] ? status.why
               : ret->ready    ? ""
                               : "MPS is not started yet";
    ret->restarts = status.restarts;
    return true;
}

int mps_card_directory(const struct mps *m, const char *uuid, bool again, const char **ret,
                       struct err *err) {
    const struct card *c = find(m, uuid);
    struct mps_card_status status;
    struct mps_status daemon;

    if (!mps_card_status(m, uuid, &status) || (again && !has_begun(c)))
        return 0;
    mps_daemon_status(c->daemon, &daemon);
    if (again ? daemon.state != MPS_READY : !status.ready)
        return err_set(err, ENODEV, "MPS of GPU %s: %s", uuid,
                       again && daemon.why[0] ? daemon.why : status.why);
    *ret = mps_daemon_directories(c->daemon)->base;
    return 1;
}

/* ---- life ---- */

/* Directories of cards that MPS had under a former agent. */
static int find_former(struct mps *m, struct err *err) {
    _cleanup_closedir_ DIR *dir = opendir(m->dir);
    struct dirent *e;

    if (!dir)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot read %s", m->dir);
    while ((e = readdir(dir))) {
        struct card *c = e->d_name[0] != '.' ? add(m, e->d_name, err) : NULL;

        if (c)
            c->reached = true;
        else if (e->d_name[0] != '.')
            log_warn("%s/%s is left alone: %s", m->dir, e->d_name, err->text);
    }
    return 0;
}

int mps_start(uv_loop_t *loop, const struct mps_options *options, struct mps **ret,
              struct err *err) {
    struct mps *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    m->loop = loop;
    m->options = *options;
    text_copy(m->dir, sizeof(m->dir), options->dir);
    r = find_former(m, err);
    if (r < 0)
        free(m); /* no daemon was made */
    else
        *ret = m;
    return r;
}

static void on_daemon_closed(void *userdata) {
    struct mps *m = userdata;

    if (--m->open == 0)
        on_closed_free(&m->on_closed, m);
}

/* Closes the daemons that have nothing left to do. */
static void close_ended(struct mps *m) {
    for (size_t i = 0; i < m->ncards; i++) {
        struct card *c = &m->cards[i];

        if (!c->daemon || (c->ending && mps_daemon_exists(c->daemon)))
            continue;
        mps_daemon_close(take_ptr(c->daemon), on_daemon_closed, m);
    }
}

void mps_close(struct mps *m, void (*on_closed)(void *userdata), void *userdata) {
    m->closing = true;
    m->on_closed = (struct on_closed){on_closed, userdata};
    m->open = (unsigned) m->ncards + 1;
    for (size_t i = 0; i < m->ncards; i++) {
        struct card *c = &m->cards[i];

        c->ending = mps_daemon_exists(c->daemon) && !(has_begun(c) && holders(m, c) > 0);
    }
    for (size_t i = 0; i < m->ncards; i++)
        if (m->cards[i].ending)
            mps_daemon_stop(m->cards[i].daemon);
    close_ended(m);
    on_daemon_closed(m);
}
