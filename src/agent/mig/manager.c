/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mig/manager.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

#define TEXT_MAX ((size_t) 2 << 20) /* a file that is read has less */
#define PENDING_MS 5000             /* after this time what is in use is read again */
#define UNREADY_MS 30000            /* after a failure before the first change */
#define BUSY_MS 2000                /* while another process has the lock, or there is no driver */
#define SPACING_MS 1000             /* between two jobs for the same wish */
#define RESETTING_MS 500            /* between two evaluations whether a reset has ended */

struct mig_manager {
    uv_loop_t *loop;
    struct mig_manager_options options;
    struct mig_job job;
    uv_timer_t timer;
    char wanted[MIG_CONFIG_NAME_MAX];
    bool dynamic;
    uint64_t wish, running; /* numbers of what is wanted, and of what the job is for */
    struct mig_status status;
    char applied[MIG_CONFIG_NAME_MAX]; /* of the record; "": none as a whole */
    bool fresh;                        /* no job has ended since the boot: there is no record */
    bool told;                         /* on_status() was called */
    uint64_t division, files;          /* hashes, as seen last */
    uint64_t left_out;                 /* of the job */
    uint64_t started;                  /* loop time of the last job */
    uint64_t reset;                    /* cards (bits, by index) that were reset for this wish */
    char pending[MIG_REASON_MAX], failed[MIG_REASON_MAX], resetting[MIG_REASON_MAX];
    unsigned in_use; /* of `pending` */
    bool closed;
};

const char *mig_state_name(enum mig_state state) {
    static const char *const names[] = {"", "pending", "rebooting", "success", "failed"};

    return names[state];
}

void mig_status_problem(const struct mig_status *s, char ret[static MIG_PROBLEM_MAX]) {
    const char *name = mig_state_name(s->state);

    ret[0] = 0;
    if (s->state == MIG_STATE_NONE || s->state == MIG_STATE_SUCCESS)
        return;
    if (s->in_use > 0)
        (void) snprintf(ret, MIG_PROBLEM_MAX,
                        "MIG configuration %s: %s: instances or cards in use: %u; the node's "
                        "Events name what uses them",
                        s->config, name, s->in_use);
    else
        (void) snprintf(ret, MIG_PROBLEM_MAX, "MIG configuration %s: %s%s%s", s->config, name,
                        s->reason[0] ? ": " : "", s->reason);
}

/* ---- the record ---- */

/* What is named was applied of a text, not of a path: it can be replaced while no agent runs. A
 * file that cannot be read is as one that is not there. */
static uint64_t hash_file(uint64_t hash, const char *path) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    bool there = path[0] && file_read(path, TEXT_MAX, &text, NULL) >= 0;

    return hash_text(hash, there ? buf_str(&text) : NULL);
}

static uint64_t hash_files(const struct mig_manager *m) {
    return hash_file(hash_file(HASH_START, m->options.file), m->options.hooks);
}

/* A line with the name, and one with the hash of the files. */
static void put_record(const struct mig_manager *m) {
    char text[MIG_CONFIG_NAME_MAX + 32];
    struct err err;
    int n = snprintf(text, sizeof(text), "%s\n%016" PRIx64 "\n", m->applied, m->files);

    if (file_replace(m->options.record, text, (size_t) n, 0644, &err) < 0)
        log_warn("the division that was applied is not recorded: %s", err.text);
}

static void write_record(struct mig_manager *m, const char *config) {
    if (!m->fresh && strcmp(m->applied, config) == 0)
        return;
    m->fresh = false;
    text_copy(m->applied, sizeof(m->applied), config);
    put_record(m);
}

/* Records of older agents have the name only: of the files that are there. */
static void read_record(struct mig_manager *m) {
    _cleanup_buf_ struct buf text = BUF_INIT(64 << 10);
    uint64_t files;
    size_t name;

    m->fresh = file_read(m->options.record, 4096, &text, NULL) < 0;
    if (m->fresh)
        return;
    text_copy(m->applied, sizeof(m->applied), buf_str(&text));
    name = strcspn(m->applied, "\n");
    m->applied[name] = 0;
    if (sscanf(buf_str(&text) + name, "\n%16" SCNx64, &files) != 1)
        put_record(m);
    else if (files != m->files)
        write_record(m, "");
}

/* ---- status ---- */

static void set_status(struct mig_manager *m, enum mig_state state, const char *reason) {
    struct mig_status *s = &m->status;

    if (m->told && s->state == state && strcmp(s->config, m->wanted) == 0 &&
        strcmp(s->reason, reason) == 0)
        return;
    m->told = true;
    s->state = state;
    s->in_use = reason == m->pending ? m->in_use : 0;
    text_copy(s->config, sizeof(s->config), m->wanted);
    text_copy(s->reason, sizeof(s->reason), reason);
    m->options.handlers->on_status(s, m->options.userdata);
}

/* ---- a job ---- */

static void start_job(struct mig_manager *m);

static void on_timer(uv_timer_t *timer) {
    start_job(timer->data);
}

static void start_in(struct mig_manager *m, uint64_t ms) {
    (void) uv_timer_start(&m->timer, on_timer, ms, 0);
}

/* Not at once where one has just run: instances that come and go are no load on the driver. */
static void start_again(struct mig_manager *m) {
    uint64_t passed = uv_now(m->loop) - m->started;

    if (m->wanted[0] && !m->job.submitted)
        start_in(m, passed < SPACING_MS ? SPACING_MS - passed : 0);
}

static void add_reason(char reasons[static MIG_REASON_MAX], uint32_t index, const char *reason) {
    size_t n = strlen(reasons);

    (void) snprintf(reasons + n, MIG_REASON_MAX - n, "%sGPU %u %s", n ? "; " : "", index, reason);
}

/* One reset for each wish: where it has not helped, the next one does not either. */
static int reset_card(struct mig_manager *m, const struct gpu_mig_card *card, struct err *err) {
    uint64_t bit = card->index < GPU_CARDS_MAX ? UINT64_C(1) << card->index : 0;
    int r;

    if (m->reset & bit)
        return err_set(err, EBUSY, "its reset failed or had no effect");
    r = m->options.handlers->reset(card->uuid, m->options.userdata, err);
    if (r >= 0)
        m->reset |= bit;
    return r;
}

static void take_reset(struct mig_manager *m, const struct gpu_mig_card *card) {
    char text[320];
    struct err err;
    int r = reset_card(m, card, &err);

    if (r >= 0 || r == -EAGAIN) {
        add_reason(r >= 0 ? m->resetting : m->pending, card->index, card->error);
        return;
    }
    (void) snprintf(text, sizeof(text), "%.120s: %.120s; reset the card, or reboot the node",
                    card->error, err.text);
    add_reason(m->failed, card->index, text);
}

static void on_card(struct mig_job *job, const struct gpu_mig_card *card) {
    struct mig_manager *m = job->userdata;
    char text[2 * GPU_MIG_REASON_MAX + ERR_TEXT_MAX];

    if (card->result.changes > 0)
        log_info("MIG: GPU %u: %u changes in %llu us, of them in the driver %llu us", card->index,
                 card->result.changes, (unsigned long long) card->result.total_ns / 1000,
                 (unsigned long long) card->result.driver_ns / 1000);
    if (card->result.lost[0]) {
        (void) snprintf(text, sizeof(text), "could not be put back: %s", card->result.lost);
        add_reason(m->failed, card->index, text);
    }
    if (card->result.needs_reset && m->wish == m->running)
        take_reset(m, card);
    else if (card->status < 0)
        add_reason(m->failed, card->index, card->error);
    else if (card->result.pending) {
        m->in_use += card->result.in_use;
        add_reason(m->pending, card->index, card->result.reason);
    }
}

static void end_of_job(struct mig_manager *m, int status, const char *error) {
    if (status == -EBUSY || status == -ENODEV) {
        set_status(m, MIG_STATE_PENDING, error);
        start_in(m, BUSY_MS);
        return;
    }
    /* What was not reached as a whole has no name. */
    if (!m->job.order.mode_only)
        write_record(m, status < 0 || m->failed[0] || m->pending[0] || m->resetting[0] ? ""
                                                                                       : m->wanted);
    if (m->failed[0]) {
        set_status(m, MIG_STATE_FAILED, m->failed);
    } else if (status < 0) {
        set_status(m, MIG_STATE_FAILED, error);
        if (status != -EINVAL)
            start_in(m, UNREADY_MS);
    } else if (m->resetting[0]) {
        set_status(m, MIG_STATE_REBOOTING, m->resetting);
        start_in(m, RESETTING_MS);
    } else if (m->pending[0]) {
        set_status(m, MIG_STATE_PENDING, m->pending);
        start_in(m, PENDING_MS);
    } else {
        set_status(m, MIG_STATE_SUCCESS, "");
    }
}

static void on_done(struct mig_job *job, int status, const char *error) {
    struct mig_manager *m = job->userdata;

    if (m->wish == m->running)
        end_of_job(m, status, error);
    else if (m->wanted[0])
        start_in(m, 0);
}

/* The cards stay as they are. */
static bool is_without_file(struct mig_manager *m) {
    const char *why = m->options.handlers->no_file(m->options.userdata);

    if (!why)
        return false;
    write_record(m, "");
    set_status(m, MIG_STATE_FAILED, why);
    return true;
}

static void start_job(struct mig_manager *m) {
    struct gpu_mig_order *o = &m->job.order;

    if (m->job.submitted || !m->wanted[0])
        return;
    (void) uv_timer_stop(&m->timer);
    if (is_without_file(m))
        return;
    if (m->options.handlers->is_resetting(m->options.userdata)) {
        start_in(m, RESETTING_MS);
        return;
    }
    *o = (struct gpu_mig_order){
        .kind = GPU_MIG_CONFIG,
        .mode_only = m->dynamic && strcmp(m->applied, m->wanted) == 0,
        .left_out = m->left_out = m->options.handlers->left_out(m->options.userdata),
    };
    text_copy(o->file, sizeof(o->file), m->options.file);
    text_copy(o->hooks, sizeof(o->hooks), m->options.hooks);
    text_copy(o->config, sizeof(o->config), m->wanted);
    if (!m->fresh && strcmp(m->applied, m->wanted) != 0)
        write_record(m, "");
    m->pending[0] = m->failed[0] = m->resetting[0] = 0;
    m->in_use = 0;
    m->running = m->wish;
    m->started = uv_now(m->loop);
    mig_executor_submit(m->options.executor, &m->job);
}

/* ---- wishes ---- */

/* What is under way for a former wish ends before its next change. What the record names is checked
 * without being called pending: at each start of the agent. */
static void start_wish(struct mig_manager *m) {
    m->wish++;
    m->reset = 0;
    if (m->job.submitted)
        mig_executor_cancel(m->options.executor, &m->job);
    (void) uv_timer_stop(&m->timer);
    m->status.recorded = m->wanted[0] && strcmp(m->applied, m->wanted) == 0;
    set_status(m,
               !m->wanted[0]        ? MIG_STATE_NONE
               : m->status.recorded ? MIG_STATE_SUCCESS
                                    : MIG_STATE_PENDING,
               "");
    m->status.recorded = false;
    start_job(m);
}

/* What has no room is the name of no configuration. */
static const char *name_of(const char *config) {
    return strlen(config) < MIG_CONFIG_NAME_MAX ? config : "(a name that is too long)";
}

/* Returns whether they are others than before: nothing is applied of these. */
static bool see_files(struct mig_manager *m) {
    uint64_t files = hash_files(m);
    bool other = files != m->files;

    m->files = files;
    if (other && !m->fresh)
        write_record(m, "");
    return other;
}

/* Returns whether a wish has begun anew with it. */
static bool follow_files(struct mig_manager *m) {
    if (!see_files(m) || m->wish == 0 || !m->wanted[0])
        return false;
    start_wish(m);
    return true;
}

void mig_manager_want(struct mig_manager *m, const char *config, bool dynamic) {
    bool restore = m->dynamic && !dynamic; /* what was made and destroyed on demand */
    bool other = see_files(m);

    config = name_of(config);
    m->dynamic = dynamic;
    if (strcmp(m->wanted, config) == 0 && m->wish > 0 && !restore && !(other && config[0]))
        return;
    text_copy(m->wanted, sizeof(m->wanted), config);
    start_wish(m);
}

void mig_manager_see_file(struct mig_manager *m) {
    if (!follow_files(m) && m->wish > 0 && m->options.handlers->no_file(m->options.userdata))
        start_job(m);
}

/* A failed division is tried again only where something else is wanted, or a card answers again:
 * what it changes and undoes would go on for ever. */
void mig_manager_update(struct mig_manager *m, uint64_t division) {
    uint64_t left_out = m->options.handlers->left_out(m->options.userdata);
    bool other = division != m->division;

    m->division = division;
    if (follow_files(m) || m->wish == 0 || !m->wanted[0])
        return;
    if ((m->left_out & ~left_out) || (other && !m->dynamic && m->status.state == MIG_STATE_SUCCESS))
        start_again(m);
}

void mig_manager_retry(struct mig_manager *m) {
    if (m->status.state == MIG_STATE_PENDING && m->status.reason[0])
        start_again(m);
}

bool mig_manager_holds(const struct mig_manager *m) {
    return m->wanted[0] && m->fresh;
}

const struct mig_status *mig_manager_status(const struct mig_manager *m) {
    return &m->status;
}

/* ---- life ---- */

int mig_manager_new(uv_loop_t *loop, const struct mig_manager_options *options,
                    struct mig_manager **ret) {
    struct mig_manager *m = calloc(1, sizeof(*m));

    if (!m)
        return -ENOMEM;
    m->loop = loop;
    m->options = *options;
    m->job.on_card = on_card;
    m->job.on_done = on_done;
    m->job.userdata = m;
    m->files = hash_files(m);
    (void) uv_timer_init(loop, &m->timer);
    m->timer.data = m;
    read_record(m);
    *ret = m;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    free(handle->data);
}

void mig_manager_close(struct mig_manager *m) {
    uv_close((uv_handle_t *) &m->timer, on_timer_closed);
}
