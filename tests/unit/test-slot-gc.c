/* SPDX-License-Identifier: Apache-2.0 */

/* What a share leaves on the disk, and how it goes away again. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/usage.h"
#include "agent/shares/cdi.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "fake-monitor.h"
#include "share/ledger.h"
#include "share/limits.h"
#include "wire/json.h"

#define NONCE "00000000000000000000000000000001"
#define OTHER "00000000000000000000000000000002"
#define TIMEOUT_MS 60000
#define TICK_MS 10

struct fixture {
    struct shares shares;
    uv_timer_t tick;
    char dir[64];
    char cdi[96];
};

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    struct shares *s = f ? &f->shares : NULL;

    assert_non_null(s);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-release-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->cdi, sizeof(f->cdi), "%s/cdi", f->dir);
    s->options.cdi_dir = f->cdi;
    s->loop = malloc(sizeof(*s->loop));
    assert_int_equal(uv_loop_init(s->loop), 0);
    slot_gc_init(s);
    (void) uv_timer_init(s->loop, &f->tick);
    assert_int_equal(slot_store_load(&s->slots, f->dir, no_bad, NULL, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    struct shares *s = &f->shares;

    slot_store_done(&s->slots);
    uv_close((uv_handle_t *) &s->gc.timer, NULL);
    uv_close((uv_handle_t *) &f->tick, NULL);
    (void) uv_run(s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(s->loop), 0);
    free(s->loop);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

static void on_tick(uv_timer_t *timer) {
    (void) timer;
}

/* Runs the loop until the slot is gone or `ms` have passed; whether it is gone. A timer that is due
 * when a turn begins runs before the turn waits: without ticks, for all of the time. */
static bool gone_within(struct fixture *f, const char *nonce, unsigned ms) {
    uv_loop_t *loop = f->shares.loop;
    uint64_t deadline;

    uv_update_time(loop);
    deadline = uv_now(loop) + ms;
    (void) uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
    while (slot_find(&f->shares.slots, nonce) && uv_now(loop) < deadline)
        (void) uv_run(loop, UV_RUN_ONCE);
    (void) uv_timer_stop(&f->tick);
    return !slot_find(&f->shares.slots, nonce);
}

static void give(struct fixture *f, const char *nonce, const char *uid) {
    struct slot_grant g = {.ndevices = 1, .devices = calloc(2, sizeof(*g.devices))};
    struct gpu_edits *edits = calloc(1, sizeof(*edits));
    struct slot *slot;

    (void) snprintf(g.pod_uid, sizeof(g.pod_uid), "%s", uid);
    (void) snprintf(g.namespace, sizeof(g.namespace), "ns");
    (void) snprintf(g.pod, sizeof(g.pod), "pod");
    (void) snprintf(g.container, sizeof(g.container), "main");
    g.devices[0] = (struct slot_device){.memory = 1 << 20, .pod_memory = 1 << 20, .uuid = "GPU-a"};
    assert_int_equal(slot_fill(&f->shares.slots, nonce, &g, &slot, NULL), 0);
    assert_int_equal(gpu_edits_add(edits, GPU_EDIT_ENV, "", "A=b"), 0);
    assert_int_equal(cdi_write(f->cdi, nonce, edits, NULL), 0);
    free(edits);
}

static bool has_cdi(struct fixture *f, const char *nonce) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s/elasticgpu.io-share-%s.json", f->cdi, nonce);
    return access(path, F_OK) == 0;
}

/* The CDI file goes first, so that no container can start with the share any more; then its files.
 */
static void a_pod_that_is_gone(void **state) {
    struct fixture *f = *state;
    char path[384];

    give(f, NONCE, "u1");
    give(f, OTHER, "u2");
    slot_gc_release(&f->shares, "u1", true);
    assert_false(has_cdi(f, NONCE));
    assert_non_null(slot_find(&f->shares.slots, NONCE));
    assert_true(gone_within(f, NONCE, TIMEOUT_MS));
    slot_path(&f->shares.slots, NONCE, "limits", path);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(has_cdi(f, OTHER));
    assert_non_null(slot_find(&f->shares.slots, OTHER));
}

/* After a forced delete a container may be just starting: its share is not free at once. */
static void a_forced_delete_waits(void **state) {
    struct fixture *f = *state;
    uint64_t start = uv_hrtime();

    give(f, NONCE, "u1");
    slot_gc_release(&f->shares, "u1", false);
    assert_true(gone_within(f, NONCE, TIMEOUT_MS));
    assert_true(uv_hrtime() - start > 1000000000u);
}

/* An agent that has no descriptor left sees no process; that does not mean that there is none. */
static void a_blind_scan_frees_nothing(void **state) {
    struct fixture *f = *state;
    struct rlimit before, tight;
    int next = dup(STDERR_FILENO);

    assert_true(next >= 0);
    (void) close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t) next + 1; /* for /proc itself */
    give(f, NONCE, "u1");
    slot_gc_release(&f->shares, "u1", true);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_false(gone_within(f, NONCE, 500));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(gone_within(f, NONCE, TIMEOUT_MS));
}

/* An old copy of the API server's list did not have it; a newer one does. */
static void a_pod_that_is_there_after_all(void **state) {
    struct fixture *f = *state;

    give(f, NONCE, "u1");
    slot_gc_release(&f->shares, "u1", false);
    slot_gc_cancel(&f->shares, "u1");
    assert_false(gone_within(f, NONCE, 2000));
    assert_false(slot_find(&f->shares.slots, NONCE)->releasing);
}

/* Locks make each check of a slot long, and bookings without an owner make the agent check. However
 * often that is done, the loop loses a bounded time to it. */
static void a_slow_ledger_rests(void **state) {
    struct fixture *f = *state;
    struct ledger_file *file;
    struct timespec start, end;
    struct slot *slot;
    char path[384];
    int fd;

    give(f, NONCE, "u1");
    slot = slot_find(&f->shares.slots, NONCE);
    slot_path(&f->shares.slots, NONCE, "ledger", path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    for (int i = 0; i < 5000; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_start = LEDGER_SLOTS + 2 * i, .l_len = 1};

        assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    }
    file->slots_used = LEDGER_SLOTS;
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int i = 0; i < 500; i++) {
        for (size_t k = 0; k < LEDGER_SLOTS; k++)
            file->slot[k].cell[0].booked.lo = 1;
        (void) usage_sweep_slot(slot);
    }
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    assert_true(slot->sweep_after > uv_hrtime());
    assert_in_range(end.tv_sec - start.tv_sec, 0, 1);
    (void) munmap(file, sizeof(*file));
    (void) close(fd);
    /* An honest one needs no rest, unless the machine itself was slow at that moment. */
    give(f, OTHER, "u2");
    slot = slot_find(&f->shares.slots, OTHER);
    for (int i = 0; i < 100 && (i == 0 || slot->sweep_after > 0); i++) {
        slot->sweep_after = 0;
        (void) usage_sweep_slot(slot);
    }
    assert_int_equal(slot->sweep_after, 0);
}

/* The n-th hook of the edits, and its arguments. */
static void check_hook(struct json device, int n, const char *name, const char *const *args) {
    struct json_iter it = json_iter(JSON_PATH(device, "containerEdits", "hooks"));
    struct json hook, arg;

    for (int i = 0; i <= n; i++)
        assert_true(json_next(&it, NULL, &hook));
    assert_string_equal(json_string(json_get(hook, "hookName")), name);
    assert_string_equal(json_string(json_get(hook, "path")), "/d/hook");
    it = json_iter(json_get(hook, "args"));
    for (; *args; args++) {
        assert_true(json_next(&it, NULL, &arg));
        assert_string_equal(json_string(arg), *args);
    }
    assert_false(json_next(&it, NULL, &arg));
    /* Without one a runtime gives it the container's, in which the pod may have GLIBC_TUNABLES. */
    it = json_iter(json_get(hook, "env"));
    assert_true(json_next(&it, NULL, &arg));
    assert_string_equal(json_string(arg), "LC_ALL=C");
    assert_false(json_next(&it, NULL, &arg));
}

static void cdi_text(void **state) {
    static struct gpu_edits edits;
    struct json_parser *parser = json_parser_new();
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 16);
    struct json root, device, mount;
    struct json_iter it;

    (void) state;
    edits.count = 0;
    assert_int_equal(gpu_edits_add(&edits, GPU_EDIT_MOUNT, "/h\"x", "/c"), 0);
    assert_int_equal(gpu_edits_add(&edits, GPU_EDIT_NODE, "/dev/nvidia3", "/dev/nvidia3"), 0);
    assert_int_equal(gpu_edits_add(&edits, GPU_EDIT_ENV, "", "A=b"), 0);
    assert_int_equal(gpu_edits_add(&edits, GPU_EDIT_HOOK, "/d/hook", "socket\nauto"), 0);
    assert_int_equal(gpu_edits_add(&edits, GPU_EDIT_HOOK_INSIDE, "/d/hook", "ldcache"), 0);
    cdi_encode(NONCE, &edits, &text);
    assert_int_equal(json_parse(parser, text.data, text.len, &root, NULL), 0);
    assert_string_equal(json_string(json_get(root, "kind")), "elasticgpu.io/share");
    it = json_iter(json_get(root, "devices"));
    assert_true(json_next(&it, NULL, &device));
    assert_string_equal(json_string(json_get(device, "name")), NONCE);
    it = json_iter(JSON_PATH(device, "containerEdits", "mounts"));
    assert_true(json_next(&it, NULL, &mount));
    assert_string_equal(json_string(json_get(mount, "hostPath")), "/h\"x");
    assert_false(json_next(&it, NULL, &mount));
    assert_int_equal(json_size(JSON_PATH(device, "containerEdits", "deviceNodes")), 1);
    check_hook(device, 0, "createRuntime", (const char *[]){"hook", "socket", "auto", NONCE, NULL});
    check_hook(device, 1, "createContainer", (const char *[]){"hook", "ldcache", NULL});
    (void) json_parser_free(parser);
}

/* A file that containers have mounted is never written to: another content is another directory. */
static void library_versions(void **state) {
    struct fixture *f = *state;
    struct library one, again, two;
    char source[96];

    (void) snprintf(source, sizeof(source), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(source, "no", 2, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &one, NULL), -ENOEXEC);
    assert_int_equal(file_replace(source, "\177ELF1", 5, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &one, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &again, NULL), 0);
    assert_string_equal(one.dir, again.dir);
    assert_int_equal(file_replace(source, "\177ELF2", 5, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &two, NULL), 0);
    assert_string_not_equal(one.dir, two.dir);
    assert_string_equal(two.shadow, "");
}

/* Both shadows or none, each under the name of the library that it stands for. */
static void library_shadows(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 16);
    struct fixture *f = *state;
    struct library plain, half, both;
    char source[96], path[400];

    (void) snprintf(source, sizeof(source), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(source, "\177ELF1", 5, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &plain, NULL), 0);
    (void) snprintf(path, sizeof(path), "%s/libshadow-cuda.so.1", f->dir);
    assert_int_equal(file_replace(path, "\177ELFcuda", 8, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &half, NULL), 0);
    assert_string_equal(half.dir, plain.dir);
    assert_string_equal(half.shadow, "");
    (void) snprintf(path, sizeof(path), "%s/shadow", f->dir);
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    (void) snprintf(path, sizeof(path), "%s/shadow/libshadow-nvidia-ml.so.1", f->dir);
    assert_int_equal(file_replace(path, "no library", 10, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &both, NULL), -ENOEXEC);
    assert_int_equal(file_replace(path, "\177ELFnvml", 8, 0644, NULL), 0);
    assert_int_equal(library_install(source, f->dir, "", false, NULL, &both, NULL), 0);
    assert_string_not_equal(both.dir, plain.dir);
    (void) snprintf(path, sizeof(path), "%s/libcuda.so.1", both.shadow);
    assert_int_equal(file_read(path, 64, &text, NULL), 0);
    assert_string_equal(buf_str(&text), "\177ELFcuda");
    buf_reset(&text);
    (void) snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", both.shadow);
    assert_int_equal(file_read(path, 64, &text, NULL), 0);
    assert_string_equal(buf_str(&text), "\177ELFnvml");
}

/* A process of the container may read its limits, and its user owns them. With a lease it would
 * keep a lower limit out of them for as long as it likes. */
static void no_lease_on_the_limits(void **state) {
    struct fixture *f = *state;
    struct share_limits limits;
    char path[384];
    struct slot *slot;
    int fd;

    give(f, NONCE, "pod");
    slot_path(&f->shares.slots, NONCE, "limits", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_RDLCK), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), -1);
    slot = slot_find(&f->shares.slots, NONCE);
    slot->grant.terms.memory_limit = 4096;
    assert_int_equal(slot_write_limits(&f->shares.slots, slot, NULL), 0);
    assert_int_equal(limits_read(path, &limits, NULL), 0);
    assert_int_equal(limits.device[0].memory_bytes, 4096);
    (void) close(fd);
}

static void test_has_device(void **state) {
    struct slot_device share = {.uuid = "GPU-1"};
    struct slot_whole whole = {.uuid = "MIG-1"};
    const struct slot slot = {
        .grant = {.ndevices = 1, .devices = &share, .nwhole = 1, .whole = &whole}};

    (void) state;
    assert_true(slot_has_device(&slot, "GPU-1"));
    assert_true(slot_has_device(&slot, "MIG-1"));
    assert_false(slot_has_device(&slot, "GPU-2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_has_device),
        cmocka_unit_test_setup_teardown(a_pod_that_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forced_delete_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_blind_scan_frees_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pod_that_is_there_after_all, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_ledger_rests, setup, teardown),
        cmocka_unit_test(cdi_text),
        cmocka_unit_test_setup_teardown(library_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(library_shadows, setup, teardown),
        cmocka_unit_test_setup_teardown(no_lease_on_the_limits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
