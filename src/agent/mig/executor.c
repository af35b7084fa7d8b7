/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mig/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/err.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "gpu/mig/worker.h"
#include "gpu/nvml/child.h"

/* From the answer to Allocate to kubelet's checkpoint, at most. */
#define ALLOCATED_MS 10000
#define ALLOCATED_MAX GPU_MIG_HELD_MAX
#define WITHDRAWN_MAX (2 * GPU_MAX)
/* A poll that was under way when a job ended, and one after it. */
#define POLLS_AFTER 2
/* A process that is stuck in the kernel keeps a card open: the driver then refuses the change. */
#define CLOSE_MS 5000
#define CLOSE_STEP_MS 20
#define HANDLES 2 /* starter and closing */

struct allocated {
    char uuid[GPU_UUID_MAX];
    uint64_t at; /* loop time */
};

struct mig_executor {
    uv_loop_t *loop;
    struct mig_executor_options options;
    char program[256];
    struct mig_job *jobs; /* the first one runs */
    struct gpu_child *child;
    uv_idle_t starter;
    uv_timer_t closing;        /* asks again whether the card is closed */
    uint64_t closing_since;    /* loop time */
    char closed[GPU_UUID_MAX]; /* the card whose mode changes; "": none */
    unsigned handles;          /* the two above, and children that are not freed */
    struct allocated allocated[ALLOCATED_MAX];
    size_t nallocated;
    char withdrawn[WITHDRAWN_MAX][GPU_UUID_MAX]; /* by the job that runs, or the last one */
    uint32_t nwithdrawn;
    bool full;    /* the job that runs withdraws more than there is room for */
    bool returns; /* no job has them: they are offered again at return_at */
    uint64_t polls, return_at;
    struct on_closed on_closed;
};

static void start_next(struct mig_executor *x);

/* ---- what is in use ---- */

static bool is_held(const struct gpu_mig_held *held, const char *uuid) {
    for (uint32_t i = 0; i < held->n; i++)
        if (strcmp(held->list[i].uuid, uuid) == 0)
            return true;
    return false;
}

void mig_executor_add_held(struct gpu_mig_held *held, const char *uuid, const char *by) {
    if (is_held(held, uuid))
        return;
    if (held->n == GPU_MIG_HELD_MAX) {
        held->stop = GPU_MIG_STOP_FULL;
        return;
    }
    text_copy(held->list[held->n].uuid, sizeof(held->list[0].uuid), uuid);
    text_copy(held->list[held->n].by, sizeof(held->list[0].by), by);
    held->n++;
}

static void forget_allocated(struct mig_executor *x) {
    size_t n = 0;

    for (size_t i = 0; i < x->nallocated; i++)
        if (uv_now(x->loop) - x->allocated[i].at < ALLOCATED_MS)
            x->allocated[n++] = x->allocated[i];
    x->nallocated = n;
}

void mig_executor_allocated(struct mig_executor *x, const char *const *ids, size_t n) {
    forget_allocated(x);
    for (size_t i = 0; i < n; i++) {
        struct allocated *a = &x->allocated[x->nallocated];

        if (strncmp(ids[i], "MIG-", 4) != 0 && strncmp(ids[i], "GPU-", 4) != 0)
            continue;
        if (x->nallocated == ALLOCATED_MAX)
            a--; /* the last one is in kubelet's checkpoint the sooner */
        else
            x->nallocated++;
        text_copy(a->uuid, sizeof(a->uuid), ids[i]);
        a->uuid[strcspn(a->uuid, ":")] = 0;
        a->at = uv_now(x->loop);
    }
}

static void list_held(struct mig_executor *x, struct gpu_mig_held *ret) {
    memset(ret, 0, sizeof(*ret));
    ret->header = (struct gpu_mig_header){GPU_MIG_MAGIC, GPU_MIG_HELD};
    forget_allocated(x);
    for (size_t i = 0; i < x->nallocated; i++)
        mig_executor_add_held(ret, x->allocated[i].uuid, "a container that starts");
    x->options.handlers->held(ret, x->options.userdata);
}

/* ---- what is withdrawn ---- */

bool mig_executor_withdraws(const struct mig_executor *x, const char *uuid) {
    for (uint32_t i = 0; i < x->nwithdrawn; i++)
        if (strcmp(x->withdrawn[i], uuid) == 0)
            return true;
    return false;
}

/* Also the ones of former plans of the job: they can still be in the last reading. */
static bool withdraw(struct mig_executor *x, const char *uuid) {
    if (mig_executor_withdraws(x, uuid))
        return true;
    if (x->nwithdrawn == WITHDRAWN_MAX)
        return false;
    text_copy(x->withdrawn[x->nwithdrawn++], GPU_UUID_MAX, uuid);
    return true;
}

static void give_back(struct mig_executor *x) {
    if (x->nwithdrawn == 0)
        return;
    x->nwithdrawn = 0;
    x->options.handlers->on_withdraw(x->options.userdata);
}

void mig_executor_update(struct mig_executor *x, uint64_t polls) {
    x->polls = polls;
    if (x->returns && polls >= x->return_at) {
        x->returns = false;
        give_back(x);
    }
}

/* ---- cards whose mode changes ---- */

bool mig_executor_has_child(const struct mig_executor *x) {
    return x->handles > HANDLES;
}

bool mig_executor_closes(const struct mig_executor *x, const char *uuid) {
    return strcmp(x->closed, uuid) == 0;
}

static void open_again(struct mig_executor *x) {
    char uuid[GPU_UUID_MAX];

    (void) uv_timer_stop(&x->closing);
    text_copy(uuid, sizeof(uuid), x->closed);
    x->closed[0] = 0;
    if (uuid[0])
        x->options.handlers->open_card(uuid, x->options.userdata);
}

/* ---- messages ---- */

/* What has been taken before it was withdrawn does not end. Returns whether there is any. */
static bool keep_held(struct mig_executor *x, const struct gpu_mig_held *held) {
    uint32_t n = 0, before = x->nwithdrawn;

    for (uint32_t i = 0; i < before; i++) {
        if (is_held(held, x->withdrawn[i]))
            continue;
        if (n != i)
            memcpy(x->withdrawn[n], x->withdrawn[i], sizeof(x->withdrawn[n]));
        n++;
    }
    x->nwithdrawn = n;
    return n < before;
}

static void answer(struct mig_executor *x) {
    static struct gpu_mig_held held; /* as in send_order() */

    list_held(x, &held);
    if (x->jobs->canceled)
        held.stop = GPU_MIG_STOP_CANCELED;
    else if (x->full)
        held.stop = GPU_MIG_STOP_FULL;
    if (keep_held(x, &held))
        x->options.handlers->on_withdraw(x->options.userdata);
    /* A child that does not take it has not waited for it: it ends without its answer. */
    if (gpu_child_send(x->child, &held, sizeof(held)) < 0)
        log_warn("the process that divides GPUs takes no answer");
}

static void close_card(struct mig_executor *x) {
    if (uv_now(x->loop) - x->closing_since < CLOSE_MS &&
        !x->options.handlers->close_card(x->closed, x->options.userdata))
        return;
    (void) uv_timer_stop(&x->closing);
    answer(x);
}

static void on_closing(uv_timer_t *timer) {
    close_card(timer->data);
}

static void on_begin(struct mig_executor *x, const struct gpu_mig_begin *b) {
    x->returns = false;
    for (uint32_t i = 0; i < b->n && !x->jobs->canceled && !x->full; i++)
        x->full = !withdraw(x, b->ended[i]); /* more than a node can have */
    x->options.handlers->on_withdraw(x->options.userdata);
    if (!b->mode || !x->options.handlers->close_card || x->jobs->canceled || x->full) {
        answer(x);
        return;
    }
    if (!mig_executor_closes(x, b->card))
        open_again(x);
    text_copy(x->closed, sizeof(x->closed), b->card);
    x->closing_since = uv_now(x->loop);
    (void) uv_timer_start(&x->closing, on_closing, 0, CLOSE_STEP_MS);
}

/* ---- the end of a job ---- */

static void finish(struct mig_executor *x, int status, const char *error) {
    struct mig_job *job = x->jobs;

    LL_DELETE(x->jobs, job);
    job->submitted = false;
    if (x->child)
        gpu_child_kill(x->child);
    x->child = NULL;
    if (!x->returns)
        x->return_at = x->polls + POLLS_AFTER;
    x->returns = true;
    job->on_done(job, status, error);
    open_again(x); /* the agent may submit a job again here */
    start_next(x);
}

static void on_message(const void *message, int type, void *userdata) {
    const union gpu_mig_message *m = message;
    struct mig_executor *x = userdata;

    gpu_child_arm(x->child, MIG_JOB_DEADLINE_MS);
    switch (type) {
    case GPU_MIG_BEGIN:
        on_begin(x, &m->begin);
        break;
    case GPU_MIG_STEP:
        log_info("MIG: %s", m->step.text);
        break;
    case GPU_MIG_CARD:
        if (x->jobs->on_card)
            x->jobs->on_card(x->jobs, &m->card);
        break;
    case GPU_MIG_END:
        finish(x, m->end.status, m->end.error);
        break;
    default:
        finish(x, -EBADMSG, "the process that divides GPUs sent an unexpected message");
    }
}

static void on_end(bool malformed, void *userdata) {
    finish(userdata, malformed ? -EBADMSG : -EIO,
           malformed ? "the process that divides GPUs sent a malformed message"
                     : "the process that divides GPUs has ended before its job");
}

static void on_timer(void *userdata) {
    finish(userdata, -ETIMEDOUT,
           "a call of the driver did not return in time; its process was "
           "killed");
}

/* ---- a child ---- */

static void release(struct mig_executor *x) {
    if (--x->handles == 0)
        on_closed_free(&x->on_closed, x);
}

static void on_freed(void *userdata) {
    release(userdata);
}

static int check_message(const void *message, size_t size) {
    return gpu_mig_message_check(message, size);
}

static int start_child(struct mig_executor *x, const char *library) {
    static const struct gpu_child_protocol protocol = {
        GPU_MIG_WORKER_COMMAND, sizeof(union gpu_mig_message), check_message};
    static const struct gpu_child_handlers handlers = {on_message, on_end, on_timer, on_freed};
    const struct gpu_child_options options = {.protocol = &protocol,
                                              .program = x->program,
                                              .library = library,
                                              .handlers = &handlers,
                                              .userdata = x};
    int r = gpu_child_start(x->loop, &options, &x->child);

    if (r < 0)
        return r;
    x->handles++;
    gpu_child_arm(x->child, MIG_JOB_DEADLINE_MS);
    return 0;
}

static int send_order(struct mig_executor *x, const struct mig_job *job) {
    static struct gpu_mig_message_order message; /* too large for a stack; one thread */

    message = (struct gpu_mig_message_order){.header = {GPU_MIG_MAGIC, GPU_MIG_ORDER},
                                             .order = job->order};
    text_copy(message.order.lock, sizeof(message.order.lock), x->options.lock);
    text_copy(message.order.kubelet_dir, sizeof(message.order.kubelet_dir), x->options.kubelet_dir);
    text_copy(message.order.pod_logs, sizeof(message.order.pod_logs), x->options.pod_logs);
    text_copy(message.order.hook_root, sizeof(message.order.hook_root), x->options.hook_root);
    list_held(x, &message.held);
    return gpu_child_send(x->child, &message, sizeof(message));
}

static int check_start(const struct mig_executor *x, struct err *err) {
    return x->options.handlers->may_start
               ? x->options.handlers->may_start(&x->jobs->order, x->options.userdata, err)
               : 0;
}

static void start_job(struct mig_executor *x) {
    const char *library = x->options.handlers->library(x->options.userdata);
    char text[160];
    struct err err;
    int r;

    if (x->jobs->canceled) {
        finish(x, -ECANCELED, "another division is wanted");
        return;
    }
    if (!library) {
        finish(x, -ENODEV, "no GPU driver was found on this node");
        return;
    }
    if (check_start(x, &err) < 0) {
        finish(x, -EBUSY, err.text);
        return;
    }
    x->full = false;
    r = start_child(x, library);
    if (r >= 0)
        r = send_order(x, x->jobs);
    if (r < 0) {
        (void) snprintf(text, sizeof(text), "cannot start the process that divides GPUs: %s",
                        uv_strerror(r));
        finish(x, r, text);
    }
}

static void on_start(uv_idle_t *starter) {
    struct mig_executor *x = starter->data;

    (void) uv_idle_stop(starter);
    if (x->jobs && !x->child)
        start_job(x);
}

static void start_next(struct mig_executor *x) {
    if (x->jobs && !x->child && !x->on_closed.call)
        (void) uv_idle_start(&x->starter, on_start);
}

/* ---- jobs ---- */

void mig_executor_submit(struct mig_executor *x, struct mig_job *job) {
    job->submitted = true;
    job->canceled = false;
    LL_APPEND(x->jobs, job);
    start_next(x);
}

void mig_executor_cancel(struct mig_executor *x, struct mig_job *job) {
    (void) x;
    job->canceled = true;
}

/* ---- life ---- */

int mig_executor_new(uv_loop_t *loop, const struct mig_executor_options *options,
                     struct mig_executor **ret) {
    struct mig_executor *x = calloc(1, sizeof(*x));
    size_t size = sizeof(x->program);

    if (!x)
        return -ENOMEM;
    x->loop = loop;
    x->options = *options;
    if (options->program)
        text_copy(x->program, sizeof(x->program), options->program);
    else if (uv_exepath(x->program, &size) < 0)
        text_copy(x->program, sizeof(x->program), "/proc/self/exe");
    (void) uv_idle_init(loop, &x->starter);
    (void) uv_timer_init(loop, &x->closing);
    x->starter.data = x->closing.data = x;
    x->handles = HANDLES;
    *ret = x;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    release(handle->data);
}

void mig_executor_close(struct mig_executor *x, void (*on_closed)(void *userdata), void *userdata) {
    x->on_closed = (struct on_closed){on_closed, userdata};
    x->jobs = NULL;
    if (x->child)
        gpu_child_kill(x->child);
    x->child = NULL;
    uv_close((uv_handle_t *) &x->starter, on_handle_closed);
    uv_close((uv_handle_t *) &x->closing, on_handle_closed);
}
