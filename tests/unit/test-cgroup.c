/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/os/cgroup.h"

#define UID "1f2e3d4c-5b6a-4789-8abc-def012345678"
#define UID_ "1f2e3d4c_5b6a_4789_8abc_def012345678"
#define OTHER "aaaaaaaa-5b6a-4789-8abc-def012345678"
#define STATIC "0123456789abcdef0123456789abcdef"
#define ID "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
#define ID2 "ffffffff4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"

struct golden {
    const char *name;
    const char *text;
    const char *uid; /* NULL: no pod */
    const char *id;
};

static const struct golden goldens[] = {
    {"v1 cgroupfs burstable",
     "12:pids:/kubepods/burstable/pod" UID "/" ID "\n11:memory:/kubepods/burstable/pod" UID "/" ID
     "\n0::/\n",
     UID, ID},
    {"v1 guaranteed behind other controllers", "3:cpuset:/\n2:memory:/kubepods/pod" UID "/" ID "\n",
     UID, ID},
    {"v2 cgroupfs", "0::/kubepods/besteffort/pod" UID "/" ID "\n", UID, ID},
    {"v2 systemd containerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
     ".slice/cri-containerd-" ID ".scope\n",
     UID, ID},
    {"v2 systemd guaranteed",
     "0::/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", UID, ID},
    {"cri-o", "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/container\n", UID,
     ID},
    {"cri-o's monitor", "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope\n",
     UID, ""},
    {"docker", "0::/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope\n", UID, ID},
    {"containerd on cgroupfs under systemd",
     "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod" UID_
     ".slice:cri-containerd:" ID "\n",
     UID, ID},
    {"kind",
     "0::/docker/" ID2 "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_
     ".slice/cri-containerd-" ID ".scope\n",
     UID, ID},
    {"cgroup root", "0::/node-b/kubepods/pod" UID "/" ID "\n", UID, ID},
    {"another cgroup namespace", "0::/../../pod" UID "/" ID "\n", UID, ID},
    {"static pod", "0::/kubepods/pod" STATIC "/" ID "\n", STATIC, ID},
    {"in the pod, in no container", "0::/kubepods/pod" UID "\n", UID, ""},
    {"a cgroup that the container made",
     "0::/kubepods/pod" UID "/" ID "/kubepods/pod" OTHER "/" ID2 "\n", UID, ID},
    {"host service", "0::/system.slice/sshd.service\n", NULL, NULL},
    {"podman is no pod", "0::/machine.slice/libpod-" ID ".scope\n", NULL, NULL},
    {"name that begins like a pod", "0::/podracer/x\n0::/pod-1f2e\n", NULL, NULL},
    {"longer than a UID", "0::/kubepods/pod" UID "ff/" ID "\n", NULL, NULL},
    {"upper case is no UID", "0::/kubepods/pod1F2E3D4C-5B6A-4789-8ABC-DEF012345678/" ID "\n", NULL,
     NULL},
    {"container ID too short", "0::/kubepods/pod" UID "/abcdef\n", UID, ""},
    {"no colons", "nonsense\n", NULL, NULL},
    {"empty", "", NULL, NULL},
};

static void golden(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        const struct golden *g = &goldens[i];
        struct cgroup_id id;
        int r = cgroup_parse(g->text, strlen(g->text), &id);

        if (r != (g->uid != NULL) ||
            (g->uid && (strcmp(id.pod_uid, g->uid) || strcmp(id.container_id, g->id))))
            fail_msg("%s: got %d, %s, %s", g->name, r, r ? id.pod_uid : "-",
                     r ? id.container_id : "-");
    }
}

/* ---- cgroup v2, as each runtime lays it out ---- */

#define SLICES "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice/"
#define KIND_SLICES                                                                                \
    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"                      \
    "kubelet-kubepods-burstable-pod" UID_ ".slice/"

struct layout {
    const char *name;
    const char *group;   /* of the container */
    const char *below;   /* where its processes may be */
    const char *monitor; /* the group of its monitor; NULL: outside of the pod */
};

static const struct layout layouts[] = {
    {"containerd, cgroupfs", "/kubepods/burstable/pod" UID "/" ID, "", NULL},
    {"containerd, systemd", SLICES "cri-containerd-" ID ".scope", "", NULL},
    {"containerd on cgroupfs, kubelet on systemd",
     "/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" ID, "",
     NULL},
    {"containerd, systemd in the container", SLICES "cri-containerd-" ID ".scope",
     "/system.slice/dbus.service", NULL},
    {"CRI-O, cgroupfs", "/kubepods/burstable/pod" UID "/crio-" ID, "",
     "/kubepods/burstable/pod" UID "/crio-conmon-" ID},
    {"CRI-O with runc, systemd", SLICES "crio-" ID ".scope", "", SLICES "crio-conmon-" ID ".scope"},
    {"CRI-O with crun, systemd", SLICES "crio-" ID ".scope", "/container",
     SLICES "crio-conmon-" ID ".scope"},
    {"cri-dockerd, cgroupfs", "/kubepods/burstable/pod" UID "/" ID, "", NULL},
    {"cri-dockerd, systemd", SLICES "docker-" ID ".scope", "", NULL},
    {"kind, in its node", KIND_SLICES "cri-containerd-" ID ".scope", "", NULL},
    {"kind, on docker with cgroupfs", "/docker/" ID2 KIND_SLICES "cri-containerd-" ID ".scope", "",
     NULL},
    {"kind, on docker with systemd",
     "/system.slice/docker-" ID2 ".scope" KIND_SLICES "cri-containerd-" ID ".scope", "", NULL},
    {"kind, on podman",
     "/machine.slice/libpod-" ID2 ".scope/container" KIND_SLICES "cri-containerd-" ID ".scope", "",
     NULL},
    {"k3s, cgroupfs", "/kubepods/burstable/pod" UID "/" ID, "", NULL},
    {"k3s, systemd", SLICES "cri-containerd-" ID ".scope", "", NULL},
    {"k3d", "/docker/" ID2 "/kubepods/burstable/pod" UID "/" ID, "", NULL},
};

static void expect_id(const struct layout *l, const char *text, const char *container) {
    struct cgroup_id id;

    if (cgroup_parse(text, strlen(text), &id) != 1)
        fail_msg("%s: %s is in no pod", l->name, text);
    assert_string_equal(id.pod_uid, UID);
    if (strcmp(id.container_id, container) != 0)
        fail_msg("%s: %s is in container \"%s\"", l->name, text, id.container_id);
}

static void layout_of_each_runtime(void **state) {
    const struct cgroup_id ids = {.pod_uid = UID, .container_id = ID};

    (void) state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        const struct layout *l = &layouts[i];
        char text[1024], path[1024];

        (void) snprintf(text, sizeof(text), "0::%s%s\n", l->group, l->below);
        expect_id(l, text, ID);
        assert_int_equal(cgroup_path(text, &ids, path, sizeof(path)), 0);
        assert_string_equal(path, l->group);
        if (!l->monitor)
            continue;
        (void) snprintf(text, sizeof(text), "0::%s\n", l->monitor);
        expect_id(l, text, "");
    }
}

/* Whatever the length, nothing behind it is looked at. */
static void every_prefix(void **state) {
    static const char text[] =
        "0::/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope\n";

    (void) state;
    for (size_t n = 0; n < sizeof(text); n++) {
        char *copy = strndup(text, n);
        struct cgroup_id id;

        assert_non_null(copy);
        (void) cgroup_parse(copy, n, &id);
        free(copy);
    }
}

static void own_process(void **state) {
    struct cgroup_id id;

    (void) state;
    assert_in_range(cgroup_of_pid(getpid(), &id), 0, 1);
    assert_int_equal(cgroup_of_pid(0x7ffffffe, &id), -ENOENT);
}

/* ---- cgroup v1 ---- */

static int ready[2];

static void *live(void *unused) {
    char state[2] = "";
    FILE *stat;

    do {
        stat = fopen("/proc/self/stat", "re");
        (void) (!stat || fscanf(stat, "%*d (%*[^)]) %1s", state));
        if (stat)
            (void) fclose(stat);
    } while (state[0] != 'Z');
    (void) !write(ready[1], "z", 1);
    for (;;)
        (void) pause();
    return unused;
}

/* A child in the group whose first thread ends while another one lives on. */
static pid_t start_without_first_thread(const char *group) {
    pid_t child = fork();
    char path[256], own[16];
    pthread_t thread;

    if (child != 0)
        return child;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) snprintf(path, sizeof(path), "%s/cgroup.procs", group);
    (void) snprintf(own, sizeof(own), "%d", getpid());
    FILE *procs = fopen(path, "we");
    if (!procs || fputs(own, procs) < 0 || fclose(procs) != 0 ||
        pthread_create(&thread, NULL, live, NULL) != 0)
        _exit(1);
    (void) syscall(SYS_exit, 0);
    abort();
}

/* The kernel says "/" of such a process in each hierarchy of cgroup v1. */
static void a_process_without_its_first_thread(void **state) {
    char top[64], pod[128], group[224], c;
    struct cgroup_id id;
    pid_t child;

    (void) state;
    (void) snprintf(top, sizeof(top), "/sys/fs/cgroup/memory/aliquot-test-%d", getpid());
    (void) snprintf(pod, sizeof(pod), "%s/pod" UID, top);
    (void) snprintf(group, sizeof(group), "%s/" ID, pod);
    if (access("/sys/fs/cgroup/memory/cgroup.procs", W_OK) < 0 || mkdir(top, 0755) < 0) {
        print_message("no memory hierarchy of cgroup v1 can be written here\n");
        skip();
    }
    assert_int_equal(mkdir(pod, 0755), 0);
    assert_int_equal(mkdir(group, 0755), 0);
    assert_int_equal(pipe(ready), 0);
    child = start_without_first_thread(group);
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(cgroup_of_pid(child, &id), 1);
    assert_string_equal(id.pod_uid, UID);
    assert_string_equal(id.container_id, ID);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(rmdir(group), 0);
    assert_int_equal(rmdir(pod), 0);
    assert_int_equal(rmdir(top), 0);
}

/* ---- a container that makes control groups of its own ---- */

#define LEVELS 25
#define LEVEL                                                                                      \
    "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll"   \
    "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll"

/* A child in the working directory's group. */
static pid_t start_here(void) {
    pid_t child = fork();
    char own[16], c;
    FILE *procs;

    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) snprintf(own, sizeof(own), "%d", getpid());
        procs = fopen("cgroup.procs", "we");
        if (!procs || fputs(own, procs) < 0 || fclose(procs) != 0)
            _exit(1);
        (void) !write(ready[1], "r", 1);
        for (;;)
            (void) pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    return child;
}

/* With user namespaces a container's root can make groups below its own, with paths longer than the
 * kernel names. Linux 6.18 cuts them off at the end; others refuse to name them. */
static void a_group_with_a_long_path(void **state) {
    char root[] = "/tmp/aliquot-cgroup-XXXXXX", pod[128], group[224];
    struct cgroup_id id;
    pid_t child;
    int r;

    (void) state;
    assert_non_null(mkdtemp(root));
    if (mount("none", root, "cgroup2", 0, NULL) < 0) {
        print_message("no control groups can be mounted here\n");
        (void) rmdir(root);
        skip();
    }
    (void) snprintf(pod, sizeof(pod), "%s/pod11111111-2222-3333-5555-%012d", root, getpid());
    (void) snprintf(group, sizeof(group), "%s/" ID, pod);
    assert_int_equal(mkdir(pod, 0755), 0);
    assert_int_equal(mkdir(group, 0755), 0);
    assert_int_equal(chdir(group), 0);
    for (int i = 0; i < LEVELS; i++)
        assert_true(mkdir(LEVEL, 0755) == 0 && chdir(LEVEL) == 0);
    assert_int_equal(pipe(ready), 0);
    child = start_here();
    r = cgroup_of_pid(child, &id);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int i = 0; i < LEVELS; i++) {
        assert_int_equal(chdir(".."), 0);
        while (rmdir(LEVEL) < 0)
            assert_int_equal(errno, EBUSY);
    }
    assert_int_equal(chdir("/"), 0);
    assert_true(rmdir(group) == 0 && rmdir(pod) == 0 && umount(root) == 0 && rmdir(root) == 0);
    if (r == -ENAMETOOLONG) {
        print_message("this kernel does not name long paths\n");
        skip();
    }
    assert_int_equal(r, 1);
    assert_string_equal(id.container_id, ID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(layout_of_each_runtime),
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(own_process),
        cmocka_unit_test(a_process_without_its_first_thread),
        cmocka_unit_test(a_group_with_a_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
