/* SPDX-License-Identifier: Apache-2.0 */

/* What the arbiter charges for processes that are stopped or dead, in virtual time, and how the
 * kernel marks the dead ones. */

#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "intercept/compute/meter.h"
#include "intercept/compute/owner.h"
#include "share/sigbus_guard.h"
#include "share/unsettled.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull
#define STEP (10 * MS)

struct fixture {
    struct compute_file *file;
    struct unsettled unsettled;
    struct meter meter; /* of process 0 */
    uint64_t now;
};

static int setup(void **state) {
    struct fixture *f = test_calloc(1, sizeof(*f));

    f->file =
        mmap(NULL, sizeof(*f->file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->file, MAP_FAILED);
    f->now = SEC;
    f->unsettled.devices = 1;
    f->file->processes = 1;
    f->file->owner[0] = 4711;
    f->meter.account.shared = &f->file->device[0];
    f->meter.work = &f->file->work[0][0];
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    unsettled_done(&f->unsettled);
    (void) munmap(f->file, sizeof(*f->file));
    test_free(f);
    return 0;
}

static uint64_t charged(const struct fixture *f) {
    return f->file->device[0].charged;
}

static void step(struct fixture *f, uint64_t ns, uint64_t others, uint32_t neighbours) {
    f->now += ns;
    unsettled_pass(&f->unsettled, ns, others, neighbours);
    assert_true(unsettled_reserve(&f->unsettled, unsettled_count(f->file)));
    unsettled_step(&f->unsettled, f->file, 0, f->now);
}

static void steps(struct fixture *f, uint64_t ns) {
    for (uint64_t end = f->now + ns; f->now < end;)
        step(f, STEP, 0, 0);
}

/* A launch that waits is charged; when its process is killed, it will never run. */
static void what_a_dead_process_held_is_given_back(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1, .ns = 400 * MS, .samples = COST_SAMPLES};
    struct launch l = {.stream = 1}, next = {.stream = 1};
    uint64_t wait = 0;
    bool ring;

    f->meter.own_rate = RATE_WHOLE / 10;
    f->file->device[0].filled.hi = f->now;
    (void) meter_charge(&f->meter, &cost, &l);
    assert_int_equal(meter_enter(&f->meter, &l, f->now, &wait, &ring), METER_GO);
    (void) meter_charge(&f->meter, &cost, &next);
    assert_int_equal(meter_enter(&f->meter, &next, f->now, &wait, &ring), METER_WAIT_TIME);
    assert_true(charged(f) == 800 * MS && f->file->device[0].held == 400 * MS);
    steps(f, 100 * MS);
    assert_true(charged(f) == 800 * MS);
    f->file->owner[0] |= FUTEX_OWNER_DIED;
    steps(f, STEP);
    assert_true(charged(f) == 400 * MS && f->file->device[0].held == 0);
    assert_int_equal(f->file->owner[0], 0);
}

/* As when a place is taken over while no arbiter is at work; and what cannot be true. */
static void held_time_that_is_released(void **state) {
    struct fixture *f = *state;
    const uint64_t lies[] = {(uint64_t) - (int64_t) SEC, 8 * SEC, UINT64_MAX};

    f->file->device[0].charged = 10 * SEC;
    f->file->device[0].held = 7 * SEC;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        f->file->work[0][0].held = lies[i];
        compute_release_held(f->file, 0, 0);
        assert_true(charged(f) == 10 * SEC && f->file->device[0].held == 7 * SEC);
        assert_true(f->file->work[0][0].held == 0);
    }
    f->file->work[0][0].held = 3 * SEC;
    compute_release_held(f->file, 0, 0);
    assert_true(charged(f) == 7 * SEC && f->file->device[0].held == 4 * SEC);
}

/* A kernel of an unknown kind is with the driver: it is charged `price`. */
static void launch(struct fixture *f, struct cost *cost, uint64_t price) {
    struct launch l = {.stream = 1};
    int at;

    cost->ns = price;
    (void) meter_charge(&f->meter, cost, &l);
    at = meter_opens(&f->meter, &l, false);
    assert_true(at >= 0);
    meter_opened(&f->meter, at, &l, f->now);
    assert_int_equal(meter_launched(&f->meter, &l, f->now), at);
    meter_closed(&f->meter, at);
}

/* A poll with a time that is older than that of the poll before it. */
static void time_that_goes_back_costs_nothing(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1, .ns = 50 * US};
    uint64_t before;

    launch(f, &cost, 50 * US);
    meter_running(&f->meter, 0, f->now);
    before = charged(f);
    meter_running(&f->meter, 0, f->now - 5 * US);
    assert_true(charged(f) == before);
    meter_running(&f->meter, 0, f->now + MS);
    assert_true(charged(f) > before && charged(f) <= before + MS);
}

static void stopped_is_charged_as_it_runs(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 50 * US);
    steps(f, SEC);
    assert_in_range(charged(f), SEC - STEP, SEC);
}

static void neighbours_have_their_part(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 50 * US);
    for (int i = 0; i < 100; i++)
        step(f, STEP, STEP, 3);
    assert_in_range(charged(f), (SEC - STEP) / 4, SEC / 4);
    /* They want the card and took little of it: the rest was its own. */
    for (int i = 0; i < 100; i++)
        step(f, STEP, STEP / 10, 3);
    assert_in_range(charged(f), SEC / 4 + SEC * 9 / 10 - STEP, SEC / 4 + SEC * 9 / 10 + STEP);
}

/* A process that charges its work itself is left alone, however long the work takes. */
static void running_is_left_alone(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 50 * US);
    for (int i = 0; i < 100; i++) {
        step(f, STEP, 0, 0);
        step(f, STEP, 0, 0);
        assert_true(meter_show(&f->meter));
    }
    assert_int_equal(charged(f), 50 * US);
}

static void paid_work_is_not_charged_again(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 600 * MS);
    steps(f, 500 * MS);
    assert_int_equal(charged(f), 600 * MS);
    steps(f, 500 * MS);
    assert_in_range(charged(f), SEC - STEP, SEC);
}

static void what_goes_on_settles_exactly(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 50 * US);
    steps(f, 10 * SEC);
    assert_in_range(charged(f), 10 * SEC - STEP, 10 * SEC);
    /* The kernel had ended after 300 ms. */
    meter_done(&f->meter, 0, 300 * MS, f->now);
    assert_int_equal(charged(f), 300 * MS);
    steps(f, 10 * SEC);
    assert_int_equal(charged(f), 300 * MS);
}

/* It is charged up to the step that finds it, once, and its place is free. */
static void dead_is_settled_once(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    steps(f, SEC);
    launch(f, &cost, 50 * US);
    steps(f, 40 * MS);
    f->file->owner[0] = FUTEX_OWNER_DIED;
    steps(f, SEC);
    assert_in_range(charged(f), 40 * MS, 40 * MS + STEP);
    assert_int_equal(f->file->owner[0], 0);
    assert_int_equal(f->file->work[0][0].moves, 0);
}

/* One that began and ended between two steps costs one step. */
static void shorter_than_a_step(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    f->file->owner[0] = 0;
    steps(f, 10 * SEC);
    launch(f, &cost, 50 * US);
    f->file->owner[0] = FUTEX_OWNER_DIED;
    steps(f, SEC);
    assert_in_range(charged(f), 50 * US, STEP);
    assert_int_equal(f->file->owner[0], 0);
}

/* It had nothing on the card. */
static void dead_and_idle_costs_nothing(void **state) {
    struct fixture *f = *state;

    steps(f, SEC);
    f->file->owner[0] = FUTEX_OWNER_DIED;
    steps(f, SEC);
    assert_int_equal(charged(f), 0);
    assert_int_equal(f->file->owner[0], 0);
}

/* A place is free when the process has nothing on any card that is looked at. */
static void dead_on_two_cards(void **state) {
    struct fixture *f = *state;

    f->unsettled.devices = 3;
    f->file->work[0][0].moves = f->file->work[0][1].moves = f->file->work[0][2].moves = 1;
    f->file->owner[0] = FUTEX_OWNER_DIED;
    steps(f, SEC);
    assert_int_equal(f->file->owner[0], FUTEX_OWNER_DIED);
    assert_int_equal(f->file->work[0][0].moves, 0);
    unsettled_step(&f->unsettled, f->file, 1, f->now);
    assert_int_equal(f->file->owner[0], 0);
}

/* The card's time passes once, however many processes stand still. */
static void many_stopped_share_the_time(void **state) {
    struct fixture *f = *state;

    f->file->processes = 100;
    for (int i = 0; i < 100; i++) {
        f->file->owner[i] = 1;
        f->file->work[i][0].moves = 1;
    }
    steps(f, 10 * SEC);
    /* In the first step it is not known how many they are. */
    assert_in_range(charged(f), 9 * SEC, 10 * SEC + 10 * STEP);
}

static void nothing_is_charged_for_ever(void **state) {
    struct fixture *f = *state;
    struct cost cost = {.key = 1};

    launch(f, &cost, 50 * US);
    for (int i = 0; i < 100; i++)
        step(f, 10 * SEC, 0, 0);
    assert_int_equal(charged(f), UNSETTLED_MAX_NS + 50 * US);
}

/* Whatever a tenant writes, a step ends, and charges its own account for no more than the bound. */
static void any_values(void **state) {
    struct fixture *f = *state;
    unsigned seed = 7;

    for (int round = 0; round < 200; round++) {
        uint32_t *words = f->file->owner;
        size_t n = (sizeof(*f->file) - COMPUTE_SIZE_LEAST) / 4;

        for (int i = 0; i < 20000; i++)
            words[(size_t) rand_r(&seed) % n] = (uint32_t) rand_r(&seed)
                                                << (rand_r(&seed) % 3 ? 0 : 16);
        f->file->processes = round % 2 ? UINT32_MAX : (uint32_t) rand_r(&seed) % 2000;
        step(f, STEP, (uint64_t) rand_r(&seed) << 20, (uint32_t) rand_r(&seed));
    }
    assert_true(charged(f) <= 1024 * UNSETTLED_MAX_NS);
    assert_true(f->unsettled.still <= 1024);
}

static void places_beyond_one_step_are_seen(void **state) {
    struct fixture *f = *state;

    f->file->processes = COMPUTE_PROCESSES;
    f->file->owner[1000] = 1;
    f->file->work[1000][0].moves = 1;
    steps(f, SEC);
    assert_in_range(charged(f), 800 * MS, SEC);
}

#define FAR 20 /* a device whose account is on the second page of the file */

static int step_far(void *arg) {
    struct fixture *f = arg;

    unsettled_step(&f->unsettled, f->file, FAR, f->now);
    return 0;
}

/* Its container can take the page of the account away, and bring it back. */
static void what_could_not_be_charged_is_not_pending(void **state) {
    struct fixture *f = *state;
    char *page = (char *) f->file + 4096;
    int empty = memfd_create("empty", MFD_CLOEXEC);

    guard_install();
    assert_true(unsettled_reserve(&f->unsettled, 1));
    assert_ptr_equal(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty, 0),
                     page);
    f->unsettled.devices = 1ull << FAR;
    f->file->work[0][FAR].moves = 1;
    for (int i = 0; i < 20; i++) {
        f->now += STEP;
        unsettled_pass(&f->unsettled, STEP, 0, 0);
        (void) guard_run(f->file, sizeof(*f->file), step_far, f);
    }
    assert_ptr_equal(
        mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        page);
    f->file->work[0][FAR].moves = 2;
    assert_int_equal(guard_run(f->file, sizeof(*f->file), step_far, f), 0);
    assert_int_equal(f->unsettled.pending_ns, 0);
    (void) close(empty);
}

/* -- the kernel's mark ---------------------------------------------------------------------------
 */

/* A child that claims a place and then does as it is told. */
static pid_t claimer(struct fixture *f, void (*then)(struct fixture *f)) {
    static struct owner owner;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (owner_claim(&owner, f->file) < 0)
            _exit(1);
        then(f);
        _exit(0);
    }
    return pid;
}

static void stay(struct fixture *f) {
    (void) f;
    for (;;)
        (void) pause();
}

static void become_another(struct fixture *f) {
    (void) f;
    (void) execl("/bin/sleep", "sleep", "60", (char *) NULL);
}

static void leave_a_child(struct fixture *f) {
    pid_t pid = fork();

    if (pid == 0)
        stay(f);
    f->file->reserved[0] = (uint64_t) pid;
}

static void leave(struct fixture *f) {
    (void) f;
}

static void await_word(const uint32_t *word, uint32_t value) {
    for (int i = 0; i < 5000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; i++)
        (void) usleep(1000);
    assert_int_equal(__atomic_load_n(word, __ATOMIC_ACQUIRE), value);
}

static void end(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void marked_however_it_ends(void **state) {
    struct fixture *f = *state;
    uint32_t *word = &f->file->owner[0];
    pid_t pid;

    *word = 0;
    pid = claimer(f, stay);
    await_word(word, (uint32_t) pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    assert_int_equal(*word, (uint32_t) pid);
    end(pid);
    assert_int_equal(*word, FUTEX_OWNER_DIED);

    *word = 0;
    pid = claimer(f, leave);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(*word, FUTEX_OWNER_DIED);

    /* Another program in its place, and a child that lives on, are not the process. */
    *word = 0;
    pid = claimer(f, become_another);
    await_word(word, FUTEX_OWNER_DIED);
    end(pid);
    *word = 0;
    pid = claimer(f, leave_a_child);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(*word, FUTEX_OWNER_DIED);
    assert_int_equal(kill((pid_t) f->file->reserved[0], SIGKILL), 0);
}

static void places_are_claimed_once(void **state) {
    struct fixture *f = *state;
    struct owner owner;
    pid_t pid;

    for (uint32_t i = 0; i < COMPUTE_PROCESSES; i++)
        f->file->owner[i] = 1;
    f->file->work[700][5].moves = 3;
    f->file->work[700][5].added = 9;
    assert_int_equal(owner_claim(&owner, f->file), -1);
    f->file->owner[700] = FUTEX_OWNER_DIED;
    pid = claimer(f, stay);
    await_word(&f->file->owner[700], (uint32_t) pid);
    assert_int_equal(f->file->processes, 701);
    end(pid);
    assert_int_equal(f->file->owner[700], FUTEX_OWNER_DIED);
    assert_int_equal(f->file->work[700][5].moves, 0);
    assert_int_equal(f->file->work[700][5].added, 0);
}

/* As in a container that has filled the file system of its share. */
static void no_place_without_memory_behind_it(void **state) {
    struct fixture *f = *state;
    int fd = memfd_create("compute", MFD_CLOEXEC), status;
    pid_t pid;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, COMPUTE_SIZE_LEAST), 0);
    assert_ptr_equal(
        mmap(f->file, sizeof(*f->file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
        f->file);
    pid = claimer(f, leave);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_int_equal(f->file->owner[0], 0);
    (void) close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stopped_is_charged_as_it_runs),
        TEST(neighbours_have_their_part),
        TEST(running_is_left_alone),
        TEST(paid_work_is_not_charged_again),
        TEST(what_goes_on_settles_exactly),
        TEST(dead_is_settled_once),
        TEST(shorter_than_a_step),
        TEST(dead_and_idle_costs_nothing),
        TEST(dead_on_two_cards),
        TEST(what_a_dead_process_held_is_given_back),
        TEST(held_time_that_is_released),
        TEST(time_that_goes_back_costs_nothing),
        TEST(many_stopped_share_the_time),
        TEST(nothing_is_charged_for_ever),
        TEST(any_values),
        TEST(places_beyond_one_step_are_seen),
        TEST(marked_however_it_ends),
        TEST(what_could_not_be_charged_is_not_pending),
        TEST(places_are_claimed_once),
        TEST(no_place_without_memory_behind_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
