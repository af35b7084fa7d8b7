/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/apply.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "gpu/mig/card_read.h"
#include "gpu/nvml/nvml.h"

/* Each round but the last finds one instance more that is in use, changes the mode, or runs the
 * hooks before a change of the mode or of instances. */
#define ROUNDS_MAX (MIG_CARD_INSTANCES_MAX * MIG_COMPUTE_MAX + 6)
#define ANY_COMPUTE UINT32_MAX

/* A compute instance that the driver refused to destroy. */
struct refusal {
    uint32_t gi, ci;
};

struct run {
    const struct nvml *nvml;
    nvmlDevice_t device;
    const struct gpu_mig_request *request;
    struct gpu_mig_result result;
    struct mig_card card;
    struct refusal refusals[ROUNDS_MAX];
    uint32_t nrefusals;
    bool card_refused; /* the mode did not change: the card is in use */
};

/* ---- calls that change the card ---- */

static void announce(struct run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void announce(struct run *run, const char *format, ...) {
    char text[160];
    va_list ap;

    run->result.changes++;
    if (!run->request->step)
        return;
    va_start(ap, format);
    (void) vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    run->request->step(text, run->request->userdata);
}

/* The result of a call, whose time is the driver's. */
#define TIMED(run, call)                                                                           \
    ({                                                                                             \
        uint64_t _begin = clock_ns(CLOCK_MONOTONIC);                                               \
        nvmlReturn_t _code = (call);                                                               \
        (run)->result.driver_ns += clock_ns(CLOCK_MONOTONIC) - _begin;                             \
        _code;                                                                                     \
    })

static const char *name_of(const struct run *run, uint32_t profile,
                           char out[static MIG_PROFILE_NAME_MAX]) {
    return mig_name_format(&run->card.profiles[profile].name, out);
}

/* -EAGAIN: in use, remembered; the caller reads the card anew. */
static int check_destroyed(struct run *run, nvmlReturn_t code, const char *call, uint32_t gi,
                           uint32_t ci, struct err *err) {
    if (code == NVML_SUCCESS || code == NVML_ERROR_NOT_FOUND)
        return 0;
    if (code != NVML_ERROR_IN_USE || run->nrefusals == ROUNDS_MAX)
        return gpu_mig_error(run->nvml, code, call, err);
    run->refusals[run->nrefusals++] = (struct refusal){gi, ci};
    return -EAGAIN;
}

static int destroy_compute(struct run *run, nvmlGpuInstance_t handle, const struct mig_instance *gi,
                           const struct mig_compute *c, struct err *err) {
    nvmlComputeInstance_t compute;
    nvmlReturn_t code = run->nvml->nvmlGpuInstanceGetComputeInstanceById(handle, c->id, &compute);

    if (code == NVML_SUCCESS) {
        announce(run, "destroy compute instance %u of instance %u", c->id, gi->id);
        code = TIMED(run, run->nvml->nvmlComputeInstanceDestroy(compute));
    }
    return check_destroyed(run, code, "nvmlComputeInstanceDestroy", gi->id, c->id, err);
}

static int destroy_instance(struct run *run, const struct mig_instance *gi, struct err *err) {
    nvmlGpuInstance_t handle;
    char name[MIG_PROFILE_NAME_MAX];
    nvmlReturn_t code = run->nvml->nvmlDeviceGetGpuInstanceById(run->device, gi->id, &handle);

    if (code != NVML_SUCCESS)
        return check_destroyed(run, code, "nvmlDeviceGetGpuInstanceById", gi->id, ANY_COMPUTE, err);
    for (uint32_t i = 0; i < gi->ncompute; i++) {
        int r = destroy_compute(run, handle, gi, &gi->compute[i], err);

        if (r < 0)
            return r;
    }
    announce(run, "destroy instance %u (%s at %u)", gi->id, name_of(run, gi->profile, name),
             gi->start);
    code = TIMED(run, run->nvml->nvmlGpuInstanceDestroy(handle));
    return check_destroyed(run, code, "nvmlGpuInstanceDestroy", gi->id, ANY_COMPUTE, err);
}

/* The compute instance profile of so many slices. */
static nvmlReturn_t find_compute_profile(const struct nvml *n, nvmlGpuInstance_t handle,
                                         uint32_t slices, unsigned int *ret_id) {
    nvmlReturn_t last = NVML_ERROR_NOT_SUPPORTED;

    for (unsigned int number = 0; number < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; number++) {
        nvmlComputeInstanceProfileInfo_t info = {0};

        last = n->nvmlGpuInstanceGetComputeInstanceProfileInfo(
            handle, number, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);
        if (last != NVML_SUCCESS || info.sliceCount != slices)
            continue;
        *ret_id = info.id;
        return NVML_SUCCESS;
    }
    return last == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : last;
}

static int make_compute(struct run *run, nvmlGpuInstance_t handle, uint32_t gi, uint32_t slices,
                        struct err *err) {
    nvmlComputeInstance_t compute;
    unsigned int id;
    nvmlReturn_t code = find_compute_profile(run->nvml, handle, slices, &id);

    announce(run, "make compute instance of %u slices in instance %u", slices, gi);
    if (code == NVML_SUCCESS)
        code = TIMED(run, run->nvml->nvmlGpuInstanceCreateComputeInstance(handle, id, &compute));
    return code == NVML_SUCCESS
               ? 0
               : gpu_mig_error(run->nvml, code, "nvmlGpuInstanceCreateComputeInstance", err);
}

static int make_instance(struct run *run, const struct mig_wanted *w, uint32_t start,
                         struct err *err) {
    const struct mig_card_profile *p = &run->card.profiles[w->profile];
    nvmlGpuInstancePlacement_t placement = {start, p->size};
    nvmlGpuInstanceInfo_t info = {0};
    nvmlGpuInstance_t handle;
    char name[MIG_PROFILE_NAME_MAX];
    nvmlReturn_t code;

    announce(run, "make instance %s at %u", name_of(run, w->profile, name), start);
    code = TIMED(run, run->nvml->nvmlDeviceCreateGpuInstanceWithPlacement(run->device, p->id,
                                                                          &placement, &handle));
    if (code == NVML_SUCCESS)
        code = run->nvml->nvmlGpuInstanceGetInfo(handle, &info);
    if (code != NVML_SUCCESS) {
        (void) gpu_mig_error(run->nvml, code, "nvmlDeviceCreateGpuInstanceWithPlacement", err);
        return err_wrap(err, "%s at %u", name, start);
    }
    for (uint32_t i = 0; i < w->ncompute; i++) {
        int r = make_compute(run, handle, info.id, w->compute[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int refit_instance(struct run *run, const struct mig_instance *gi,
                          const struct mig_wanted *w, struct err *err) {
    struct mig_refit refit;
    nvmlGpuInstance_t handle;
    nvmlReturn_t code = run->nvml->nvmlDeviceGetGpuInstanceById(run->device, gi->id, &handle);
    int r = mig_plan_refit(gi, run->card.profiles[gi->profile].name.slices, w, &refit);

    if (code != NVML_SUCCESS)
        return gpu_mig_error(run->nvml, code, "nvmlDeviceGetGpuInstanceById", err);
    if (r < 0)
        return err_set(err, -r, "the compute instances of instance %u do not fit", gi->id);
    for (uint32_t i = 0; r >= 0 && i < gi->ncompute; i++)
        if (refit.destroy >> i & 1)
            r = destroy_compute(run, handle, gi, &gi->compute[i], err);
    for (uint32_t i = 0; r >= 0 && i < refit.nmake; i++)
        r = make_compute(run, handle, gi->id, refit.make[i], err);
    return r;
}

/* -EAGAIN: the card is in use, remembered. */
static int set_mode(struct run *run, bool enabled, struct err *err) {
    nvmlReturn_t activation = NVML_SUCCESS, code;

    announce(run, "MIG mode %s", enabled ? "on" : "off");
    if (!run->nvml->nvmlDeviceSetMigMode)
        return err_set(err, EOPNOTSUPP, "the driver has no nvmlDeviceSetMigMode");
    code = TIMED(run, run->nvml->nvmlDeviceSetMigMode(run->device, enabled, &activation));
    if (code == NVML_SUCCESS)
        code = activation;
    if (code == NVML_ERROR_IN_USE && !run->card_refused) {
        run->card_refused = true;
        return -EAGAIN;
    }
    run->result.needs_reset = code == NVML_ERROR_RESET_REQUIRED;
    if (run->result.needs_reset)
        return err_set(err, EBUSY, "MIG mode is pending until the card is reset");
    return code == NVML_SUCCESS ? 0 : gpu_mig_error(run->nvml, code, "nvmlDeviceSetMigMode", err);
}

/* ---- a round ---- */

static void apply_refusals(struct run *run) {
    static const char unnamed[] = "a process that the driver does not name";

    if (run->card_refused) {
        run->card.in_use = true;
        if (!run->card.holders[0])
            mig_card_add_holder(run->card.holders, unnamed);
    }
    for (uint32_t i = 0; i < run->nrefusals; i++)
        for (uint32_t k = 0; k < run->card.ninstances; k++) {
            struct mig_instance *gi = &run->card.instances[k];

            if (gi->id != run->refusals[i].gi)
                continue;
            gi->in_use = run->card.in_use = true;
            if (!gi->holders[0])
                mig_card_add_holder(gi->holders, unnamed);
            for (uint32_t c = 0; c < gi->ncompute; c++)
                if (gi->compute[c].id == run->refusals[i].ci)
                    gi->compute[c].in_use = true;
        }
}

static int read_card(struct run *run, struct err *err) {
    int r = gpu_mig_read(run->nvml, run->device, &run->card, err);

    if (r < 0)
        return r;
    if (run->request->mark)
        r = run->request->mark(&run->card, run->request->userdata, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < run->card.ninstances; i++)
        run->card.in_use = run->card.in_use || run->card.instances[i].in_use;
    apply_refusals(run);
    return 0;
}

static int make_steps(struct run *run, const struct mig_want *want, const struct mig_plan *plan,
                      struct err *err) {
    const struct gpu_mig_request *q = run->request;
    int r = q->begin ? q->begin(&run->card, plan, q->userdata, err) : 0;

    if (r < 0)
        return r;
    if (plan->set_mode && want->enabled)
        return set_mode(run, true, err);
    for (uint32_t i = 0; r >= 0 && i < run->card.ninstances; i++)
        if (plan->fate[i] == MIG_DESTROY)
            r = destroy_instance(run, &run->card.instances[i], err);
    for (uint32_t i = 0; r >= 0 && i < run->card.ninstances; i++)
        if (plan->fate[i] == MIG_REFITS)
            r = refit_instance(run, &run->card.instances[i], &want->instances[plan->becomes[i]],
                               err);
    for (uint32_t i = 0; r >= 0 && i < plan->nmake; i++)
        r = make_instance(run, &want->instances[plan->make[i].wanted], plan->make[i].start, err);
    return r >= 0 && plan->set_mode ? set_mode(run, false, err) : r;
}

/* What is wanted of the card as it was read last; only the mode as long as it tells no profiles. */
static int find_want(struct run *run, struct mig_want *ret, struct err *err) {
    const struct gpu_mig_request *q = run->request;

    *ret = (struct mig_want){.enabled = q->enabled};
    if (q->mode_kept && run->card.enabled != q->enabled)
        return err_set(err, EINVAL, "the card is %sin MIG mode", q->enabled ? "not " : "");
    if (!q->enabled || (run->card.nprofiles == 0 && !run->card.enabled))
        return 0;
    if (!q->mode_only)
        return q->want(&run->card, q->userdata, ret, err);
    run->card.ninstances = 0; /* as they are */
    return 0;
}

/* Until what is wanted is reached or pending. */
static int converge(struct run *run, struct err *err) {
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        struct mig_want want = {0};
        struct mig_plan plan;
        int r = read_card(run, err);

        if (r >= 0)
            r = find_want(run, &want, err);
        if (r >= 0)
            r = mig_plan(&run->card, &want, &plan, err);
        if (r < 0 || plan.outcome == MIG_REACHED)
            return r;
        if (plan.outcome == MIG_PENDING) {
            _cleanup_buf_ struct buf text = BUF_INIT((size_t) 4 * GPU_MIG_REASON_MAX);

            mig_plan_explain(&run->card, &plan, &text);
            text_copy(run->result.reason, sizeof(run->result.reason), buf_str(&text));
            run->result.pending = true;
            run->result.in_use = (uint32_t) __builtin_popcount(plan.blockers) + plan.card_blocks;
            return 0;
        }
        r = make_steps(run, &want, &plan, err);
        if (r < 0 && r != -EAGAIN)
            return r;
    }
    return err_set(err, EIO, "the card does not become what the driver said it would");
}

/* ---- back to what it was ---- */

static const struct mig_instance *find_at(const struct mig_card *card,
                                          const struct mig_instance *like) {
    for (uint32_t i = 0; i < card->ninstances; i++)
        if (card->instances[i].profile == like->profile && card->instances[i].start == like->start)
            return &card->instances[i];
    return NULL;
}

static void describe(const struct mig_instance *gi, struct mig_wanted *ret) {
    *ret = (struct mig_wanted){.profile = gi->profile, .start = gi->start};
    /* The largest first. */
    for (uint32_t slices = MIG_COMPUTE_MAX; slices > 0; slices--)
        for (uint32_t k = 0; k < gi->ncompute; k++)
            if (gi->compute[k].slices == slices)
                ret->compute[ret->ncompute++] = slices;
}

static void add_lost(struct run *run, const char *what, const struct err *cause) {
    char *text = run->result.lost;
    size_t n = strlen(text);

    (void) snprintf(text + n, GPU_MIG_REASON_MAX - n, "%s%s (%s)", n ? ", " : "", what,
                    cause->text);
}

static int put_back(struct run *run, const struct mig_instance *old, struct err *err) {
    const struct mig_instance *now = find_at(&run->card, old);
    struct mig_wanted w;

    (void) err_set(err, EBUSY, "in use"); /* a call that the driver refused sets no text */
    describe(old, &w);
    if (!now)
        return make_instance(run, &w, old->start, err);
    return mig_card_has_compute(now, w.compute, w.ncompute) ? 0 : refit_instance(run, now, &w, err);
}

/* The mode that the driver keeps as pending after a refusal is taken back, too. */
static int restore_mode(struct run *run, bool enabled, struct err *err) {
    bool same = run->card.enabled == enabled;
    int r;

    (void) err_set(err, EBUSY, "in use");
    r = same && !run->card_refused ? 0 : set_mode(run, enabled, err);

    return same ? 0 : r;
}

/* Each instance by itself: one that cannot be put back leaves the others. */
static void undo(struct run *run, const struct mig_card *before) {
    uint32_t changes = run->result.changes;
    struct err err;

    if (read_card(run, &err) < 0 ||
        (before->enabled && (restore_mode(run, true, &err) < 0 || read_card(run, &err) < 0))) {
        add_lost(run, "the division", &err);
        return;
    }
    for (uint32_t i = 0; i < run->card.ninstances; i++) {
        const struct mig_instance *gi = &run->card.instances[i];

        /* What this leaves is in the way of another one, which is then named. */
        if (!find_at(before, gi) && !gi->in_use)
            (void) destroy_instance(run, gi, &err);
    }
    if (!before->enabled && restore_mode(run, false, &err) < 0)
        add_lost(run, "MIG mode off", &err);
    if (before->enabled && read_card(run, &err) < 0)
        add_lost(run, "the division", &err);
    for (uint32_t i = 0; before->enabled && i < before->ninstances; i++) {
        const struct mig_instance *old = &before->instances[i];
        char name[MIG_PROFILE_NAME_MAX], what[MIG_PROFILE_NAME_MAX + 16];

        (void) snprintf(what, sizeof(what), "%s at %u",
                        mig_name_format(&before->profiles[old->profile].name, name), old->start);
        if (put_back(run, old, &err) < 0)
            add_lost(run, what, &err);
    }
    run->result.changes = changes;
}

int gpu_mig_apply(const struct nvml *n, nvmlDevice_t device, const struct gpu_mig_request *request,
                  struct gpu_mig_result *ret, struct err *err) {
    struct run run = {.nvml = n, .device = device, .request = request};
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    struct mig_card before;
    int r = gpu_mig_read(n, device, &before, err);

    *ret = (struct gpu_mig_result){0};
    if (r < 0)
        return r;
    r = converge(&run, err);
    if ((r < 0 || run.result.pending) && run.result.changes > 0)
        undo(&run, &before);
    run.result.total_ns = clock_ns(CLOCK_MONOTONIC) - begin;
    *ret = run.result;
    return r;
}
