/* SPDX-License-Identifier: Apache-2.0 */

/* The monitor and its child, on an NVML that hangs, crashes and loses cards. */

#include "gpu-world.h"

static void inventory(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    assert_true(snap(f)->devices[1].healthy);
    assert_true(snap(f)->devices[0].memory == (uint64_t) 80 << 30);
    assert_int_equal(snap(f)->devices[0].nprocesses, 100);
    assert_int_equal(snap(f)->devices[0].processes[99].pid, 1099);
    assert_int_equal(snap(f)->devices[1].nprocesses, 0);
}

/* A process in two lists counts once, with the larger figure. */
static void clients_of_mps(void **state) {
    struct fixture *f = *state;
    const struct gpu_device *d = &snap(f)->devices[0];

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "mps", true);
    RUN_UNTIL(f, d->nprocesses == 101);
    assert_true(d->processes[99].pid == 1099 && d->processes[99].memory == 500);
    assert_true(d->processes[100].pid == 1100 && d->processes[100].memory == 501);
    switch_fault(f, "mps", false);
}

/* On a busy card of whose processes no load was ever reported, it is not 0 but not known. */
static void loads_of_processes(void **state) {
    struct fixture *f = *state;
    const struct gpu_device *d = &snap(f)->devices[0];

    switch_fault(f, "silent-loads", true);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_false(gpu_tells_load(d));
    assert_true(gpu_tells_load(d + 1));
    switch_fault(f, "older-load", true);
    RUN_UNTIL(f, gpu_tells_load(d));
    assert_int_equal(d->processes[0].sm_percent, 40);
    assert_int_equal(d->processes[1].sm_percent, 0);
    switch_fault(f, "older-load", false);
    switch_fault(f, "silent-loads", false);
    RUN_UNTIL(f, d->processes[0].sm_percent == 55);
    assert_true(gpu_tells_load(d));
}

/* The memory of a process, which a sum over processes then lacks. */
static void memory_that_is_not_told(void **state) {
    struct fixture *f = *state;
    const struct gpu_device *d = &snap(f)->devices[0];

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_int_equal(d->sample.memory_untold, 0);
    switch_fault(f, "untold", true);
    RUN_UNTIL(f, d->sample.memory_untold);
    assert_int_equal(d[1].sample.memory_untold, 0);
    switch_fault(f, "untold", false);
    RUN_UNTIL(f, !d->sample.memory_untold);
}

static bool is_moving(struct fixture *f) {
    const struct gpu_sample *sample = &snap(f)->devices[1].sample;

    return sample->memory_most - sample->memory_allocated == (uint64_t) 4 << 30;
}

/* Memory that was taken or given back while the processes were listed is in use as far as it could
 * be held, and not in use as far as it could belong to one of them. */
static void memory_that_moves_during_a_look(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(snap(f)->devices[1].sample.memory_most == (uint64_t) 1 << 29);
    assert_true(snap(f)->devices[1].sample.memory_allocated == (uint64_t) 1 << 29);
    switch_fault(f, "taken", true);
    RUN_UNTIL(f, is_moving(f));
    switch_fault(f, "taken", false);
    RUN_UNTIL(f, !is_moving(f));
    switch_fault(f, "returned", true);
    RUN_UNTIL(f, is_moving(f));
    switch_fault(f, "returned", false);
}

/* A driver that does not separate its reserve: all memory in use may be held by processes. */
static void driver_without_reserve(void **state) {
    struct fixture *f = *state;
    const struct gpu_sample *sample = &snap(f)->devices[0].sample;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(sample->memory_most == (uint64_t) 1 << 29);
    assert_true(sample->memory_reserved == (uint64_t) 1 << 29);
    switch_fault(f, "no-reserve", true);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 2); /* one that began after the fault */
    assert_false(sample->attributable);
    assert_true(sample->memory_used == (uint64_t) 1 << 30);
    assert_true(sample->memory_most == sample->memory_used);
    assert_true(sample->memory_allocated == sample->memory_used);
    assert_true(sample->memory_reserved == 0);
}

/* One lost card does not take the other with it, keeps its name, and comes back. */
static void lost_card(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "lost", true);
    RUN_UNTIL(f, !snap(f)->devices[1].healthy);
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    assert_non_null(strstr(snap(f)->devices[1].reason, "GPU is lost"));
    assert_true(snap(f)->devices[0].healthy);
    switch_fault(f, "lost", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy);
    assert_int_equal(status(f).restarts, 0);
}

static void expect_instance(const struct gpu_device *d, const char *uuid, uint32_t number) {
    const struct gpu_mig mig = {
        7 + number, number / 2, "1c.2g.20gb+me", 19, 4, 2, 2, 1, 7, 14, 1, 2, 3, 4, 5};

    assert_int_equal(d->kind, GPU_MIG_INSTANCE);
    assert_string_equal(d->uuid, uuid);
    assert_string_equal(d->parent, "GPU-fake-1");
    assert_string_equal(d->model, "Fake MIG 1c.2g.20gb+me");
    assert_int_equal(d->index, number);
    assert_int_equal(d->minor, 1);
    assert_int_equal(d->memory, 80 * GIB);
    assert_memory_equal(&d->mig, &mig, sizeof(mig));
}

/* A card in MIG mode comes with its instances; numbers without an instance are left out. */
static void mig_mode(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "mig-pending", true); /* from its next reset on */
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 2);
    assert_int_equal(snap(f)->ndevices, 2);
    switch_fault(f, "mig", true);
    RUN_UNTIL(f, snap(f)->ndevices == 4);
    assert_string_equal(snap(f)->devices[0].uuid, "GPU-fake-0");
    assert_false(snap(f)->devices[0].divided);
    assert_true(snap(f)->devices[1].divided);
    expect_instance(&snap(f)->devices[2], "MIG-fake-0", 0);
    expect_instance(&snap(f)->devices[3], "MIG-fake-2", 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(snap(f)->devices[i].healthy);
    assert_true(snap(f)->devices[3].nprocesses == 1 && snap(f)->devices[3].sample.attributable);
    assert_int_equal(snap(f)->devices[3].processes[0].pid, 2002);
    switch_fault(f, "mig-broken", true);
    RUN_UNTIL(f, !snap(f)->devices[3].healthy);
    expect_instance(&snap(f)->devices[3], "MIG-fake-2", 2);
    assert_non_null(strstr(snap(f)->devices[3].reason, "GPU is lost"));
    assert_true(snap(f)->devices[1].healthy && snap(f)->devices[2].healthy);
    switch_fault(f, "mig-one", true);
    RUN_UNTIL(f, snap(f)->ndevices == 3);
    expect_instance(&snap(f)->devices[2], "MIG-fake-2", 2);
    switch_fault(f, "mig", false);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(snap(f)->devices[1].healthy);
    assert_false(snap(f)->devices[1].divided);
    assert_int_equal(status(f).restarts, 0);
}

/* ---- parts of cards ---- */

/* As drivers before R470 name an instance. */
#define LONGEST_UUID "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/13/6"

/* A child that reports two cards in MIG mode and instances of them. The worker's own reports of
 * instances need a driver that has them. */
static const struct gpu_message_device parts[] = {
    {.header.index = 0, .divided = 1, .memory = 80, .uuid = "GPU-a"},
    {.header.index = 0,
     .kind = GPU_MIG_INSTANCE,
     .memory = 10,
     .uuid = "MIG-a0",
     .parent = "GPU-a",
     .mig = {.gi = 2, .ci = 1, .profile = "1c.2g.20gb", .start = 4, .size = 2}},
    {.header.index = 1,
     .kind = GPU_MIG_INSTANCE,
     .memory = 20,
     .uuid = "MIG-a1",
     .parent = "GPU-a"},
    {.header.index = 1, .divided = 1, .memory = 80, .uuid = "GPU-b"},
    {.header.index = 0, .kind = GPU_VGPU, .memory = 8, .uuid = "GPU-virtual"},
    {.header.index = 1,
     .kind = GPU_MIG_INSTANCE,
     .memory = 40,
     .uuid = LONGEST_UUID,
     .parent = "GPU-b"},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void put_part(union gpu_message *m, uint32_t type, uint32_t sequence, size_t size) {
    m->header.magic = GPU_MESSAGE_MAGIC;
    m->header.type = type;
    m->header.sequence = sequence;
    (void) send(GPU_WORKER_FD, m, size, MSG_NOSIGNAL);
}

/* Each device has a process of its own. The last two are lost after some polls. */
static int child_with_parts(void) {
    union gpu_message m;

    while (recv(GPU_WORKER_FD, &m, sizeof(m), 0) > 0) {
        uint32_t sequence = m.header.sequence;

        m = (union gpu_message){.text.text = "1.0"};
        put_part(&m, GPU_MESSAGE_DRIVER, sequence, sizeof(m.text));
        for (uint32_t i = 0; i < PARTS; i++) {
            bool lost = i >= PARTS - 2 && sequence > 3;

            m = (union gpu_message){.device = parts[i]};
            m.device.status = lost;
            if (lost)
                m.device.uuid[0] = 0;
            put_part(&m, GPU_MESSAGE_DEVICE, sequence, sizeof(m.device));
            m = (union gpu_message){
                .processes = {.header.index = parts[i].header.index, .count = 1}};
            m.processes.processes[0].pid = 100 + i;
            put_part(&m, GPU_MESSAGE_PROCESSES, sequence, sizeof(m.processes));
        }
        m = (union gpu_message){0};
        put_part(&m, GPU_MESSAGE_END, sequence, sizeof(m.header));
    }
    return EXIT_SUCCESS;
}

/* Kind and parent reach the agent; parts of different cards and devices of different kinds with one
 * index are kept apart. */
static void parts_of_cards(void **state) {
    struct fixture *f = *state;

    switch_fault(f, "parts", true);
    RUN_UNTIL(f, snap(f)->ndevices == PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct gpu_device *d = &snap(f)->devices[i];

        assert_string_equal(d->uuid, parts[i].uuid);
        assert_string_equal(d->parent, parts[i].parent);
        assert_int_equal(d->kind, parts[i].kind);
        assert_int_equal(d->divided, parts[i].divided);
        assert_memory_equal(&d->mig, &parts[i].mig, sizeof(d->mig));
        assert_int_equal(gpu_is_part(d), d->kind == GPU_MIG_INSTANCE);
        assert_false(gpu_gives_shares(d));
        assert_int_equal(d->nprocesses, 1);
        assert_int_equal(d->processes[0].pid, 100 + i);
    }
    RUN_UNTIL(f, !snap(f)->devices[PARTS - 1].healthy);
    assert_int_equal(snap(f)->ndevices, PARTS);
    assert_string_equal(snap(f)->devices[PARTS - 1].uuid, LONGEST_UUID);
    assert_string_equal(snap(f)->devices[PARTS - 2].uuid, "GPU-virtual");
    assert_false(snap(f)->devices[PARTS - 2].healthy);
    assert_true(snap(f)->devices[2].healthy && snap(f)->devices[3].healthy);
    assert_int_equal(status(f).restarts, 0);
}

/* Long before the next poll is due; a program's own fault takes no card away. */
static void xid(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    gpu_monitor_set_interval(f->monitor, 60000);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    polls = status(f).polls;
    switch_fault(f, "xid-31", true);
    RUN_UNTIL(f, status(f).polls > polls);
    assert_true(snap(f)->devices[1].healthy);
    assert_int_equal(snap(f)->devices[1].recovery_action, 0);
    assert_int_equal(f->xid.xid, 31);
    assert_int_equal(f->xid.index, 1);
    assert_int_equal(f->xid.gi, 5);
    assert_int_equal(f->xid.ci, GPU_NOT_TOLD);
    assert_string_equal(f->xid_uuid, "GPU-fake-1");
    switch_fault(f, "recovery", true);
    switch_fault(f, "xid-48", true);
    polls = status(f).polls;
    RUN_UNTIL(f, f->xid.xid == 48 && status(f).polls > polls);
    assert_int_equal(snap(f)->devices[1].recovery_action, 1);
    assert_int_equal(f->xid.gi, GPU_NOT_TOLD);
    /* The calls on it succeed: what an XID means is for the agent to decide. */
    assert_true(snap(f)->devices[1].healthy && gpu_takes_pods(&snap(f)->devices[1]));
    assert_int_equal(status(f).restarts, 0);
}

/* The verdict is in each snapshot, and at once in the last one where that is wanted. */
static void verdicts(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    f->judging = true;
    switch_fault(f, "silent", true); /* a driver before 570 */
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_int_equal(snap(f)->devices[1].recovery_action, GPU_NOT_TOLD);
    RUN_UNTIL(f, snap(f)->devices[1].service == GPU_SERVES_NONE);
    assert_true(snap(f)->devices[1].healthy && snap(f)->devices[1].sample.temperature > 0);
    assert_false(gpu_takes_pods(&snap(f)->devices[1]));
    assert_string_equal(snap(f)->devices[1].reason, "judged");
    assert_true(gpu_takes_pods(&snap(f)->devices[0]));
    gpu_monitor_set_interval(f->monitor, 60000);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls);
    polls = status(f).polls;
    f->judging = false;
    gpu_monitor_judge(f->monitor);
    assert_int_equal(snap(f)->devices[1].service, GPU_SERVES);
    assert_int_equal(status(f).polls, polls);
}

/* A call that concerns no card in particular: its process is killed. */
static void hanging_call(void **state) {
    struct fixture *f = *state;
    int pid;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    pid = status(f).pid;
    switch_fault(f, "hang-count", true);
    RUN_UNTIL(f, status(f).hangs > 0);
    assert_int_equal(snap(f)->ndevices, 2);
    RUN_UNTIL(f, kill(pid, 0) < 0);
    switch_fault(f, "hang-count", false);
    RUN_UNTIL(f, status(f).text[0] == 0 && status(f).answering);
    assert_int_not_equal(status(f).pid, pid);
}

static bool hangs(const struct gpu_device *d) {
    return !d->healthy && strstr(d->reason, "has not returned");
}

/* One card whose calls hang is the only one that is unhealthy; a process of its own waits for them,
 * and goes on when they return. */
static void hanging_card(void **state) {
    struct fixture *f = *state;
    uint64_t polls;
    int pid;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    pid = status(f).pid;
    switch_fault(f, "hang-1", true);
    RUN_UNTIL(f, snap(f)->devices[1].late);
    assert_true(snap(f)->devices[1].healthy); /* it may be slow */
    assert_false(gpu_monitor_hangs(f->monitor, 1));
    RUN_UNTIL(f, hangs(&snap(f)->devices[1]));
    assert_true(gpu_monitor_hangs(f->monitor, 1) && !gpu_monitor_hangs(f->monitor, 0));
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 20);
    assert_true(snap(f)->devices[0].healthy && !snap(f)->devices[0].late);
    assert_int_equal(snap(f)->devices[0].nprocesses, 100);
    assert_true(hangs(&snap(f)->devices[1]));
    assert_int_equal(status(f).hangs, 1);
    assert_int_equal(status(f).restarts, 0);
    assert_int_not_equal(status(f).pid, pid);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, 1), -EAGAIN);
    assert_int_equal(kill(pid, 0), 0);
    switch_fault(f, "hang-1", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy);
    assert_false(gpu_monitor_hangs(f->monitor, 1));
    assert_int_equal(snap(f)->devices[1].nprocesses, 0);
    RUN_UNTIL(f, !snap(f)->devices[1].late);
    assert_int_equal(status(f).pid, pid); /* registered for the XIDs of both */
    switch_fault(f, "xid-48", true);
    RUN_UNTIL(f, f->xid.xid == 48 && f->xid.index == 1);
    assert_int_equal(status(f).restarts, 0);
}

/* In each order of hanging and of coming back. */
static void all_cards_hang(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    for (unsigned order = 0; order < 4; order++) {
        const char *first = order & 1 ? "hang-0" : "hang-1",
                   *last = order & 1 ? "hang-1" : "hang-0";

        switch_fault(f, first, true);
        RUN_UNTIL(f, hangs(&snap(f)->devices[order & 1 ? 0 : 1]));
        switch_fault(f, last, true);
        assert_true(status(f).answering);
        RUN_UNTIL(f, hangs(&snap(f)->devices[0]) && hangs(&snap(f)->devices[1]));
        assert_false(status(f).answering);
        assert_string_equal(status(f).text, "a call for each card has not returned");
        switch_fault(f, order & 2 ? first : last, false);
        RUN_UNTIL(f, snap(f)->devices[0].healthy || snap(f)->devices[1].healthy);
        switch_fault(f, order & 2 ? last : first, false);
        RUN_UNTIL(f, snap(f)->devices[0].healthy && snap(f)->devices[1].healthy);
        assert_true(status(f).answering && !status(f).text[0]);
        RUN_UNTIL(f, !snap(f)->devices[0].late && !snap(f)->devices[1].late);
    }
    switch_fault(f, "xid-48", true);
    RUN_UNTIL(f, f->xid.xid == 48 && f->xid.index == 1);
}

/* From the first call on, with what a former run of the agent knew: nothing. */
static void card_that_hangs_from_the_start(void **state) {
    struct fixture *f = *state;

    switch_fault(f, "hang-handle-1", true);
    RUN_UNTIL(f, snap(f)->ndevices == 1 && status(f).hangs == 1);
    assert_true(snap(f)->devices[0].healthy);
    switch_fault(f, "hang-handle-1", false);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(snap(f)->devices[1].healthy);
}

/* The process that waits for a card is killed: the card is read by another, which is registered for
 * its XIDs. */
static void waiting_process_is_killed(void **state) {
    struct fixture *f = *state;
    int pid;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    pid = status(f).pid;
    switch_fault(f, "hang-1", true);
    RUN_UNTIL(f, hangs(&snap(f)->devices[1]));
    assert_int_equal(kill(pid, SIGKILL), 0);
    RUN_UNTIL(f, status(f).hangs == 2); /* another one waits */
    assert_true(snap(f)->devices[0].healthy);
    switch_fault(f, "hang-1", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy && !snap(f)->devices[1].late);
    switch_fault(f, "xid-48", true);
    RUN_UNTIL(f, f->xid.xid == 48 && f->xid.index == 1);
}

/* The driver is unloaded while a card hangs, and comes back without the fault. */
static void driver_is_unloaded_below_a_hang(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "hang-1", true);
    RUN_UNTIL(f, hangs(&snap(f)->devices[1]));
    switch_fault(f, "unloaded", true);
    RUN_UNTIL(f, strstr(status(f).text, "Driver Not Loaded"));
    switch_fault(f, "hang-1", false);
    switch_fault(f, "unloaded", false);
    RUN_UNTIL(f, snap(f)->devices[0].healthy && snap(f)->devices[1].healthy);
    RUN_UNTIL(f, !snap(f)->devices[1].late);
}

static void crash_and_driver_reload(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "crash", true);
    RUN_UNTIL(f, status(f).restarts > 0);
    switch_fault(f, "crash", false);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls);
    switch_fault(f, "unloaded", true);
    RUN_UNTIL(f, strstr(status(f).text, "Driver Not Loaded"));
    assert_int_equal(snap(f)->ndevices, 2);
    switch_fault(f, "unloaded", false);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls);
}

/* A probe as its process ends: with a context, without, too late, and not at all. */
static int child_that_probes(void) {
    union gpu_message m = {0};

    m.header = (struct gpu_message_header){.magic = GPU_MESSAGE_MAGIC,
                                           .type = is_switched("probe-fails") ? GPU_MESSAGE_FAILED
                                                                              : GPU_MESSAGE_END};
    (void) snprintf(m.text.text, sizeof(m.text.text), "cuInit: error 999");
    if (is_switched("probe-dies"))
        return EXIT_FAILURE;
    while (is_switched("probe-hangs"))
        (void) usleep(2000);
    (void) send(GPU_WORKER_FD, &m,
                m.header.type == GPU_MESSAGE_FAILED ? sizeof(m.text) : sizeof(m.header),
                MSG_NOSIGNAL);
    return EXIT_SUCCESS;
}

static void expect_probe(struct fixture *f, const char *fault, const char *error) {
    unsigned before = f->probes;

    if (fault)
        switch_fault(f, fault, true);
    assert_int_equal(gpu_monitor_probe(f->monitor, "GPU-fake-1"), 0);
    RUN_UNTIL(f, f->probes == before + 1);
    assert_string_equal(f->probe_error, error);
    if (fault)
        switch_fault(f, fault, false);
}

static void probes(void **state) {
    struct fixture *f = *state;
    unsigned running = 0;

    f->no_driver = true;
    assert_int_equal(gpu_monitor_probe(f->monitor, "GPU-fake-1"), -EAGAIN);
    f->no_driver = false;
    expect_probe(f, NULL, "");
    expect_probe(f, "probe-fails", "cuInit: error 999");
    expect_probe(f, "probe-dies", "the process that made it has ended");
    expect_probe(f, "probe-hangs", "a call of the driver did not return in time");
    switch_fault(f, "probe-hangs", true);
    while (gpu_monitor_probe(f->monitor, "GPU-fake-1") == 0)
        running++;
    assert_in_range(running, 1, 16); /* which the end of the test cancels */
    RUN_UNTIL(f, snap(f)->ndevices == 2);
}

static void driver_comes_later(void **state) {
    struct fixture *f = *state;

    f->no_driver = true;
    RUN_UNTIL(f, strstr(status(f).text, "no GPU driver"));
    assert_int_equal(snap(f)->ndevices, 0);
    f->no_driver = false;
    RUN_UNTIL(f, snap(f)->ndevices == 2);
}

static void killed_child(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2 && status(f).pid > 0);
    assert_int_equal(kill(status(f).pid, SIGKILL), 0);
    RUN_UNTIL(f, status(f).restarts == 1 && status(f).text[0] == 0);
    assert_true(snap(f)->devices[0].healthy);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inventory, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_of_mps, setup, teardown),
        cmocka_unit_test_setup_teardown(loads_of_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_that_is_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_that_moves_during_a_look, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_without_reserve, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_card, setup, teardown),
        cmocka_unit_test_setup_teardown(mig_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_of_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(xid, setup, teardown),
        cmocka_unit_test_setup_teardown(verdicts, setup, teardown),
        cmocka_unit_test_setup_teardown(hanging_call, setup, teardown),
        cmocka_unit_test_setup_teardown(hanging_card, setup, teardown),
        cmocka_unit_test_setup_teardown(all_cards_hang, setup, teardown),
        cmocka_unit_test_setup_teardown(card_that_hangs_from_the_start, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_process_is_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_is_unloaded_below_a_hang, setup, teardown),
        cmocka_unit_test_setup_teardown(crash_and_driver_reload, setup, teardown),
        cmocka_unit_test_setup_teardown(probes, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_comes_later, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_child, setup, teardown),
    };

    if (argc > 3 && strcmp(argv[3], GPU_WORKER_PROBE) == 0)
        return child_that_probes();
    if (argc > 1 && strcmp(argv[1], GPU_WORKER_COMMAND) == 0)
        return is_switched("parts") ? child_with_parts() : gpu_worker_main(argc, argv);
    return find_own_dir() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
