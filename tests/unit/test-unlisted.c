/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of processes that are gone, and memory of no process at all, as the agent sees it poll by
 * poll. The driver and the scan of the processes are played by this file, processes and time are
 * real. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/audit_internal.h"
#include "agent/audit/holder_scan.h"
#include "agent/audit/usage.h"
#include "base/file.h"
#include "base/machine.h"
#include "fake-monitor.h"

#define GIB ((uint64_t) 1 << 30)
#define GONE 0x3ffffffe /* above every PID that the kernel gives */

static uint64_t now_ms;
static struct gpu_process process;
static struct audit a;
static struct shares shares;
static uv_loop_t loop;

static holder_scan_done scan_done; /* of the scan under way; NULL: there is none */
static char dir[64];

uint64_t __wrap_uv_now(const uv_loop_t *l);

uint64_t __wrap_uv_now(const uv_loop_t *l) {
    (void) l;
    return now_ms;
}

struct holder_scan *holder_scan_start(uv_loop_t *l, const char *program, const char *nodes,
                                      holder_scan_done done, void *userdata) {
    (void) l, (void) program, (void) nodes;
    assert_ptr_equal(userdata, &a);
    scan_done = done;
    return (struct holder_scan *) &scan_done;
}

void holder_scan_cancel(struct holder_scan *s) {
    (void) s;
}

static int setup(void **state) {
    (void) state;
    memset(&a, 0, sizeof(a));
    memset(&shares, 0, sizeof(shares));
    a.shares = &shares;
    scan_done = NULL;
    now_ms = 1000000;
    assert_int_equal(uv_loop_init(&loop), 0);
    shares.loop = &loop;
    a.initial_pids = true;
    (void) uv_timer_init(&loop, &a.poll_timer);
    a.poll_timer.data = &a;
    snapshot.ndevices = 1;
    snapshot.devices[0] = (struct gpu_device){.uuid = "GPU-a",
                                              .memory = 80 * GIB,
                                              .healthy = true,
                                              .processes = &process,
                                              .nprocesses = 1};
    snapshot.devices[0].sample.attributable = true;
    snapshot.devices[0].sample.memory_allocated = GIB;
    process.memory = GIB;
    return 0;
}

static int teardown(void **state) {
    (void) state;
    uv_close((uv_handle_t *) &a.poll_timer, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static uint64_t poll_after(unsigned ms) {
    now_ms += ms;
    polls++;
    usage_update(&a);
    return a.audits[0].memory.bytes;
}

/* At first it is being given back; after a second it belongs to something else. */
static void a_process_that_is_gone(void **state) {
    (void) state;
    process.pid = GONE;
    assert_int_equal(poll_after(0), 0);
    assert_int_equal(poll_after(300), 0);
    assert_int_equal(a.outside[0], GIB);
    assert_int_equal(poll_after(ENDED_MS), 0);
    assert_int_equal(poll_after(UNATTRIBUTED_CONFIRM_MS), GIB);
    assert_int_equal(a.outside[0], 0);
    assert_int_equal(a.audits[0].held_back, GIB);
    /* Where the PIDs may be others, nothing is known of a process. */
    a.initial_pids = false;
    memset(&a.audits[0], 0, sizeof(a.audits[0]));
    for (int i = 0; i < 4; i++)
        assert_int_equal(poll_after(ENDED_MS / 2), 0);
    assert_int_equal(a.outside[0], GIB);
}

/* What lives is attributed to it, whatever it is. */
static void a_process_that_lives(void **state) {
    (void) state;
    process.pid = (uint32_t) getpid();
    for (int i = 0; i < 4; i++)
        assert_int_equal(poll_after(ENDED_MS / 2), 0);
    assert_int_equal(a.outside[0], GIB);
}

/* A process that ends is searched at for a second, and another one of the same number anew. */
static void a_process_that_ends(void **state) {
    pid_t child = fork();
    siginfo_t info;

    (void) state;
    if (child == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t) child, &info, WEXITED | WNOWAIT), 0);
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) child));
    now_ms += ENDED_MS;
    assert_true(card_audit_has_ended(&a, 0, (uint32_t) child));
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) getpid()));
    now_ms += 3100;
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) child));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* ---- memory that no process has ---- */

#define SHARE (4 * GIB)

static void on_remove(const struct slot *slot, void *userdata) {
    (void) userdata;
    card_audit_release(&a, slot);
}

static int setup_shares(void **state) {
    static char library[512];
    char path[128];
    int r = setup(state);

    snapshot.devices[0].nprocesses = 0;
    snapshot.devices[0].sample.memory_allocated = 0;
    (void) snprintf(dir, sizeof(dir), "/tmp/aliquot-unlisted-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        (void) snprintf(path, sizeof(path), "%s%s", dir, i == 0 ? "" : "/usr/lib/" MULTIARCH);
        assert_int_equal(dir_make(path, 0700, NULL), 0);
        (void) strncat(path, i == 0 ? "/nvidiactl" : "/libnvidia-ml.so.1", 32);
        assert_int_equal(file_replace(path, "", 0, 0600, NULL), 0);
    }
    shares.places.sim_dir = dir;
    shares.places.host_root = "";
    shares.places.driver_root = "";
    shares.options.cdi_dir = dir;
    shares.options.host_root = dir;
    shares.driver = gpu_driver_find(&shares.places, library);
    assert_non_null(shares.driver);
    (void) snprintf(shares.slots.dir, sizeof(shares.slots.dir), "%s", dir);
    slot_gc_init(&shares);
    shares.gc.on_remove = on_remove;
    return r;
}

static int teardown_shares(void **state) {
    slot_store_done(&shares.slots);
    uv_close((uv_handle_t *) &shares.gc.timer, NULL);
    (void) dir_remove(dir, NULL);
    return teardown(state);
}

/* A pod with a share of the card. Its name is one character: of its UID, and of its slot. */
static struct slot_device *give(char name) {
    struct slot *slot = calloc(1, sizeof(*slot));

    assert_non_null(slot);
    memset(slot->nonce, name, NONCE_LEN);
    memset(slot->grant.pod_uid, name, 36);
    slot->grant.ndevices = 1;
    slot->grant.devices = calloc(1, sizeof(*slot->grant.devices));
    assert_non_null(slot->grant.devices);
    slot->grant.devices[0] = (struct slot_device){.memory = SHARE, .uuid = "GPU-a"};
    HASH_ADD_STR(shares.slots.slots, nonce, slot);
    return &slot->grant.devices[0];
}

/* The pod has ended, with all of its processes. */
static void take_back(char name) {
    char uid[37] = "", nonce[NONCE_LEN + 1] = "";

    memset(uid, name, 36);
    memset(nonce, name, NONCE_LEN);
    slot_gc_release(&shares, uid, true);
    while (slot_find(&shares.slots, nonce))
        (void) uv_run(&loop, UV_RUN_ONCE);
}

/* Polls until what is not attributed is certain, and has a scan of the processes find one of the
 * pod that is not listed. */
static void poll_and_find(char name) {
    struct holder h = {.pid = GONE, .how = HOLDER_SENT};

    memset(h.id.pod_uid, name, 36);
    a.audits[0].searched = false;
    for (int i = 0; i < 3; i++)
        (void) poll_after(UNATTRIBUTED_CONFIRM_MS);
    if (scan_done)
        scan_done(&h, 1, true, &a);
    scan_done = NULL;
    (void) poll_after(UNATTRIBUTED_CONFIRM_MS);
}

static void use(uint64_t bytes) {
    snapshot.devices[0].sample.memory_allocated = bytes;
}

/* Alone on the card, a container is charged. A file that a system call keeps open is in no table of
 * descriptors, and a descriptor can be sent on before each process is searched at: that no process
 * of the other container was found to hold the memory tells nothing. */
static void a_neighbour_without_a_holder_can_hold_it_too(void **state) {
    struct slot_device *worker = give('w');

    (void) state;
    use(GIB);
    poll_and_find('w');
    assert_int_equal(a.audits[0].memory.bytes, GIB);
    assert_int_equal(worker->charged, GIB);
    (void) give('h');
    use(2 * GIB);
    (void) poll_after(UNATTRIBUTED_CONFIRM_MS); /* before the next scan of the processes */
    assert_int_equal(worker->charged, 0);
    poll_and_find('w');
    assert_int_equal(a.audits[0].memory.bytes, 2 * GIB);
    assert_int_equal(worker->charged, 0);
    /* What it was charged with before is its own again, what came later may be the other one's. */
    take_back('h');
    poll_and_find('w');
    assert_int_equal(a.audits[0].memory.bytes, 2 * GIB);
    assert_int_equal(worker->charged, GIB);
    use(3 * GIB);
    poll_and_find('w');
    assert_int_equal(worker->charged, 2 * GIB);
}

/* A process of another pod has received the descriptor, and the pod with the share has ended. */
static void what_an_ended_pod_left_is_not_charged(void **state) {
    struct slot_device *worker = give('w'), *hider = give('h');

    (void) state;
    hider->orphaned[0].now = GIB;
    use(GIB);
    poll_and_find('w');
    assert_int_equal(a.audits[0].memory.bytes, 0);
    take_back('h');
    poll_and_find('w');
    assert_int_equal(a.audits[0].memory.bytes, GIB);
    assert_int_equal(worker->charged, 0);
    assert_int_equal(a.audits[0].held_back, GIB);
    /* What comes after that is charged, also when what was left has gone in between. */
    use(3 * GIB);
    poll_and_find('w');
    assert_int_equal(worker->charged, 2 * GIB);
    use(0);
    poll_and_find('w');
    use(GIB);
    poll_and_find('w');
    assert_int_equal(worker->charged, GIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_that_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_that_lives, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_that_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(a_neighbour_without_a_holder_can_hold_it_too, setup_shares,
                                        teardown_shares),
        cmocka_unit_test_setup_teardown(what_an_ended_pod_left_is_not_charged, setup_shares,
                                        teardown_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
