/* SPDX-License-Identifier: Apache-2.0 */

/* Repartitions through NVML, on a driver that is a table of functions of this test: it ends the
 * run at any call, refuses what it likes and counts. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gpu/mig/apply.h"
#include "gpu/mig/card_read.h"
#include "gpu/nvml/nvml.h"
#include "sim/mig.h"

#define MIB_80GB (81920ull << 20)
#define NEVER INT32_MAX

struct nvmlComputeInstance_st {
    unsigned int id, slices, start;
    bool there, process; /* listed by the driver */
    bool hidden;         /* in use, and not listed */
    nvmlGpuInstance_t parent;
};

struct nvmlGpuInstance_st {
    unsigned int id, start;
    const struct mig_profile *profile; /* NULL: none */
    struct nvmlComputeInstance_st ci[7];
};

static struct {
    const struct mig_profile *rows;
    size_t nrows;
    unsigned int mode;
    bool mode_busy;   /* processes on the undivided card */
    bool mode_hidden; /* and ones that are not listed */
    bool mps;         /* a server of MPS, which is not in the way */
    pid_t lists;      /* the process that is listed; 0: PID 1 */
    nvmlReturn_t activation;
    bool mute; /* tells of profiles only in MIG mode */
    struct nvmlGpuInstance_st gi[8];
    int changes, dies_at, fails_at;
    const char *refuses; /* names of profiles of which no instance can be made */
    jmp_buf death;
} driver;

#define DEVICE ((nvmlDevice_t) (void *) &driver)

static const unsigned int slices_of[] = {1, 2, 3, 4, 7};

static const char *error_string(nvmlReturn_t code) {
    return code == NVML_ERROR_INSUFFICIENT_RESOURCES ? "Insufficient Resources" : "Error";
}

/* A call that changes something. */
static bool fails(void) {
    if (driver.changes == driver.dies_at)
        longjmp(driver.death, 1);
    return driver.changes++ == driver.fails_at;
}

static nvmlReturn_t get_mode(nvmlDevice_t d, unsigned int *now, unsigned int *next) {
    (void) d;
    *now = *next = driver.mode;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_mode(nvmlDevice_t d, unsigned int mode, nvmlReturn_t *activation) {
    (void) d;
    if (fails())
        return NVML_ERROR_UNKNOWN;
    *activation = driver.mode_busy || driver.mode_hidden ? NVML_ERROR_IN_USE : driver.activation;
    if (*activation == NVML_SUCCESS)
        driver.mode = mode;
    return NVML_SUCCESS;
}

static nvmlReturn_t memory_info(nvmlDevice_t d, nvmlMemory_t *ret) {
    (void) d;
    *ret = (nvmlMemory_t){.total = MIB_80GB};
    return NVML_SUCCESS;
}

static nvmlReturn_t profile_info(nvmlDevice_t d, unsigned int number,
                                 nvmlGpuInstanceProfileInfo_t *ret) {
    (void) d;
    for (size_t i = 0; i < driver.nrows && !(driver.mute && !driver.mode); i++)
        if (driver.rows[i].nvml == number) {
            *ret = (nvmlGpuInstanceProfileInfo_t){.id = driver.rows[i].id,
                                                  .sliceCount = driver.rows[i].slices,
                                                  .instanceCount = driver.rows[i].most,
                                                  .memorySizeMB = driver.rows[i].memory_mib};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

static const struct mig_profile *by_id(unsigned int id) {
    for (size_t i = 0; i < driver.nrows; i++)
        if (driver.rows[i].id == id)
            return &driver.rows[i];
    return NULL;
}

static nvmlReturn_t placements(nvmlDevice_t d, unsigned int id, nvmlGpuInstancePlacement_t *list,
                               unsigned int *count) {
    unsigned int n = 0;

    (void) d;
    for (unsigned int start = 0; start < 8; start++)
        if (by_id(id)->starts >> start & 1)
            list[n++] = (nvmlGpuInstancePlacement_t){start, by_id(id)->memory_slices};
    *count = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t list_instances(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *list,
                                   unsigned int *count) {
    (void) d;
    *count = 0;
    for (size_t i = 0; i < 8; i++)
        if (driver.gi[i].profile && driver.gi[i].profile->id == id)
            list[(*count)++] = &driver.gi[i];
    return NVML_SUCCESS;
}

static nvmlReturn_t instance_info(nvmlGpuInstance_t gi, nvmlGpuInstanceInfo_t *ret) {
    *ret = (nvmlGpuInstanceInfo_t){
        DEVICE, gi->id, gi->profile->id, {gi->start, gi->profile->memory_slices}};
    return NVML_SUCCESS;
}

static nvmlReturn_t instance_by_id(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *ret) {
    (void) d;
    for (size_t i = 0; i < 8; i++)
        if (driver.gi[i].profile && driver.gi[i].id == id) {
            *ret = &driver.gi[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t compute_profile(nvmlGpuInstance_t gi, unsigned int number, unsigned int engine,
                                    nvmlComputeInstanceProfileInfo_t *ret) {
    (void) engine;
    if (number >= 5 || slices_of[number] > gi->profile->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = (nvmlComputeInstanceProfileInfo_t){
        .id = 100 + number, .sliceCount = slices_of[number], .instanceCount = 7};
    return NVML_SUCCESS;
}

static nvmlReturn_t list_compute(nvmlGpuInstance_t gi, unsigned int id, nvmlComputeInstance_t *list,
                                 unsigned int *count) {
    *count = 0;
    for (size_t k = 0; k < 7; k++)
        if (gi->ci[k].there && slices_of[id - 100] == gi->ci[k].slices)
            list[(*count)++] = &gi->ci[k];
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_info(nvmlComputeInstance_t ci, nvmlComputeInstanceInfo_t *ret) {
    *ret = (nvmlComputeInstanceInfo_t){
        .id = ci->id, .gpuInstance = ci->parent, .placement = {ci->start, ci->slices}};
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_by_id(nvmlGpuInstance_t gi, unsigned int id,
                                  nvmlComputeInstance_t *ret) {
    if (id >= 7 || !gi->ci[id].there)
        return NVML_ERROR_NOT_FOUND;
    *ret = &gi->ci[id];
    return NVML_SUCCESS;
}

static nvmlReturn_t destroy_compute(nvmlComputeInstance_t ci) {
    if (fails())
        return NVML_ERROR_UNKNOWN;
    if (ci->process || ci->hidden)
        return NVML_ERROR_IN_USE;
    ci->there = false;
    return NVML_SUCCESS;
}

static nvmlReturn_t destroy_instance(nvmlGpuInstance_t gi) {
    if (fails())
        return NVML_ERROR_UNKNOWN;
    for (size_t k = 0; k < 7; k++)
        if (gi->ci[k].there)
            return NVML_ERROR_IN_USE;
    memset(gi, 0, sizeof(*gi));
    return NVML_SUCCESS;
}

static nvmlReturn_t make_compute(nvmlGpuInstance_t gi, unsigned int id,
                                 nvmlComputeInstance_t *ret) {
    unsigned int slices = slices_of[id - 100], taken = 0, start = 0, k = 0;

    if (fails())
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for (size_t i = 0; i < 7; i++)
        if (gi->ci[i].there)
            taken |= ((1u << gi->ci[i].slices) - 1) << gi->ci[i].start;
    while (start + slices <= gi->profile->slices && (taken & ((1u << slices) - 1) << start))
        start++;
    if (start + slices > gi->profile->slices)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (gi->ci[k].there)
        k++;
    gi->ci[k] = (struct nvmlComputeInstance_st){
        .id = k, .slices = slices, .start = start, .there = true, .parent = gi};
    *ret = &gi->ci[k];
    return NVML_SUCCESS;
}

static nvmlReturn_t make_instance(nvmlDevice_t d, unsigned int id,
                                  const nvmlGpuInstancePlacement_t *at, nvmlGpuInstance_t *ret) {
    const struct mig_profile *p = by_id(id);
    unsigned int k = 0;

    (void) d;
    if (fails() || !driver.mode || !(p->starts >> at->start & 1) ||
        (driver.refuses && strstr(driver.refuses, p->name)))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for (size_t i = 0; i < 8; i++)
        if (driver.gi[i].profile && (mig_bits(driver.gi[i].profile, (int) driver.gi[i].start) &
                                     mig_bits(p, (int) at->start)))
            return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (driver.gi[k].profile)
        k++;
    driver.gi[k] = (struct nvmlGpuInstance_st){.id = k, .start = at->start, .profile = p};
    *ret = &driver.gi[k];
    return NVML_SUCCESS;
}

/* MIG devices: the compute instances in order. Their handles are those of the instances. */
static nvmlReturn_t device_count(nvmlDevice_t d, unsigned int *ret) {
    (void) d;
    *ret = 7;
    return NVML_SUCCESS;
}

static nvmlReturn_t device_by_index(nvmlDevice_t d, unsigned int index, nvmlDevice_t *ret) {
    (void) d;
    for (size_t i = 0; i < 8; i++)
        for (size_t k = 0; k < 7; k++)
            if (driver.gi[i].profile && driver.gi[i].ci[k].there && index-- == 0) {
                *ret = (nvmlDevice_t) (void *) &driver.gi[i].ci[k];
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t device_gi(nvmlDevice_t d, unsigned int *ret) {
    *ret = ((nvmlComputeInstance_t) (void *) d)->parent->id;
    return NVML_SUCCESS;
}

static nvmlReturn_t device_ci(nvmlDevice_t d, unsigned int *ret) {
    *ret = ((nvmlComputeInstance_t) (void *) d)->id;
    return NVML_SUCCESS;
}

/* PID 1 is there in every container. */
static nvmlReturn_t processes(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_v2_t *list) {
    bool any = d == DEVICE ? driver.mode_busy || driver.mps
                           : ((nvmlComputeInstance_t) (void *) d)->process;

    *count = any;
    if (any)
        list[0] = (nvmlProcessInfo_v2_t){.pid = driver.lists ? (unsigned int) driver.lists : 1,
                                         .gpuInstanceId = 99,
                                         .computeInstanceId = 99};
    return NVML_SUCCESS;
}

static const struct nvml nvml = {
    .error_string = error_string,
    .nvmlDeviceGetMigMode = get_mode,
    .nvmlDeviceSetMigMode = set_mode,
    .nvmlDeviceGetMemoryInfo = memory_info,
    .nvmlDeviceGetGpuInstanceProfileInfo = profile_info,
    .nvmlDeviceGetGpuInstancePossiblePlacements_v2 = placements,
    .nvmlDeviceGetGpuInstances = list_instances,
    .nvmlGpuInstanceGetInfo = instance_info,
    .nvmlDeviceGetGpuInstanceById = instance_by_id,
    .nvmlGpuInstanceGetComputeInstanceProfileInfo = compute_profile,
    .nvmlGpuInstanceGetComputeInstances = list_compute,
    .nvmlComputeInstanceGetInfo_v2 = compute_info,
    .nvmlGpuInstanceGetComputeInstanceById = compute_by_id,
    .nvmlComputeInstanceDestroy = destroy_compute,
    .nvmlGpuInstanceDestroy = destroy_instance,
    .nvmlGpuInstanceCreateComputeInstance = make_compute,
    .nvmlDeviceCreateGpuInstanceWithPlacement = make_instance,
    .nvmlDeviceGetMaxMigDeviceCount = device_count,
    .nvmlDeviceGetMigDeviceHandleByIndex = device_by_index,
    .nvmlDeviceGetGpuInstanceId = device_gi,
    .nvmlDeviceGetComputeInstanceId = device_ci,
    .nvmlDeviceGetComputeRunningProcesses_v3 = processes,
};

/* ---- what the tests say ---- */

static void begin(void) {
    memset(&driver, 0, sizeof(driver));
    driver.rows = mig_profiles_by_name("NVIDIA A100-SXM4-80GB", &driver.nrows);
    driver.mode = 1;
    driver.dies_at = driver.fails_at = NEVER;
}

static struct nvmlGpuInstance_st *add(const char *name, unsigned int start) {
    nvmlGpuInstancePlacement_t at = {start, 0};
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    unsigned int number = 0;

    for (size_t i = 0; i < driver.nrows; i++)
        if (strcmp(driver.rows[i].name, name) == 0)
            assert_int_equal(make_instance(DEVICE, driver.rows[i].id, &at, &gi), NVML_SUCCESS);
    while (slices_of[number] != gi->profile->slices)
        number++;
    assert_int_equal(make_compute(gi, 100 + number, &ci), NVML_SUCCESS);
    driver.changes = 0;
    return gi;
}

/* "1g.10gb@0 3g.40gb@4(1,2)": a compute instance of all slices is not shown. */
static const char *layout(void) {
    static char text[256];

    text[0] = 0;
    for (unsigned int start = 0; start < 8; start++)
        for (size_t i = 0; i < 8; i++) {
            size_t n = strlen(text);
            const struct nvmlGpuInstance_st *gi = &driver.gi[i];
            unsigned int sum = 0;

            if (!gi->profile || gi->start != start)
                continue;
            for (size_t k = 0; k < 7; k++)
                sum += gi->ci[k].there ? gi->ci[k].slices : 0;
            (void) snprintf(text + n, sizeof(text) - n, "%s%s@%u%s", n ? " " : "",
                            gi->profile->name, start, sum == gi->profile->slices ? "" : "!");
        }
    return text;
}

struct wish {
    const char *list;
    const char *pod; /* that holds the instance `held` */
    unsigned int held;
    const char *admitted; /* a pod that takes it once the plan has been made */
    unsigned int marks;
    char steps[1024];
};

static int want_list(const struct mig_card *card, void *userdata, struct mig_want *ret,
                     struct err *err) {
    struct mig_devices devices[MIG_DEVICES_MAX] = {0};
    uint32_t n = 0;
    char text[256], *rest = text, *word;

    (void) snprintf(text, sizeof(text), "%s", ((struct wish *) userdata)->list);
    while ((word = strsep(&rest, ",")) && *word) {
        assert_int_equal(mig_name_parse(word, &devices[n].name, err), 0);
        devices[n++].count = 1;
    }
    return mig_want_devices(card, devices, n, ret, err);
}

static int mark_pod(struct mig_card *card, void *userdata, struct err *err) {
    struct wish *wish = userdata;

    (void) err;
    if (wish->admitted && wish->marks++ > 0)
        wish->pod = wish->admitted;
    for (uint32_t i = 0; i < card->ninstances; i++)
        if (wish->pod && card->instances[i].id == wish->held) {
            card->instances[i].in_use = true;
            mig_card_add_holder(card->instances[i].holders, wish->pod);
        }
    return 0;
}

static void add_step(const char *text, void *userdata) {
    struct wish *wish = userdata;
    size_t n = strlen(wish->steps);

    (void) snprintf(wish->steps + n, sizeof(wish->steps) - n, "%s\n", text);
}

static int apply(struct wish *wish, bool enabled, struct gpu_mig_result *ret, struct err *err) {
    const struct gpu_mig_request request = {.enabled = enabled,
                                            .want = want_list,
                                            .mark = mark_pod,
                                            .step = add_step,
                                            .userdata = wish};

    wish->steps[0] = 0;
    driver.changes = 0;
    return gpu_mig_apply(&nvml, DEVICE, &request, ret, err);
}

#define WISH(text) (&(struct wish){.list = (text)})

/* ---- tests ---- */

static void test_beside_one_in_use(void **state) {
    struct gpu_mig_result result;
    struct wish wish = {.list = "3g.40gb,1g.10gb,1g.10gb"};
    (void) state;

    begin();
    add("3g.40gb", 0)->ci[0].process = true;
    (void) add("2g.20gb", 4);
    assert_int_equal(apply(&wish, true, &result, NULL), 0);
    assert_false(result.pending);
    assert_string_equal(layout(), "3g.40gb@0 1g.10gb@4 1g.10gb@5");
    assert_string_equal(wish.steps, "destroy compute instance 0 of instance 1\n"
                                    "destroy instance 1 (2g.20gb at 4)\n"
                                    "make instance 1g.10gb at 4\n"
                                    "make compute instance of 1 slices in instance 1\n"
                                    "make instance 1g.10gb at 5\n"
                                    "make compute instance of 1 slices in instance 2\n");
    assert_int_equal(result.changes, 6);
    assert_int_equal(driver.changes, 6);
    assert_true(result.driver_ns <= result.total_ns);
    /* Again: nothing is left to do. */
    assert_int_equal(apply(&wish, true, &result, NULL), 0);
    assert_int_equal(driver.changes, 0);
}

/* The program ends before any of its calls; run again, it finishes what was begun. */
static void test_ended_at_every_call(void **state) {
    static const char wanted[] = "3g.40gb,1g.10gb,1g.10gb+me,1c.2g.20gb,1c.2g.20gb";
    volatile int at = -1;
    bool ended;
    (void) state;

    do {
        struct gpu_mig_result result;

        begin();
        add("3g.40gb", 4)->ci[0].process = true;
        (void) add("2g.20gb", 0);
        (void) add("1g.10gb+me", 2);
        (void) add("1g.10gb+me", 3);
        driver.dies_at = ++at;
        ended = setjmp(driver.death) != 0;
        if (!ended)
            assert_int_equal(apply(WISH(wanted), true, &result, NULL), 0);
        driver.dies_at = NEVER;
        assert_int_equal(apply(WISH(wanted), true, &result, NULL), 0);
        assert_false(result.pending);
        assert_true(driver.gi[0].profile && driver.gi[0].ci[0].process);
        assert_int_equal(apply(WISH(wanted), true, &result, NULL), 0);
        assert_int_equal(driver.changes, 0);
    } while (ended);
    assert_int_equal(at, 7); /* as many calls as the whole takes */
}

/* The driver names no process, and refuses all the same. */
static void test_in_use_by_an_unnamed_process(void **state) {
    struct gpu_mig_result result;
    (void) state;

    for (unsigned int hidden = 0; hidden < 3; hidden++) {
        begin();
        (void) add("1g.10gb", 0);
        (void) add("2g.20gb", 2);
        (void) add("3g.40gb", 4);
        driver.gi[hidden].ci[0].hidden = true;
        assert_int_equal(apply(WISH("7g.80gb"), true, &result, NULL), 0);
        assert_true(result.pending);
        assert_non_null(strstr(result.reason, "of a process that the driver does not name"));
        assert_string_equal(layout(), "1g.10gb@0 2g.20gb@2 3g.40gb@4");
        assert_true(driver.gi[hidden].ci[0].hidden);
    }
    /* Where another choice leads there, it is made. */
    for (unsigned int hidden = 0; hidden < 2; hidden++) {
        begin();
        (void) add("1g.10gb", 0);
        (void) add("1g.10gb", 6);
        driver.gi[hidden].ci[0].hidden = true;
        assert_int_equal(apply(WISH("1g.10gb"), true, &result, NULL), 0);
        assert_false(result.pending);
        assert_string_equal(layout(), hidden == 0 ? "1g.10gb@0" : "1g.10gb@6");
    }
}

static void test_pending_changes_nothing(void **state) {
    struct gpu_mig_result result;
    struct wish wish = {.list = "7g.80gb", .pod = "pod team/notebook", .held = 0};
    (void) state;

    begin();
    (void) add("3g.40gb", 0);
    add("3g.40gb", 4)->ci[0].process = true;
    assert_int_equal(apply(&wish, true, &result, NULL), 0);
    assert_true(result.pending);
    assert_int_equal(result.in_use, 2);
    assert_int_equal(driver.changes, 0);
    assert_non_null(strstr(result.reason, "instance 0 (3g.40gb at 0) of pod team/notebook"));
    assert_non_null(strstr(result.reason, "instance 1 (3g.40gb at 4) of process 1"));
}

static void test_a_call_fails(void **state) {
    struct gpu_mig_result result;
    struct err err;
    int calls;
    (void) state;

    begin();
    (void) add("3g.40gb", 0);
    (void) add("3g.40gb", 4);
    assert_int_equal(apply(WISH("3g.40gb,2g.20gb,1g.10gb"), true, &result, NULL), 0);
    calls = driver.changes;
    for (int at = 0; at < calls; at++) {
        begin();
        (void) add("3g.40gb", 0);
        (void) add("3g.40gb", 4);
        driver.fails_at = at;
        assert_int_equal(apply(WISH("3g.40gb,2g.20gb,1g.10gb"), true, &result, &err), -EIO);
        assert_non_null(strstr(err.text, ": "));
        assert_string_equal(layout(), "3g.40gb@0 3g.40gb@4");
        assert_string_equal(result.lost, "");
    }
}

static void test_an_instance_cannot_be_put_back(void **state) {
    struct gpu_mig_result result;
    struct err err;
    (void) state;

    begin();
    (void) add("2g.20gb", 0);
    (void) add("1g.10gb", 2);
    (void) add("1g.10gb", 3);
    (void) add("3g.40gb", 4);
    driver.refuses = "7g.80gb 2g.20gb";
    assert_int_equal(apply(WISH("7g.80gb"), true, &result, &err), -EIO);
    assert_non_null(strstr(err.text, "7g.80gb at 0"));
    assert_string_equal(layout(), "1g.10gb@2 1g.10gb@3 3g.40gb@4");
    assert_non_null(strstr(result.lost, "2g.20gb at 0 (2g.20gb at 0: "));
    assert_null(strstr(result.lost, "1g.10gb"));
    assert_null(strstr(result.lost, "3g.40gb"));
}

/* An instance that this run made and kubelet has given to a pod is not destroyed. */
static void test_a_new_instance_has_a_pod(void **state) {
    struct wish wish = {.list = "3g.40gb,2g.20gb", .held = 0, .admitted = "pod team/new"};
    struct gpu_mig_result result;
    struct err err;
    (void) state;

    begin();
    (void) add("7g.80gb", 0);
    driver.refuses = "2g.20gb";
    assert_int_equal(apply(&wish, true, &result, &err), -EIO);
    assert_true(strncmp(layout(), "3g.40gb@", 8) == 0);
    assert_non_null(strstr(result.lost, "7g.80gb at 0 ("));
}

static void test_mode(void **state) {
    struct gpu_mig_result result;
    struct err err;
    (void) state;

    for (int mute = 0; mute < 2; mute++) {
        begin();
        driver.mode = 0;
        driver.mute = mute;
        assert_int_equal(apply(WISH("3g.40gb,3g.40gb"), true, &result, NULL), 0);
        assert_false(result.pending);
        assert_string_equal(layout(), "3g.40gb@0 3g.40gb@4");
        assert_int_equal(apply(WISH(""), false, &result, NULL), 0);
        assert_int_equal(driver.mode, 0);
        assert_string_equal(layout(), "");
    }
    /* Not even the mode changes for what the card cannot be. */
    driver.mute = false;
    assert_int_equal(apply(WISH("7g.80gb,1g.10gb"), true, &result, &err), -ENOSPC);
    assert_int_equal(driver.changes, 0);
    /* It is changed back where the driver says only then what the card cannot be. */
    driver.mute = true;
    assert_int_equal(apply(WISH("7g.80gb,1g.10gb"), true, &result, &err), -ENOSPC);
    assert_int_equal(driver.mode, 0);
    driver.mode_busy = true;
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, NULL), 0);
    assert_true(result.pending && driver.changes == 0);
    assert_non_null(strstr(result.reason, "the card by process 1"));
    assert_int_equal(result.in_use, 1);
    driver.mode_busy = false;
    driver.mode_hidden = true;
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, NULL), 0);
    assert_true(result.pending);
    driver.mode_hidden = false;
    driver.activation = NVML_ERROR_RESET_REQUIRED;
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, &err), -EBUSY);
    assert_non_null(strstr(err.text, "until the card is reset"));
    assert_true(result.needs_reset);
}

/* Also where the driver tells of no profiles before the mode is on. */
static void test_mode_kept(void **state) {
    const struct gpu_mig_request on = {.enabled = true, .mode_kept = true, .want = want_list};
    struct gpu_mig_result result;
    struct err err;
    (void) state;

    for (int mute = 0; mute < 2; mute++) {
        begin();
        driver.mode = 0;
        driver.mute = mute;
        assert_int_equal(gpu_mig_apply(&nvml, DEVICE, &on, &result, &err), -EINVAL);
        assert_string_equal(err.text, "the card is not in MIG mode");
        assert_int_equal(driver.changes, 0);
    }
}

static void test_mode_only(void **state) {
    const struct gpu_mig_request on = {.enabled = true, .mode_only = true},
                                 off = {.enabled = false, .mode_only = true};
    struct gpu_mig_result result;
    (void) state;

    begin();
    (void) add("3g.40gb", 0);
    assert_int_equal(gpu_mig_apply(&nvml, DEVICE, &on, &result, NULL), 0);
    assert_string_equal(layout(), "3g.40gb@0");
    assert_int_equal(gpu_mig_apply(&nvml, DEVICE, &off, &result, NULL), 0);
    assert_int_equal(driver.mode, 0);
    assert_int_equal(gpu_mig_apply(&nvml, DEVICE, &on, &result, NULL), 0);
    assert_int_equal(driver.mode, 1);
    assert_string_equal(layout(), "");
}

static void test_parts_of_instances(void **state) {
    struct gpu_mig_result result;
    (void) state;

    begin();
    (void) add("3g.40gb", 4);
    assert_int_equal(apply(WISH("2c.3g.40gb,1c.3g.40gb"), true, &result, NULL), 0);
    assert_int_equal(driver.gi[0].ci[0].slices, 2);
    assert_int_equal(driver.gi[0].ci[1].slices, 1);
    assert_int_equal(result.changes, 3); /* the GPU instance stays */
    driver.gi[0].ci[1].process = true;
    assert_int_equal(apply(WISH("1c.3g.40gb,1c.3g.40gb,1c.3g.40gb"), true, &result, NULL), 0);
    assert_false(result.pending);
    assert_true(driver.gi[0].ci[1].process);
    assert_string_equal(layout(), "3g.40gb@4");
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, NULL), 0);
    assert_true(result.pending);
    assert_string_equal(layout(), "3g.40gb@4");
}

/* What the plan could not be made of is an error, and changes nothing. */
static void test_impossible_answers(void **state) {
    struct gpu_mig_result result;
    struct err err;
    (void) state;

    begin();
    add("3g.40gb", 4)->start = 3;
    assert_int_equal(apply(WISH("1g.10gb"), true, &result, &err), -EIO);
    assert_non_null(strstr(err.text, "an instance at 3"));
    begin();
    add("3g.40gb", 4)->ci[0].start = 60;
    assert_int_equal(apply(WISH("1g.10gb"), true, &result, &err), -EIO);
    assert_non_null(strstr(err.text, "at 60"));
    assert_int_equal(driver.changes, 0);
}

/* A plan without it would take its slices as free. */
static void test_an_unknown_profile(void **state) {
    static struct mig_profile rows[32];
    struct mig_card card;
    struct err err;

    (void) state;
    begin();
    assert_true(driver.nrows <= 32);
    memcpy(rows, driver.rows, driver.nrows * sizeof(rows[0]));
    driver.rows = rows;
    (void) add("1g.10gb", 0);
    (void) add("3g.40gb", 4);
    assert_int_equal(gpu_mig_read(&nvml, DEVICE, &card, &err), 0);
    for (size_t i = 0; i < driver.nrows; i++)
        if (strcmp(rows[i].name, "3g.40gb") == 0)
            rows[i].nvml = MIG_PROFILE_NUMBERS;
    assert_int_equal(gpu_mig_read(&nvml, DEVICE, &card, &err), -EIO);
    assert_non_null(strstr(err.text, "GPU instance 1 has a profile that is not known"));
}

/* Its MPS server stays on a card without clients. Where the driver refuses for it, the mode waits.
 */
static void test_an_mps_server(void **state) {
    struct gpu_mig_result result;
    char before[16];

    (void) state;
    begin();
    driver.mode = 0;
    driver.mode_busy = true;
    driver.lists = getpid();
    assert_int_equal(prctl(PR_GET_NAME, before), 0);
    assert_int_equal(prctl(PR_SET_NAME, "nvidia-cuda-mps-server"), 0);
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, NULL), 0);
    assert_true(result.pending && driver.changes > 0);
    driver.mode_busy = false;
    driver.mps = true;
    assert_int_equal(apply(WISH("3g.40gb"), true, &result, NULL), 0);
    assert_int_equal(prctl(PR_SET_NAME, before), 0);
    assert_false(result.pending);
    assert_string_equal(layout(), "3g.40gb@4");
}

static void test_no_mig(void **state) {
    struct nvml none = {.error_string = error_string};
    struct mig_card card;
    (void) state;

    assert_int_equal(gpu_mig_read(&none, DEVICE, &card, NULL), 0);
    assert_false(card.capable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_one_in_use),
        cmocka_unit_test(test_ended_at_every_call),
        cmocka_unit_test(test_in_use_by_an_unnamed_process),
        cmocka_unit_test(test_pending_changes_nothing),
        cmocka_unit_test(test_a_call_fails),
        cmocka_unit_test(test_an_instance_cannot_be_put_back),
        cmocka_unit_test(test_a_new_instance_has_a_pod),
        cmocka_unit_test(test_mode),
        cmocka_unit_test(test_mode_kept),
        cmocka_unit_test(test_mode_only),
        cmocka_unit_test(test_parts_of_instances),
        cmocka_unit_test(test_impossible_answers),
        cmocka_unit_test(test_an_unknown_profile),
        cmocka_unit_test(test_an_mps_server),
        cmocka_unit_test(test_no_mig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
