/* SPDX-License-Identifier: Apache-2.0 */

/* What the agent concludes from the figures of driver and ledger: overhead, overuse, policies,
 * and the end of a container. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/container_stop.h"
#include "agent/os/procfs.h"
#include "agent/shares/mps.h"
#include "agent/shares/slot.h"
#include "agent/verdicts/audit_memory.h"
#include "agent/verdicts/overhead.h"
#include "base/file.h"
#include "base/proc.h"
#include "gpu/driver/driver.h"
#include "share/limits.h"

#define MIB ((uint64_t) 1 << 20)
#define GIB ((uint64_t) 1 << 30)

/* ---- reconciliation ---- */

static bool sample(struct overhead *r, uint64_t used, uint64_t driver) {
    overhead_begin(r, used, 7);
    return overhead_end(r, used, 7, driver, 1);
}

static void overhead_needs_two_samples(void **state) {
    struct overhead r = {0};

    (void) state;
    assert_true(sample(&r, GIB, GIB + 101 * MIB)); /* asks for another poll at once */
    assert_true(r.bytes == 0);
    assert_false(sample(&r, GIB, GIB + 101 * MIB));
    assert_true(r.bytes == 100 * MIB); /* down to the driver's blocks */
    assert_false(sample(&r, GIB, GIB + 101 * MIB));
    /* One sample that lies moves nothing, in either direction. */
    assert_true(sample(&r, GIB, 3 * GIB));
    assert_true(r.bytes == 100 * MIB);
    assert_false(sample(&r, GIB, GIB + 101 * MIB));
    assert_true(sample(&r, GIB, GIB / 2));
    assert_true(r.bytes == 100 * MIB);
    /* A change that stays arrives. */
    (void) sample(&r, GIB, GIB);
    assert_true(r.bytes == 0);
}

static void a_moving_ledger_says_nothing(void **state) {
    struct overhead r = {0};

    (void) state;
    for (int i = 0; i < 5; i++) {
        /* Freed while the driver answered: the driver still counts it, the ledger no more. */
        overhead_begin(&r, 2 * GIB, 1);
        assert_false(overhead_end(&r, GIB, 2, 2 * GIB, 1));
        /* Freed and taken again: the same sum, other operations. */
        overhead_begin(&r, GIB, 2);
        assert_false(overhead_end(&r, GIB, 4, 2 * GIB, 1));
        /* No reading before: the ledger could not be read then. */
        assert_false(overhead_end(&r, GIB, 4, 2 * GIB, 1));
    }
    assert_true(r.bytes == 0);
}

static void overhead_ends_with_the_last_process(void **state) {
    struct overhead r = {.bytes = 64 * MIB}; /* as an earlier agent left it */

    (void) state;
    (void) sample(&r, GIB, GIB + 64 * MIB);
    assert_true(r.bytes == 64 * MIB);
    /* The driver lists no process, but the ledger has something: nothing was learnt. */
    for (int i = 0; i < 3; i++) {
        overhead_begin(&r, GIB, 8);
        assert_false(overhead_end(&r, GIB, 8, 0, 0));
        assert_true(r.bytes == 64 * MIB);
    }
    overhead_begin(&r, 0, 9);
    assert_false(overhead_end(&r, 0, 9, 0, 0));
    assert_true(r.bytes == 0);
    (void) sample(&r, GIB, GIB + MIB); /* noise */
    (void) sample(&r, GIB, GIB + 2 * MIB - 1);
    assert_true(r.bytes == 0);
}

/* ---- overuse ---- */

static struct audit_memory_poll poll_of(uint64_t now, uint64_t limit, uint64_t driver) {
    return (struct audit_memory_poll){.now_ms = now, .limit = limit, .driver = driver};
}

static void overuse_stands_at_two_looks(void **state) {
    struct audit_memory o = {0};
    struct audit_memory_poll l = poll_of(1000, 4 * GIB, 4 * GIB + AUDIT_MEMORY_SLACK);

    (void) state;
    assert_false(audit_memory_poll(&o, &l));
    l = poll_of(1500, 4 * GIB, 4 * GIB + AUDIT_MEMORY_SLACK + 1);
    assert_true(audit_memory_poll(&o, &l)); /* suspected: look again */
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
    l.now_ms = 1500 + AUDIT_MEMORY_CONFIRM_MS - 1;
    assert_true(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
    l.now_ms = 1500 + AUDIT_MEMORY_CONFIRM_MS;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_OVER);
    l.driver = GIB;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
    /* Gone in between: it begins anew. */
    l = poll_of(3000, 4 * GIB, 9 * GIB);
    assert_true(audit_memory_poll(&o, &l));
    l = poll_of(3010, 4 * GIB, GIB);
    assert_false(audit_memory_poll(&o, &l));
    l = poll_of(4000, 4 * GIB, 9 * GIB);
    assert_true(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
}

static void a_lowered_limit_accuses_nobody(void **state) {
    struct audit_memory o = {.ceiling = 8 * GIB};
    struct audit_memory_poll l = poll_of(1000, 2 * GIB, 6 * GIB);

    (void) state;
    for (int i = 0; i < 3; i++, l.now_ms += 500) {
        assert_false(audit_memory_poll(&o, &l));
        assert_int_equal(o.state, AUDIT_MEMORY_LOWERED);
    }
    /* One poll at which less is there says nothing. */
    l.driver = 0;
    assert_false(audit_memory_poll(&o, &l));
    l.driver = 6 * GIB;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_LOWERED);
    /* What it gives back does not come again. */
    l.driver = 4 * GIB;
    assert_false(audit_memory_poll(&o, &l));
    assert_false(audit_memory_poll(&o, &l));
    l.driver = 5 * GIB;
    assert_true(audit_memory_poll(&o, &l));
    l.now_ms += 500;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_OVER);
    /* Down to the new limit, and up again with the old one. */
    l.driver = GIB;
    (void) audit_memory_poll(&o, &l);
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
    l.limit = l.driver = 8 * GIB;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
}

static void findings_have_an_order(void **state) {
    struct audit_memory o = {0};
    struct audit_memory_poll l = poll_of(1000, GIB, 0);

    (void) state;
    l.damaged = true;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_DAMAGED);
    l.bypassing = 1;
    assert_true(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_DAMAGED);
    l.now_ms += 100;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_ESCAPED);
    l.driver = 2 * GIB;
    assert_true(audit_memory_poll(&o, &l));
    l.now_ms += 100;
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_OVER);
    assert_string_equal(audit_memory_name(o.state), "Over");
    /* Without a limit nothing is too much; the largest figures do not wrap. */
    l = poll_of(9000, 0, UINT64_MAX);
    assert_false(audit_memory_poll(&o, &l));
    assert_int_equal(o.state, AUDIT_MEMORY_FINE);
    l = poll_of(9000, UINT64_MAX - AUDIT_MEMORY_SLACK, UINT64_MAX - AUDIT_MEMORY_SLACK);
    assert_false(audit_memory_poll(&o, &l));
}

static void a_tenant_makes_it_only_stricter(void **state) {
    const char *rules = "team-a=stop,team-b=report";

    (void) state;
    assert_int_equal(overuse_rules_check(rules), 0);
    assert_int_equal(overuse_rules_check(""), 0);
    assert_int_equal(overuse_rules_check("team-a"), -EINVAL);
    assert_int_equal(overuse_rules_check("=stop"), -EINVAL);
    assert_int_equal(overuse_rules_check("team-a=kill"), -EINVAL);
    assert_int_equal(overuse_policy_of(OVERUSE_REPORT, rules, "other", NULL), OVERUSE_REPORT);
    assert_int_equal(overuse_policy_of(OVERUSE_REPORT, rules, "team-a", NULL), OVERUSE_STOP);
    assert_int_equal(overuse_policy_of(OVERUSE_STOP, rules, "team-b", NULL), OVERUSE_REPORT);
    assert_int_equal(overuse_policy_of(OVERUSE_STOP, rules, "team", NULL), OVERUSE_STOP);
    assert_int_equal(overuse_policy_of(OVERUSE_STOP, NULL, "ns", "report"), OVERUSE_STOP);
    assert_int_equal(overuse_policy_of(OVERUSE_REPORT, NULL, "ns", "stop"), OVERUSE_STOP);
    assert_int_equal(overuse_policy_of(OVERUSE_REPORT, NULL, "ns", "nonsense"), OVERUSE_REPORT);
}

/* ---- processes ---- */

static void who_is_ending(void **state) {
    (void) state;
    assert_false(proc_stat_is_ending("7 (a) b) S 1 7 7 0 -1 4194304 0 0"));
    assert_true(proc_stat_is_ending("7 (a) b) S 1 7 7 0 -1 4194308 0 0"));
    assert_true(proc_stat_is_ending("7 (x) Z 1 7 7 0 -1 4194304 0 0"));
    assert_true(proc_stat_is_ending("7 (x"));
    assert_true(proc_stat_is_ending("7 (x) S 1 7"));
    assert_true(proc_stat_is_ending(""));
    assert_false(procfs_is_ending(getpid()));
    assert_true(procfs_is_ending(INT32_MAX));
}

static void a_dead_process_is_ending(void **state) {
    siginfo_t info;
    pid_t child = fork();

    (void) state;
    if (child == 0)
        _exit(0);
    assert_true(child > 0);
    assert_int_equal(waitid(P_PID, (id_t) child, &info, WEXITED | WNOWAIT), 0);
    assert_true(procfs_is_ending(child));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Without a descriptor for reading it a process is neither accused nor taken for ended. */
static void a_process_that_cannot_be_looked_at(void **state) {
    struct rlimit before, none;
    bool ending, ended;

    (void) state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ending = procfs_is_ending(getpid());
    ended = process_has_ended(getpid());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(ending);
    assert_false(ended);
    assert_false(procfs_is_ending(getpid()));
    assert_true(process_has_ended(INT32_MAX));
}

#define TRACED 2000

static int counted[2];

static void *end_when_reported(void *unused) {
    char c;

    (void) !read(counted[0], &c, 1);
    return unused;
}

static void *go_on(void *unused) {
    for (;;)
        (void) pause();
    return unused;
}

/* A process of TRACED threads and the first one, which end, and one that lives. */
static void be_many(int ready) {
    pthread_attr_t attr;
    pthread_t thread;

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, 64 << 10);
    for (int i = 0; i < TRACED; i++)
        if (pthread_create(&thread, &attr, end_when_reported, NULL) != 0)
            _exit(1);
    if (pthread_create(&thread, &attr, go_on, NULL) != 0)
        _exit(1);
    (void) !write(ready, "r", 1);
    end_when_reported(NULL);
    (void) syscall(SYS_exit, 0);
}

/* Whether the first thread has ended, which takes a moment. */
static bool is_zombie(pid_t pid) {
    char path[64], text[512] = "";
    FILE *f;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "re");
    assert_non_null(f);
    (void) !fread(text, 1, sizeof(text) - 1, f);
    (void) fclose(f);
    return strstr(text, ") Z ") != NULL;
}

/* All threads but one end, and their tracer, this process, keeps them. */
static void trace_and_end(pid_t child) {
    char path[64], bytes[TRACED + 1] = "";
    struct dirent *e;
    int n = 0;
    DIR *tasks;

    (void) snprintf(path, sizeof(path), "/proc/%d/task", child);
    tasks = opendir(path);
    assert_non_null(tasks);
    while ((e = readdir(tasks)))
        if (e->d_name[0] != '.')
            n += ptrace(PTRACE_SEIZE, atoi(e->d_name), NULL, NULL) == 0;
    (void) closedir(tasks);
    /* A sanitizer has threads of its own. */
    assert_true(n >= TRACED + 2);
    assert_int_equal(write(counted[1], bytes, sizeof(bytes)), sizeof(bytes));
}

static int64_t cpu_ns(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void look(pid_t pid) {
    assert_false(procfs_is_ending(pid));
    assert_false(process_has_ended(pid));
}

/* What the two readings must not do. */
static void read_all_threads(pid_t pid) {
    char path[300], text[1024];
    struct dirent *e;
    DIR *tasks;

    (void) snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    assert_non_null(tasks);
    while ((e = readdir(tasks))) {
        int fd;

        (void) snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, e->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        (void) !read(fd, text, sizeof(text));
        (void) close(fd);
    }
    (void) closedir(tasks);
}

/* The least of ten, which a busy machine extends least. */
static int64_t cost_of(void (*what)(pid_t pid), pid_t pid) {
    int64_t least = INT64_MAX;

    for (int i = 0; i < 10; i++) {
        int64_t from = cpu_ns(), took;

        what(pid);
        took = cpu_ns() - from;
        least = took < least ? took : least;
    }
    return least;
}

/* A tracer keeps threads that have ended in the list, as many as it likes. They neither make the
 * reading of the process long, nor hide the thread that lives. */
static void threads_that_are_kept_do_not_extend_a_look(void **state) {
    int ready[2];
    pid_t child;
    char c;

    (void) state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(counted), 0);
    child = fork();
    if (child == 0)
        be_many(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    trace_and_end(child);
    while (!is_zombie(child))
        (void) usleep(1000);
    assert_true(2 * cost_of(look, child) < cost_of(read_all_threads, child));
    (void) kill(child, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0)
        ;
    (void) close(counted[0]);
    (void) close(counted[1]);
    (void) close(ready[0]);
    (void) close(ready[1]);
}

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD_UID "11111111-2222-3333-4444-555555555555"

static void the_containers_own_directory(void **state) {
    const struct cgroup_id id = {.pod_uid = POD_UID, .container_id = ID64};
    char path[256];

    (void) state;
    assert_int_equal(cgroup_path("1:name=systemd:/x\n0::/kubepods/pod" POD_UID "/" ID64
                                 "/of-the-tenant\n",
                                 &id, path, sizeof(path)),
                     0);
    assert_string_equal(path, "/kubepods/pod" POD_UID "/" ID64);
    assert_int_equal(cgroup_path("0::/k.slice/cri-containerd-" ID64 ".scope/a/" ID64 "\n", &id,
                                 path, sizeof(path)),
                     0);
    assert_string_equal(path, "/k.slice/cri-containerd-" ID64 ".scope");
    assert_int_equal(cgroup_path("0::/../../" ID64 "\n", &id, path, sizeof(path)), -ENOENT);
    assert_int_equal(cgroup_path("4:memory:/kubepods/" ID64 "\n0::/\n", &id, path, sizeof(path)),
                     -ENOENT);
    assert_int_equal(cgroup_path("0::/" ID64 "\n", &id, path, 16), -ENAMETOOLONG);
}

/* ---- the end of a container ---- */

/* Control groups are the machine's: each run of this test has a pod of its own. */
static char own_pod[sizeof(POD_UID)];

struct stopping {
    uv_loop_t loop;
    struct container_stops stops;
    unsigned stopped, late;
    uint32_t late_alive, late_pid;
    uv_timer_t tick;
    uint64_t deadline;
    bool timed_out;
};

static void on_stopped(const struct container_stop *s, void *userdata) {
    assert_string_equal(s->slot, "nonce");
    ((struct stopping *) userdata)->stopped++;
}

static void on_late(const struct container_stop *s, void *userdata) {
    struct stopping *st = userdata;

    st->late++;
    st->late_alive = s->alive;
    st->late_pid = s->pids[0];
}

static void on_tick(uv_timer_t *timer) {
    struct stopping *st = timer->data;

    st->timed_out = uv_now(&st->loop) >= st->deadline;
}

static void stopping_begin(struct stopping *st) {
    memset(st, 0, sizeof(*st));
    assert_int_equal(uv_loop_init(&st->loop), 0);
    container_stops_init(&st->stops, &st->loop);
    st->stops.on_stopped = on_stopped;
    st->stops.on_late = on_late;
    st->stops.userdata = st;
    (void) uv_timer_init(&st->loop, &st->tick);
    st->tick.data = st;
}

/* Until nothing is being ended any more, or `ms` have passed. */
static void stopping_run(struct stopping *st, unsigned ms) {
    st->timed_out = false;
    uv_update_time(&st->loop);
    st->deadline = uv_now(&st->loop) + ms;
    (void) uv_timer_start(&st->tick, on_tick, 20, 20);
    while (st->stops.list && !st->timed_out)
        (void) uv_run(&st->loop, UV_RUN_ONCE);
    (void) uv_timer_stop(&st->tick);
}

static void stopping_end(struct stopping *st) {
    container_stops_end(&st->stops);
    uv_close((uv_handle_t *) &st->stops.timer, NULL);
    uv_close((uv_handle_t *) &st->tick, NULL);
    (void) uv_run(&st->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&st->loop), 0);
}

static void only_containers_are_ended(void **state) {
    const struct cgroup_id id = {.pod_uid = POD_UID, .container_id = ID64};
    const struct cgroup_id none = {.pod_uid = POD_UID};
    struct stopping st;

    (void) state;
    stopping_begin(&st);
    assert_int_equal(container_stops_begin(&st.stops, getpid(), &none, "nonce", ""), -EINVAL);
    /* This process is in no such container. */
    assert_int_equal(container_stops_begin(&st.stops, getpid(), &id, "nonce", ""), 0);
    assert_int_equal(container_stops_begin(&st.stops, getpid(), &id, "nonce", ""), 0);
    stopping_run(&st, 60000);
    assert_false(st.timed_out);
    assert_int_equal(st.stopped, 0);
    stopping_end(&st);
}

static void enter(const char *group) {
    char path[256], own[16];
    FILE *procs;

    (void) snprintf(path, sizeof(path), "%s/cgroup.procs", group);
    (void) snprintf(own, sizeof(own), "%d", getpid());
    procs = fopen(path, "we");
    if (!procs || fputs(own, procs) < 0 || fclose(procs) != 0)
        _exit(1);
}

static void *live(void *unused) {
    for (;;)
        (void) pause();
    return unused;
}

enum kind {
    PLAIN,      /* with a child of its own */
    LEADERLESS, /* its first thread ends, another one lives on */
};

/* A child in a container's control groups. */
static pid_t start_in_group(const char *group, const char *other, enum kind kind) {
    pid_t child = fork();
    pthread_t thread;

    if (child != 0)
        return child;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter(group);
    if (other)
        enter(other);
    if (kind == PLAIN) {
        if (fork() == 0)
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    } else {
        if (pthread_create(&thread, NULL, live, NULL) != 0)
            _exit(1);
        (void) syscall(SYS_exit, 0);
    }
    (void) live(NULL);
    abort();
}

static void wait_for_group(pid_t pid, struct cgroup_id *ret) {
    while (cgroup_of_pid(pid, ret) == 0)
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_string_equal(ret->container_id, ID64);
}

#define LATE_MS 1000 /* as long, and it is told that a container does not end */

static void end_child(const char *group, enum kind kind, const char *host_root) {
    pid_t child = start_in_group(group, NULL, kind);
    struct stopping st;
    struct cgroup_id id;
    uint64_t begun;
    pid_t ended;
    int status;

    wait_for_group(child, &id);
    while (kind == LEADERLESS && !is_zombie(child))
        (void) usleep(1000);
    stopping_begin(&st);
    assert_int_equal(container_stops_begin(&st.stops, child, &id, "nonce", host_root), 0);
    begun = uv_now(&st.loop);
    stopping_run(&st, 60000);
    assert_false(st.timed_out);
    assert_int_equal(st.stopped, 1);
    assert_true(st.late == 0 || uv_now(&st.loop) - begun >= LATE_MS); /* on a busy machine */
    stopping_end(&st);
    /* "Stopped" was told of nothing that lives. A thread that has ended keeps the process from its
     * parent until the kernel lets go of it. */
    while ((ended = waitpid(child, &status, WNOHANG)) == 0)
        assert_true(process_has_ended(child));
    assert_int_equal(ended, child);
    assert_true(kind == LEADERLESS || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    while (rmdir(group) < 0)
        assert_int_equal(errno, EBUSY);
    assert_int_equal(mkdir(group, 0755), 0);
}

static void print_to(const char *directory, const char *file, const char *text) {
    char path[256];
    FILE *f;

    (void) snprintf(path, sizeof(path), "%s/%s", directory, file);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A process that cgroup v1's freezer holds does not end until it is thawed, whatever the signal. */
static void end_frozen_child(const char *group) {
    char freezer[96];
    struct stopping st;
    struct cgroup_id id;
    pid_t child;

    (void) snprintf(freezer, sizeof(freezer), "/sys/fs/cgroup/freezer/aliquot-%s", own_pod);
    if (mkdir(freezer, 0755) < 0) {
        print_message("no freezer of cgroup v1 here: no process outlives SIGKILL\n");
        return;
    }
    child = start_in_group(group, freezer, LEADERLESS);
    wait_for_group(child, &id);
    while (!is_zombie(child))
        (void) usleep(1000);
    print_to(freezer, "freezer.state", "FROZEN");
    stopping_begin(&st);
    assert_int_equal(container_stops_begin(&st.stops, child, &id, "nonce", "/nowhere"), 0);
    while (st.late == 0 && st.stops.list)
        stopping_run(&st, 100);
    stopping_run(&st, 2000);
    assert_true(st.timed_out);
    assert_int_equal(st.stopped, 0);
    assert_int_equal(st.late, 1); /* told once */
    assert_int_equal(st.late_alive, 1);
    assert_int_equal(st.late_pid, (uint32_t) child);
    print_to(freezer, "freezer.state", "THAWED");
    stopping_run(&st, 60000);
    assert_false(st.timed_out);
    assert_int_equal(st.stopped, 1);
    stopping_end(&st);
    assert_int_equal(waitpid(child, NULL, WNOHANG), child);
    while (rmdir(freezer) < 0)
        assert_int_equal(errno, EBUSY);
}

/* With cgroup.kill and without it, on a real control group. The own mount stands for the host's
 * root. */
static void a_container_is_ended(void **state) {
    char root[] = "/tmp/aliquot-stop-XXXXXX", mounted[64], group[192], path[256];

    (void) state;
    (void) snprintf(own_pod, sizeof(own_pod), "11111111-2222-3333-4444-%012u", (unsigned) getpid());
    assert_non_null(mkdtemp(root));
    (void) snprintf(mounted, sizeof(mounted), "%s/sys/fs/cgroup", root);
    assert_int_equal(dir_make(mounted, 0755, NULL), 0);
    if (mount("none", mounted, "cgroup2", 0, NULL) < 0) {
        print_message("no control groups can be mounted here (%s): no container is ended\n",
                      strerror(errno));
        (void) dir_remove(root, NULL);
        skip();
    }
    (void) snprintf(group, sizeof(group), "%s/pod%s/" ID64, mounted, own_pod);
    assert_int_equal(dir_make(group, 0755, NULL), 0);
    end_child(group, PLAIN, root);
    end_child(group, PLAIN, "/nowhere");
    end_child(group, LEADERLESS, root);
    end_child(group, LEADERLESS, "/nowhere");
    end_frozen_child(group);
    assert_int_equal(rmdir(group), 0);
    (void) snprintf(path, sizeof(path), "%s/pod%s", mounted, own_pod);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(umount(mounted), 0);
    assert_int_equal(dir_remove(root, NULL), 0);
}

/* ---- MPS ---- */

static const char *env_of(const struct gpu_edits *edits, const char *name) {
    for (size_t i = 0; i < edits->count; i++) {
        const struct gpu_edit *e = &edits->list[i];

        if (e->kind == GPU_EDIT_ENV && strncmp(e->container, name, strlen(name)) == 0 &&
            e->container[strlen(name)] == '=')
            return e->container + strlen(name) + 1;
    }
    return NULL;
}

/* What a container is given of an MPS daemon. That the daemon then keeps to it only a GPU shows. */
static void what_mps_is_told(void **state) {
    struct slot_device devices[2] = {{.core = 30, .physical = 4 * GIB},
                                     {.core = 20, .physical = 2 * GIB}};
    struct slot_grant g = {.ndevices = 2, .devices = devices, .terms = {.policy = SHARE_FIXED}};
    struct gpu_edits edits = {0};
    char root[] = "/tmp/aliquot-mps-XXXXXX", path[64];

    (void) state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(mps_edits("/mps", root, &g, &edits), 0);
    assert_int_equal(edits.count, 0); /* there is none */
    (void) snprintf(path, sizeof(path), "%s/mps", root);
    assert_int_equal(mkdir(path, 0755), 0);
    (void) snprintf(path, sizeof(path), "%s/mps/pipe", root);
    assert_int_equal(mkdir(path, 0755), 0);
    (void) snprintf(path, sizeof(path), "%s/mps/pipe/control", root);
    assert_int_equal(mknod(path, S_IFIFO | 0600, 0), 0);
    assert_int_equal(mps_edits("", root, &g, &edits), 0);
    assert_int_equal(edits.count, 0); /* not wanted */
    assert_int_equal(mps_edits("/mps", root, &g, &edits), 0);
    assert_string_equal(edits.list[0].host, "/mps/pipe");
    assert_string_equal(edits.list[0].container, env_of(&edits, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_string_equal(env_of(&edits, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30");
    assert_string_equal(env_of(&edits, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=4128M,1=2080M");
    /* What may borrow is held to its ceiling only. */
    g.terms = (struct slot_terms){.policy = SHARE_BURST, .ceiling = 60};
    edits.count = 0;
    assert_int_equal(mps_edits("/mps", root, &g, &edits), 0);
    assert_string_equal(env_of(&edits, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "60");
    g.terms.policy = SHARE_BEST_EFFORT;
    edits.count = 0;
    assert_int_equal(mps_edits("/mps", root, &g, &edits), 0);
    assert_null(env_of(&edits, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
    assert_int_equal(dir_remove(root, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overhead_needs_two_samples),
        cmocka_unit_test(a_moving_ledger_says_nothing),
        cmocka_unit_test(overhead_ends_with_the_last_process),
        cmocka_unit_test(overuse_stands_at_two_looks),
        cmocka_unit_test(a_lowered_limit_accuses_nobody),
        cmocka_unit_test(findings_have_an_order),
        cmocka_unit_test(a_tenant_makes_it_only_stricter),
        cmocka_unit_test(who_is_ending),
        cmocka_unit_test(a_dead_process_is_ending),
        cmocka_unit_test(a_process_that_cannot_be_looked_at),
        cmocka_unit_test(threads_that_are_kept_do_not_extend_a_look),
        cmocka_unit_test(the_containers_own_directory),
        cmocka_unit_test(only_containers_are_ended),
        cmocka_unit_test(a_container_is_ended),
        cmocka_unit_test(what_mps_is_told),
    };

    return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
