/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of a card that belongs to nothing that is listed: when it counts, and which processes hold
 * the driver's nodes. */

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/candidates.h"
#include "agent/audit/holder_scan.h"
#include "agent/audit/idle_remainder.h"
#include "base/file.h"
#include "share/unattributed.h"

#define MIB ((uint64_t) 1 << 20)
#define GIB ((uint64_t) 1 << 30)

/* ---- the judgement ---- */

static bool look(struct unattributed *u, uint64_t ms, uint64_t used, uint64_t attributed,
                 bool still) {
    const struct unattributed_poll l = {
        .now_ms = ms, .used = used, .attributed = attributed, .still = still};

    return unattributed_poll(u, &l);
}

static void a_remainder_needs_two_polls(void **state) {
    struct unattributed u = {0};

    (void) state;
    assert_false(look(&u, 1000, GIB + 64 * MIB, GIB, true));
    assert_true(u.bytes == 0);
    assert_true(look(&u, 1500, GIB + 300 * MIB, GIB, true));
    assert_true(u.bytes == 0);
    assert_true(look(&u, 1510, GIB + 300 * MIB, GIB, true)); /* too soon after the first */
    assert_false(look(&u, 1600, GIB + 256 * MIB, GIB, true));
    assert_true(u.bytes == 256 * MIB);
    /* The least of two. */
    assert_false(look(&u, 2100, 9 * GIB, GIB, true));
    assert_true(u.bytes == 256 * MIB);
    assert_false(look(&u, 2600, 9 * GIB, GIB, true));
    assert_true(u.bytes == 8 * GIB);
    /* It ends with two polls, too. */
    assert_true(look(&u, 3100, GIB, GIB, true));
    assert_true(u.bytes == 8 * GIB);
    assert_false(look(&u, 3200, GIB, GIB, true));
    assert_true(u.bytes == 0);
    /* What was there once is not half of the next time. */
    assert_true(look(&u, 4000, 2 * GIB, GIB, true));
    assert_true(u.bytes == 0);
}

/* More that is attributed than is in use is no remainder of the size of an address space. */
static void less_than_nothing_is_nothing(void **state) {
    struct unattributed u = {0};

    (void) state;
    for (uint64_t ms = 1000; ms < 9000; ms += 500)
        assert_false(look(&u, ms, GIB, 2 * GIB, true));
    assert_true(u.bytes == 0);
}

/* A ledger that moves does not hide anything: it takes more polls. */
static void restless_ledgers_take_longer(void **state) {
    struct unattributed u = {0};
    uint64_t ms = 1000;

    (void) state;
    for (int i = 1; i < UNATTRIBUTED_RESTLESS_POLLS; i++, ms += 100) {
        assert_true(look(&u, ms, 2 * GIB, GIB, false));
        assert_true(u.bytes == 0);
    }
    assert_false(look(&u, ms, 2 * GIB, GIB, false));
    assert_true(u.bytes == GIB);
    /* Memory that comes and goes between the readings is seen at some polls only. */
    u = (struct unattributed){0};
    for (int i = 0; i < 1000; i++, ms += 100)
        (void) look(&u, ms, i % 3 > 0 ? 2 * GIB : GIB, GIB, false);
    assert_true(u.bytes == 0);
}

/* What the idle card shows is the driver's; no more of it than a driver can need. */
static void noise_is_learned_from_the_idle_card(void **state) {
    struct unattributed u = {0};
    struct unattributed_poll l = {.now_ms = 1000, .used = 500 * MIB, .still = true, .idle = true};

    (void) state;
    assert_false(unattributed_poll(&u, &l));
    assert_true(u.noise == 500 * MIB);
    assert_false(look(&u, 2000, GIB + 500 * MIB, GIB, true));
    assert_false(look(&u, 2500, GIB + 500 * MIB, GIB, true));
    assert_true(u.bytes == 0);
    l.used = 80 * MIB; /* less once is less for ever */
    assert_false(unattributed_poll(&u, &l));
    l.used = 500 * MIB;
    (void) unattributed_poll(&u, &l);
    assert_true(u.noise == 80 * MIB);
    u = (struct unattributed){0};
    l.used = 2 * GIB;
    for (l.now_ms = 3000; l.now_ms < 4000; l.now_ms += 500)
        (void) unattributed_poll(&u, &l);
    assert_true(u.noise == 0 && u.bytes == 2 * GIB);
}

/* ---- noise, kept for the next agent ---- */

static uint64_t recalled(const char *dir, const char *driver, const char *uuid) {
    struct unattributed u = {0};

    idle_remainder_load(dir, driver, uuid, &u);
    assert_true(u.noise_known == (u.noise > 0));
    return u.noise;
}

static void learn(const char *dir, const char *uuid, struct unattributed *u, uint64_t remainder) {
    struct unattributed_poll l = {.now_ms = 1000, .used = remainder, .still = true, .idle = true};
    struct unattributed before = *u;

    (void) unattributed_poll(u, &l);
    idle_remainder_save(dir, "615.1", uuid, &before, u);
}

static void noise_outlives_the_agent(void **state) {
    struct unattributed a = {0}, b = {0}, quiet = {0};
    char dir[] = "/tmp/test-noise-XXXXXX", path[64];

    (void) state;
    assert_non_null(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/noise", dir);
    assert_true(recalled(dir, "615.1", "GPU-a") == 0);
    learn(dir, "GPU-q", &quiet, 10 * MIB); /* tolerated anyway */
    assert_int_equal(access(path, F_OK), -1);
    learn(dir, "GPU-a", &a, 500 * MIB);
    learn(dir, "GPU-b", &b, 300 * MIB);
    learn(dir, "GPU-a", &a, 200 * MIB);
    assert_true(recalled(dir, "615.1", "GPU-a") == 200 * MIB);
    assert_true(recalled(dir, "615.1", "GPU-b") == 300 * MIB);
    assert_true(recalled(dir, "615.1", "GPU-c") == 0);
    assert_true(recalled(dir, "615.2", "GPU-a") == 0); /* another driver */
    learn(dir, "GPU-a", &a, MIB);
    assert_true(recalled(dir, "615.1", "GPU-a") == MIB);
    assert_true(recalled(dir, "615.1", "GPU-b") == 300 * MIB);
    assert_int_equal(dir_remove(dir, NULL), 0);
}

static void a_damaged_note_of_noise_is_none(void **state) {
    static const char *const texts[] = {
        "",
        "\n\n",
        "615.1",
        "615.1 GPU-a",
        "615.1 GPU-a ",
        "615.1 GPU-a x",
        "615.1 GPU-a -1",
        "615.1 GPU-a 1073741825", /* more than any idle card shows */
        "615.1 GPU-a 99999999999999999999",
        "615.1 GPU-a 5 5",
        "615.1  GPU-a 5",
    };
    char dir[] = "/tmp/test-noise-XXXXXX", path[64];
    struct unattributed u = {0};

    (void) state;
    assert_non_null(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/noise", dir);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(file_replace(path, texts[i], strlen(texts[i]), 0600, NULL), 0);
        assert_true(recalled(dir, "615.1", "GPU-a") == 0);
    }
    learn(dir, "GPU-a", &u, 100 * MIB);
    assert_true(recalled(dir, "615.1", "GPU-a") == 100 * MIB);
    assert_int_equal(dir_remove(dir, NULL), 0);
}

/* ---- candidates ---- */

static void one_candidate_is_the_only_one(void **state) {
    struct candidates c = {0};

    (void) state;
    assert_null(candidates_only(&c));
    candidates_add(&c, "one", 10, false);
    assert_null(candidates_only(&c)); /* what it holds is listed */
    candidates_add(&c, "one", 11, true);
    candidates_add(&c, "one", 12, true);
    assert_int_equal(c.n, 1);
    assert_non_null(candidates_only(&c));
    assert_int_equal(candidates_only(&c)->pid, 11);
}

/* A container whose processes are all listed can have received a descriptor. */
static void a_neighbour_can_hold_it_too(void **state) {
    struct candidates c = {0};

    (void) state;
    candidates_add(&c, "monitor", 10, true);
    candidates_add(&c, "trainer", 11, false);
    assert_null(candidates_only(&c));
    assert_int_equal(c.n, 2);
    assert_int_equal(c.unlisted, 1);
}

static void many_candidates_are_counted(void **state) {
    struct candidates c = {0};
    char name[16];

    (void) state;
    for (uint32_t i = 0; i < CANDIDATES_MAX + 2; i++) {
        (void) snprintf(name, sizeof(name), "quiet-%u", i);
        candidates_add(&c, name, 100 + i, false);
    }
    candidates_add(&c, "loud", 1, true);
    assert_int_equal(c.n, CANDIDATES_MAX + 3);
    assert_int_equal(c.unlisted, 1);
    assert_null(candidates_only(&c));
    for (uint32_t i = 0; i < CANDIDATES_MAX; i++) /* named before those that are listed */
        if (c.list[i].unlisted)
            return;
    fail();
}

/* ---- holders ---- */

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* Control groups are the machine's: each run of this test has a pod of its own. */
static char pod_uid[37];

struct world {
    char root[32];
    char nodes[64]; /* stands for /dev */
    char node[96];
    char groups[2][192]; /* of containers A and B */
    pid_t children[8];
    size_t nchildren;
};

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    char mounted[64];

    assert_non_null(w);
    *state = w;
    (void) snprintf(w->root, sizeof(w->root), "/tmp/aliquot-audit-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    (void) snprintf(w->nodes, sizeof(w->nodes), "%s/dev", w->root);
    (void) snprintf(w->node, sizeof(w->node), "%s/nvidiactl", w->nodes);
    assert_int_equal(dir_make(w->nodes, 0755, NULL), 0);
    (void) snprintf(mounted, sizeof(mounted), "%s/cgroup", w->root);
    assert_int_equal(dir_make(mounted, 0755, NULL), 0);
    if (mknod(w->node, S_IFCHR | 0600, makedev(1, 5)) < 0 ||
        mount("none", mounted, "cgroup2", 0, NULL) < 0) {
        print_message("no device nodes and control groups can be made here: %s\n", strerror(errno));
        w->nodes[0] = 0;
        return 0;
    }
    for (size_t i = 0; i < 2; i++) {
        (void) snprintf(w->groups[i], sizeof(w->groups[i]), "%s/pod%s/%s", mounted, pod_uid,
                        i == 0 ? ID_A : ID_B);
        assert_int_equal(dir_make(w->groups[i], 0755, NULL), 0);
    }
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    char path[192];

    for (size_t i = 0; i < w->nchildren; i++) {
        (void) kill(w->children[i], SIGKILL);
        (void) waitpid(w->children[i], NULL, 0);
    }
    for (size_t i = 0; i < 2 && w->groups[i][0]; i++)
        while (rmdir(w->groups[i]) < 0 && errno == EBUSY)
            (void) usleep(1000);
    (void) snprintf(path, sizeof(path), "%s/cgroup/pod%s", w->root, pod_uid);
    (void) rmdir(path);
    (void) snprintf(path, sizeof(path), "%s/cgroup", w->root);
    (void) umount(path);
    (void) dir_remove(w->root, NULL);
    free(w);
    return 0;
}

enum kind {
    NOTHING, /* holds no node */
    OPEN,    /* has it open */
    RENAMED, /* has it open under another name */
    MAPPED,  /* has it mapped, and closed */
    THREAD,  /* a thread with descriptors of its own has it open, the first one has ended */
    SENT,    /* has sent it to itself, not received it, and closed it */
    RING,    /* has an io_uring, with which it can be registered */
    MANY,    /* has more descriptors than are looked at */
};

static void *own_descriptors(void *node) {
    if (unshare(CLONE_FILES) < 0 || open(node, O_RDONLY | O_CLOEXEC) < 0)
        _exit(1);
    (void) !write(STDOUT_FILENO, "", 0);
    for (;;)
        (void) pause();
    return NULL;
}

static void send_to_itself(int fd) {
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room};
    struct cmsghdr *c;
    int ends[2];

    message.msg_controllen = sizeof(control.room);
    c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || sendmsg(ends[0], &message, 0) != 1)
        _exit(1);
    (void) close(fd);
    (void) close(ends[0]);
}

static void take(struct world *w, enum kind kind, int ready) {
    struct rlimit many = {HOLDERS_FILES_MAX + 64, HOLDERS_FILES_MAX + 64};
    char other[128];
    pthread_t thread;
    int fd;

    if (kind == OPEN)
        fd = open(w->node, O_RDONLY);
    if (kind == RENAMED) {
        (void) snprintf(other, sizeof(other), "%s/innocent", w->root);
        if (mknod(other, S_IFCHR | 0600, makedev(1, 5)) < 0 || open(other, O_RDONLY) < 0)
            _exit(1);
    }
    if (kind == MAPPED) {
        fd = open(w->node, O_RDWR);
        if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
            _exit(1);
        (void) close(fd);
    }
    if (kind == RING && syscall(SYS_io_uring_setup, 1, &(struct io_uring_params){0}) < 0)
        _exit(1);
    if (kind == SENT)
        send_to_itself(open(w->node, O_RDONLY));
    if (kind == THREAD && pthread_create(&thread, NULL, own_descriptors, w->node) != 0)
        _exit(1);
    if (kind == MANY) {
        if (setrlimit(RLIMIT_NOFILE, &many) < 0)
            _exit(1);
        fd = open("/", O_RDONLY);
        for (int i = 0; i < HOLDERS_FILES_MAX; i++)
            if (dup(fd) < 0)
                _exit(1);
        (void) open(w->node, O_RDONLY);
    }
    if (kind == THREAD)
        (void) usleep(100000);
    (void) !write(ready, "r", 1);
    if (kind == THREAD)
        (void) syscall(SYS_exit, 0);
    for (;;)
        (void) pause();
}

static pid_t start(struct world *w, size_t container, enum kind kind) {
    char path[256], own[16], c;
    int ready[2];
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        FILE *procs;

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) snprintf(path, sizeof(path), "%s/cgroup.procs", w->groups[container]);
        (void) snprintf(own, sizeof(own), "%d", getpid());
        procs = fopen(path, "we");
        if (!procs || fputs(own, procs) < 0 || fclose(procs) != 0)
            _exit(1);
        take(w, kind, ready[1]);
    }
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void) close(ready[0]);
    w->children[w->nchildren++] = child;
    return child;
}

struct found {
    struct holder list[64];
    size_t n;
    bool complete, done;
};

static void add(const struct holder *h, void *userdata) {
    struct found *f = userdata;

    if (h->how == HOLDER_END)
        f->complete = true;
    else if (h->how != HOLDER_LOOKING && f->n < 64)
        f->list[f->n++] = *h;
}

static const struct holder *of(const struct found *f, pid_t pid) {
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].pid == (uint32_t) pid)
            return &f->list[i];
    return NULL;
}

static void walk_without(const struct world *w, uint32_t from, const char *skip,
                         struct found *ret) {
    const char *const dirs[] = {w->nodes};

    memset(ret, 0, sizeof(*ret));
    holders_walk(dirs, 1, from, skip, add, ret);
    assert_true(ret->complete);
}

static void walk(const struct world *w, uint32_t from, struct found *ret) {
    walk_without(w, from, "", ret);
}

static void holders_are_found(void **state) {
    static const struct {
        enum kind kind;
        enum holder_how how;
    } holds[] = {{OPEN, HOLDER_OPEN},   {RENAMED, HOLDER_OPEN}, {MAPPED, HOLDER_MAPPED},
                 {THREAD, HOLDER_OPEN}, {SENT, HOLDER_SENT},    {RING, HOLDER_OPEN}};
    enum { HOLDS = sizeof(holds) / sizeof(holds[0]) };
    struct world *w = *state;
    struct found f;
    pid_t pids[HOLDS], none, many;

    if (!w->nodes[0])
        skip();
    for (size_t i = 0; i < HOLDS; i++)
        pids[i] = start(w, 0, holds[i].kind);
    none = start(w, 0, NOTHING);
    many = start(w, 1, MANY);
    walk(w, 0, &f);
    for (size_t i = 0; i < HOLDS; i++) {
        const struct holder *h = of(&f, pids[i]);

        assert_non_null(h);
        assert_int_equal(h->how, holds[i].how);
        assert_string_equal(h->id.container_id, ID_A);
        assert_string_equal(h->id.pod_uid, pod_uid);
    }
    assert_null(of(&f, none));
    /* This process holds none and is in no container. */
    assert_null(of(&f, getpid()));
    assert_non_null(of(&f, many));
    assert_int_equal(of(&f, many)->how, HOLDER_UNREADABLE);
    walk(w, (uint32_t) many + 1, &f);
    assert_null(of(&f, many));
    walk_without(w, 0, ID_A ",", &f);
    assert_int_equal(f.n, 1);
    assert_non_null(of(&f, many));
}

/* What one container has costs a bounded time, and hides no other one. */
static void descriptors_do_not_extend_the_walk(void **state) {
    struct world *w = *state;
    struct timespec from, to;
    struct found f;
    pid_t other;

    if (!w->nodes[0])
        skip();
    for (int i = 0; i < 6; i++)
        (void) start(w, 1, MANY);
    other = start(w, 0, OPEN);
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    walk(w, 0, &f);
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_non_null(of(&f, other));
    assert_true((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 500);
}

/* ---- the child ---- */

static void on_done(const struct holder *found, size_t nfound, bool complete, void *userdata) {
    struct found *f = userdata;

    for (size_t i = 0; i < nfound; i++)
        add(&found[i], f);
    f->complete = complete;
    f->done = true;
}

static void scan(const char *program, const struct world *w, struct found *ret) {
    uv_loop_t loop;

    memset(ret, 0, sizeof(*ret));
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_non_null(holder_scan_start(&loop, program, w->nodes, on_done, ret));
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(ret->done);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_child_walks(void **state) {
    struct world *w = *state;
    struct found f;
    uv_loop_t loop;
    pid_t pid;

    if (!w->nodes[0])
        skip();
    pid = start(w, 0, OPEN);
    scan("/proc/self/exe", w, &f);
    assert_true(f.complete);
    assert_non_null(of(&f, pid));
    /* One that ends without a word has looked at nothing. */
    scan("/bin/false", w, &f);
    assert_false(f.complete);
    assert_int_equal(f.n, 0);
    memset(&f, 0, sizeof(f));
    assert_int_equal(uv_loop_init(&loop), 0);
    holder_scan_cancel(holder_scan_start(&loop, "/proc/self/exe", w->nodes, on_done, &f));
    assert_null(holder_scan_start(&loop, "/nowhere", w->nodes, on_done, &f));
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_false(f.done);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A child that stands still at a process is ended, and goes on behind it, without the other
 * processes of that container: any of them would hold it up as well. */
static void a_child_that_stands_still(void **state) {
    struct world *w = *state;
    struct found f;

    (void) snprintf(w->nodes, sizeof(w->nodes), "stuck");
    scan("/proc/self/exe", w, &f);
    w->nodes[0] = 0;
    assert_true(f.complete);
    assert_int_equal(f.n, 1);
    assert_int_equal(f.list[0].pid, 7);
    assert_int_equal(f.list[0].how, HOLDER_UNREADABLE);
}

/* What was found and not kept makes a scan incomplete: a holder that is missing in the list is no
 * candidate, and another one is charged. */
static void more_than_the_list_holds(void **state) {
    struct world *w = *state;
    struct found f;

    (void) snprintf(w->nodes, sizeof(w->nodes), "crowd");
    scan("/proc/self/exe", w, &f);
    w->nodes[0] = 0;
    assert_false(f.complete);
    assert_int_equal(f.n, 64);
}

/* Plays a child that finds more holders than a scan keeps. */
static int play_crowd(void) {
    struct holder h = {.how = HOLDER_OPEN};

    for (h.pid = 1; h.pid <= 5000; h.pid++)
        if (write(STDOUT_FILENO, &h, sizeof(h)) != sizeof(h))
            return 1;
    h = (struct holder){.how = HOLDER_END};
    return write(STDOUT_FILENO, &h, sizeof(h)) != sizeof(h);
}

/* Plays a child that each process of a container from PID 7 on holds up. */
static int play_stuck(const char *from, const char *skip) {
    struct holder h = {.pid = (uint32_t) atoi(from) + 7, .how = HOLDER_LOOKING};

    (void) snprintf(h.id.container_id, sizeof(h.id.container_id), "%s", ID_A);
    if (!strstr(skip, ID_A)) {
        (void) !write(STDOUT_FILENO, &h, sizeof(h));
        for (;;)
            (void) pause();
    }
    h = (struct holder){.how = HOLDER_END};
    return strcmp(from, "8") != 0 || write(STDOUT_FILENO, &h, sizeof(h)) != sizeof(h);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_remainder_needs_two_polls),
        cmocka_unit_test(less_than_nothing_is_nothing),
        cmocka_unit_test(restless_ledgers_take_longer),
        cmocka_unit_test(noise_is_learned_from_the_idle_card),
        cmocka_unit_test(noise_outlives_the_agent),
        cmocka_unit_test(a_damaged_note_of_noise_is_none),
        cmocka_unit_test(one_candidate_is_the_only_one),
        cmocka_unit_test(a_neighbour_can_hold_it_too),
        cmocka_unit_test(many_candidates_are_counted),
        cmocka_unit_test_setup_teardown(holders_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(descriptors_do_not_extend_the_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_child_walks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_child_that_stands_still, setup, teardown),
        cmocka_unit_test_setup_teardown(more_than_the_list_holds, setup, teardown),
    };

    (void) snprintf(pod_uid, sizeof(pod_uid), "22222222-2222-3333-4444-%012u", (unsigned) getpid());
    if (argc > 4 && strcmp(argv[4], "stuck") == 0)
        return play_stuck(argv[2], argv[3]);
    if (argc > 4 && strcmp(argv[4], "crowd") == 0)
        return play_crowd();
    if (argc > 4)
        return holders_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
