/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "gpu/mig/card_read.h"
#include "gpu/mig/held_devices.h"
#include "gpu/mig/lock.h"
#include "gpu/mig/machine.h"
#include "gpu/mig/messages.h"
#include "gpu/mig/run_hooks.h"
#include "gpu/nvml/worker.h"

struct worker {
    const char *library;
    union gpu_mig_message in, out;
    struct gpu_mig_order order;
    struct gpu_mig_held known; /* in use, by the agent */
    struct held_devices held;  /* in use, by kubelet */
    struct mig_machine machine;
    struct mig_selection selection;
    struct gpu_mig_hooks hooks;
    char hook_mark[GPU_MIG_PATH_MAX + 8];
};

/* What the callbacks need of one card. */
struct job {
    struct worker *worker;
    nvmlDevice_t device;
    const struct mig_spec *spec; /* CONFIG */
};

/* ---- messages ---- */

/* -EPIPE: the agent is gone. */
static int send_message(struct worker *w, enum gpu_mig_message_type type, size_t size) {
    w->out.header = (struct gpu_mig_header){GPU_MIG_MAGIC, type};
    return send(GPU_WORKER_FD, &w->out, size, MSG_NOSIGNAL) < 0 ? -EPIPE : 0;
}

static int receive_message(struct worker *w, enum gpu_mig_message_type type) {
    ssize_t n;

    do
        n = recv(GPU_WORKER_FD, &w->in, sizeof(w->in), 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return -EPIPE;
    return gpu_mig_message_check(&w->in, (size_t) n) == (int) type ? 0 : -EBADMSG;
}

static int send_end(struct worker *w, int status, const struct err *err) {
    memset(&w->out, 0, sizeof(w->out));
    w->out.end.status = status;
    if (status < 0)
        text_copy(w->out.end.error, sizeof(w->out.end.error), err->text);
    return send_message(w, GPU_MIG_END, sizeof(w->out.end));
}

/* ---- what is in use ---- */

/* A node whose kubelet has never run has no checkpoint. */
static int mark(struct mig_card *card, void *userdata, struct err *err) {
    const struct job *job = userdata;
    struct worker *w = job->worker;
    int r = held_devices_read(w->order.kubelet_dir, w->order.pod_logs, &w->held, err);

    if (r == -ENOENT)
        held_devices_done(&w->held);
    else if (r < 0)
        return r;
    r = 0;
    for (uint32_t i = 0; r >= 0 && i < w->known.n; i++)
        r = held_devices_add(&w->held, w->known.list[i].uuid, w->known.list[i].by, err);
    if (r >= 0)
        held_devices_mark(&w->held, &w->machine.nvml, job->device, card);
    return r;
}

static bool is_known(const struct worker *w, const char *uuid) {
    for (uint32_t i = 0; i < w->known.n; i++)
        if (strcmp(w->known.list[i].uuid, uuid) == 0)
            return true;
    return false;
}

/* ---- before the steps of a plan ---- */

/* Compute instances in use are in no plan to end. */
static bool ends(const struct mig_card *card, const struct mig_plan *plan, unsigned int gi,
                 unsigned int ci) {
    for (uint32_t i = 0; i < card->ninstances; i++) {
        const struct mig_instance *instance = &card->instances[i];

        if (instance->id != gi || plan->fate[i] == MIG_STAYS)
            continue;
        for (uint32_t k = 0; k < instance->ncompute; k++)
            if (instance->compute[k].id == ci)
                return !instance->compute[k].in_use;
    }
    return false;
}

static void add_ended(const struct nvml *n, nvmlDevice_t part, struct gpu_mig_begin *ret) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";

    if (ret->n < GPU_MIG_ENDED_MAX &&
        n->nvmlDeviceGetUUID(part, uuid, sizeof(uuid)) == NVML_SUCCESS)
        text_copy(ret->ended[ret->n++], GPU_UUID_MAX, uuid);
}

static void find_ended(const struct job *job, const struct mig_card *card,
                       const struct mig_plan *plan, struct gpu_mig_begin *ret) {
    const struct nvml *n = &job->worker->machine.nvml;
    unsigned int most = 0;

    (void) n->nvmlDeviceGetUUID(job->device, ret->card, sizeof(ret->card));
    ret->mode = plan->set_mode;
    if (plan->set_mode)
        add_ended(n, job->device, ret);
    if (!card->enabled || !n->nvmlDeviceGetMaxMigDeviceCount ||
        n->nvmlDeviceGetMaxMigDeviceCount(job->device, &most) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < most; i++) {
        unsigned int gi, ci;
        nvmlDevice_t part;

        if (n->nvmlDeviceGetMigDeviceHandleByIndex(job->device, i, &part) == NVML_SUCCESS &&
            n->nvmlDeviceGetGpuInstanceId(part, &gi) == NVML_SUCCESS &&
            n->nvmlDeviceGetComputeInstanceId(part, &ci) == NVML_SUCCESS &&
            ends(card, plan, gi, ci))
            add_ended(n, part, ret);
    }
}

static void send_step(struct worker *w, const char *text) {
    memset(&w->out.step, 0, sizeof(w->out.step));
    text_copy(w->out.step.text, sizeof(w->out.step.text), text);
    (void) send_message(w, GPU_MIG_STEP, sizeof(w->out.step));
}

/* The agent withdraws from kubelet what ends, and says what has been taken before. Hooks come
 * first: as long as they run, all that is there is offered. */
static int begin(const struct mig_card *card, const struct mig_plan *plan, void *userdata,
                 struct err *err) {
    const struct job *job = userdata;
    struct worker *w = job->worker;
    struct gpu_mig_begin *message = &w->out.begin;
    int r = gpu_mig_hooks_before(&w->hooks, plan->set_mode, err);

    if (r != 0)
        return r < 0 ? r : -EAGAIN;
    memset(message, 0, sizeof(*message));
    find_ended(job, card, plan, message);
    r = send_message(w, GPU_MIG_BEGIN, sizeof(*message));
    if (r >= 0)
        r = receive_message(w, GPU_MIG_HELD);
    if (r < 0)
        return err_set(err, -r, "the agent does not answer");
    w->known = w->in.held;
    if (w->known.stop != GPU_MIG_GO)
        return err_set(err, ECANCELED,
                       w->known.stop == GPU_MIG_STOP_FULL
                           ? "more devices are held or withdrawn than the agent has room for"
                           : "another division is wanted");
    for (uint32_t i = 0; i < message->n; i++)
        if (is_known(w, message->ended[i]))
            return -EAGAIN;
    return 0;
}

static void step(const char *text, void *userdata) {
    send_step(((const struct job *) userdata)->worker, text);
}

/* ---- orders ---- */

static void put_status(struct gpu_mig_card *c, int status, const struct err *err) {
    c->status = status;
    if (status < 0)
        text_copy(c->error, sizeof(c->error), err->text);
}

/* `result`: of a change; NULL: the card is only read, and the status is that of the reading. */
static int send_card(const struct job *job, uint32_t index, int status,
                     const struct gpu_mig_result *result, const struct err *err) {
    struct worker *w = job->worker;
    struct gpu_mig_card *c = &w->out.card;
    struct err cause;
    int r;

    memset(c, 0, sizeof(*c));
    c->index = index;
    put_status(c, status, err);
    if (result)
        c->result = *result;
    (void) w->machine.nvml.nvmlDeviceGetUUID(job->device, c->uuid, sizeof(c->uuid));
    r = gpu_mig_read(&w->machine.nvml, job->device, &c->card, &cause);
    if (r >= 0)
        r = mark(&c->card, (void *) (uintptr_t) job, &cause);
    c->known = r >= 0;
    if (!c->known)
        memset(&c->card, 0, sizeof(c->card));
    if (!result)
        put_status(c, r, &cause);
    return send_message(w, GPU_MIG_CARD, sizeof(*c));
}

static int want_spec(const struct mig_card *card, void *userdata, struct mig_want *ret,
                     struct err *err) {
    const struct mig_spec *spec = ((const struct job *) userdata)->spec;

    return mig_want_devices(card, spec->devices, spec->ndevices, ret, err);
}

static int want_edit(const struct mig_card *card, void *userdata, struct mig_want *ret,
                     struct err *err) {
    const struct worker *w = ((const struct job *) userdata)->worker;

    return mig_want_edit(card, &w->order.edit, ret, err);
}

/* What fails is told with the card. -EPIPE: the agent is gone; -ECANCELED. */
static int apply_card(struct job *job, uint32_t index, bool enabled, struct err *err) {
    struct worker *w = job->worker;
    const struct gpu_mig_request request = {.enabled = enabled,
                                            .mode_only = w->order.mode_only != 0,
                                            .mode_kept = !job->spec,
                                            .want = job->spec ? want_spec : want_edit,
                                            .mark = mark,
                                            .begin = begin,
                                            .step = step,
                                            .userdata = job};
    struct gpu_mig_result result = {0};
    int r = gpu_mig_apply(&w->machine.nvml, job->device, &request, &result, err);
    int sent = send_card(job, index, r, &result, err);

    return r == -ECANCELED ? r : sent;
}

/* The other cards do not wait for one that fails. */
static int apply_spec(struct worker *w, uint32_t i, const struct mig_spec *spec, struct err *err) {
    struct job job = {.worker = w, .device = w->machine.devices[i], .spec = spec};

    return apply_card(&job, w->machine.of[i].index, spec->enabled, err);
}

static void tell_hook(const char *text, void *userdata) {
    send_step(userdata, text);
}

/* The mark lies beside the lock, which is held as long as hooks run. */
static int open_hooks(struct worker *w, struct err *err) {
    (void) snprintf(w->hook_mark, sizeof(w->hook_mark), "%s.hooks", w->order.lock);
    w->hooks = (struct gpu_mig_hooks){.root = w->order.hook_root,
                                      .mark = w->hook_mark,
                                      .tell = tell_hook,
                                      .userdata = w,
                                      .config_file = w->order.file,
                                      .selected_config = w->order.config,
                                      .hooks_file = w->order.hooks,
                                      .mode_only = w->order.mode_only != 0};
    return gpu_mig_hooks_open(&w->hooks, err);
}

static int configure(struct worker *w, struct err *err) {
    int r = mig_machine_open(&w->machine, w->library, w->order.left_out, err);

    w->selection.file = w->order.file;
    w->selection.name = w->order.config;
    if (r >= 0)
        r = mig_selection_read(&w->selection, &w->machine, err);
    if (r >= 0)
        r = mig_selection_check(&w->selection, &w->machine, w->order.mode_only != 0, err);
    for (uint32_t i = 0; r >= 0 && i < w->machine.n; i++) {
        const struct mig_spec *spec;

        r = mig_selection_spec(&w->selection, &w->machine.of[i], &spec, err);
        if (r >= 0 && spec)
            r = apply_spec(w, i, spec, err);
    }
    return r < 0 ? r : mig_machine_check(&w->machine, err);
}

static int open_card(struct worker *w, struct job *ret, struct err *err) {
    struct nvml *n = &w->machine.nvml;
    nvmlReturn_t code;
    int r = nvml_load(w->library, n, err);

    if (r < 0)
        return r;
    code = n->nvmlInit_v2();
    if (code == NVML_SUCCESS)
        code = n->nvmlDeviceGetHandleByUUID
                   ? n->nvmlDeviceGetHandleByUUID(w->order.card, &ret->device)
                   : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (code != NVML_SUCCESS)
        return gpu_mig_error(n, code, "nvmlDeviceGetHandleByUUID", err);
    return 0;
}

/* The lock is held until this process ends. */
static int carry_out(struct worker *w, struct err *err) {
    struct job job = {.worker = w};
    int r = w->order.kind == GPU_MIG_READ ? 0 : gpu_mig_lock(w->order.lock, err);

    if (r >= 0 && w->order.kind == GPU_MIG_CONFIG) {
        r = open_hooks(w, err);
        return r < 0 ? r : gpu_mig_hooks_end(&w->hooks, configure(w, err), err);
    }
    if (r >= 0)
        r = open_card(w, &job, err);
    if (r < 0)
        return r;
    return w->order.kind == GPU_MIG_EDIT ? apply_card(&job, 0, true, err)
                                         : send_card(&job, 0, 0, NULL, err);
}

int gpu_mig_worker_main(int argc, char **argv) {
    static struct worker w;
    struct err err = {0};
    int r;

    if (argc != 3 || fcntl(GPU_WORKER_FD, F_GETFD) < 0) {
        (void) fprintf(stderr, "%s is started by the agent itself\n", GPU_MIG_WORKER_COMMAND);
        return EXIT_FAILURE;
    }
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) prctl(PR_SET_NAME, "aliquot-mig");
    w.library = argv[2];
    if (receive_message(&w, GPU_MIG_ORDER) < 0)
        return EXIT_FAILURE;
    w.order = w.in.order.order;
    w.known = w.in.order.held;
    r = carry_out(&w, &err);
    return send_end(&w, r < 0 ? r : 0, &err) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
