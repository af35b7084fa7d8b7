/* SPDX-License-Identifier: Apache-2.0 */

/* Where a driver is found, and which of its files a container gets. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/machine.h"
#include "driver-files.h"
#include "gpu/device.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/driver_links.h"
#include "gpu/driver/ldcache.h"
#include "model/driver_capability.h"

/* The driver's files are looked for in the agent's view and named in the host's. */
static void real_driver(void **state) {
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512], want[512];
    static struct gpu_edits edits;
    const struct gpu_device card = {.minor = 3, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    struct gpu_driver_places places = {.driver_root = "/opt/driver", .sim_dir = "/nonexistent"};
    const struct gpu_driver *driver;
    struct err err;

    (void) state;
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    assert_null(gpu_driver_find(&places, found));
    touch(dir, "/dev/nvidiactl");
    touch(dir, "/opt/driver/usr/lib64/libnvidia-ml.so.1");
    driver = gpu_driver_find(&places, found);
    assert_non_null(driver);
    assert_string_equal(gpu_driver_name(driver), "nvidia");
    (void) snprintf(want, sizeof(want), "%s/opt/driver/usr/lib64/libnvidia-ml.so.1", dir);
    assert_string_equal(found, want);
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, &err),
        -ENOENT);
    touch(dir, "/dev/nvidia3");
    touch(dir, "/opt/driver/usr/lib64/libcuda.so.1");
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, &err),
        0);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, "/dev/nvidia3", "/dev/nvidia3"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, "/dev/nvidiactl", "/dev/nvidiactl"));
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT, "/opt/driver/usr/lib64/libcuda.so.1",
                         "/usr/lib/" MULTIARCH "/libcuda.so.1"));
    assert_false(has_edit(&edits, GPU_EDIT_NODE, "/dev/nvidia-uvm", "/dev/nvidia-uvm"));
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "/s", &edits, &err),
        0);
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT, "/opt/driver/usr/lib64/libcuda.so.1",
                         "/usr/lib/" MULTIARCH "/libcuda-driver.so.1"));
    assert_true(
        has_edit(&edits, GPU_EDIT_MOUNT, "/s/libcuda.so.1", "/usr/lib/" MULTIARCH "/libcuda.so.1"));
    assert_true(
        has_edit(&edits, GPU_EDIT_MOUNT, "/s/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1"));
    assert_false(has_edit(&edits, GPU_EDIT_MOUNT, "/opt/driver/usr/lib64/libcuda.so.1",
                          "/usr/lib/" MULTIARCH "/libcuda.so.1"));
    (void) dir_remove(dir, NULL);
}

static void put_version(const char *dir, const char *version) {
    static const char *const stems[] = {"libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"};
    char name[128], link[256], target[64];

    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++) {
        (void) snprintf(target, sizeof(target), "%s.so.%s", stems[i], version);
        (void) snprintf(name, sizeof(name), "/usr/lib64/%s", target);
        touch(dir, name);
        (void) snprintf(link, sizeof(link), "%s/usr/lib64/%s.so.1", dir, stems[i]);
        assert_int_equal(symlink(target, link), 0);
    }
}

/* What the next container gets has no file of the driver that was there before. */
static void another_driver_in_the_same_place(void **state) {
    static const char *const versions[] = {"535.183.01", "580.65.06"};
    const struct gpu_device card = {.minor = 0, .healthy = true};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", libraries[256], found[512];
    static struct gpu_edits edits;
    struct gpu_driver_places places = {.driver_root = "", .sim_dir = "/nonexistent"};
    struct err err;

    (void) state;
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    touch(dir, "/dev/nvidiactl");
    touch(dir, "/dev/nvidia0");
    (void) snprintf(libraries, sizeof(libraries), "%s/usr/lib64", dir);
    for (size_t i = 0; i < 2; i++) {
        const struct gpu_driver *driver;
        size_t n = 0;

        put_version(dir, versions[i]);
        driver = gpu_driver_find(&places, found);
        assert_non_null(driver);
        assert_non_null(strstr(found, versions[i]));
        assert_int_equal(edits_of(driver, &places, &card, NULL, &edits, &err), 0);
        for (size_t k = 0; k < edits.count; k++) {
            n += strstr(edits.list[k].host, versions[i]) != NULL;
            assert_null(strstr(edits.list[k].host, versions[1 - i]));
        }
        assert_true(n >= 3);
        assert_int_equal(dir_remove(libraries, NULL), 0);
        assert_null(gpu_driver_find(&places, found)); /* between the two */
    }
    (void) dir_remove(dir, NULL);
}

static void make_link(const char *dir, const char *target, const char *name) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    touch(dir, name); /* its directories */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(target, path), 0);
}

#define LIB "/usr/lib/" MULTIARCH "/"

/* As Debian's alternatives are, and the files of a driver that is in a container of its own: links
 * are absolute, and meant below the driver's root. */
static void driver_behind_absolute_links(void **state) {
    char dir[] = "/tmp/aliquot-driver-XXXXXX", root[64], found[512], want[512];
    static struct gpu_edits edits;
    const struct gpu_device card = {.minor = 0, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    struct gpu_driver_places places = {.driver_root = "/run/nv", .sim_dir = "/nonexistent"};
    const struct gpu_driver *driver;

    (void) state;
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    (void) snprintf(root, sizeof(root), "%s/run/nv", dir);
    touch(dir, "/dev/nvidiactl");
    touch(dir, "/dev/nvidia0");
    touch(root, "/opt/nv/libcuda.so.535.1");
    touch(root, "/opt/nv/libnvidia-ml.so.535.1");
    touch(root, "/opt/nv/bin/nvidia-smi");
    touch(root, LIB "libnvcuvid.so.535.1");
    make_link(root, "/opt/nv/libcuda.so.535.1", "/etc/alternatives/libcuda");
    make_link(root, "/etc/alternatives/libcuda", LIB "libcuda.so.1");
    make_link(root, "../../../../opt/../../../opt/nv/./libnvidia-ml.so.535.1",
              LIB "libnvidia-ml.so.1");
    make_link(root, "/opt/nv/bin", "/usr/bin");
    make_link(root, LIB "libnvcuvid.so.535.1", LIB "libnvcuvid.so.1");
    make_link(root, "nvidia-debugdump", "/opt/nv/bin/nvidia-debugdump"); /* a loop */
    make_link(root, "/nowhere", LIB "libnvidia-api.so.1");
    driver = gpu_driver_find(&places, found);
    assert_non_null(driver);
    (void) snprintf(want, sizeof(want), "%s/opt/nv/libnvidia-ml.so.535.1", root);
    assert_string_equal(found, want);
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, NULL),
        0);
    assert_true(
        has_edit(&edits, GPU_EDIT_MOUNT, "/run/nv/opt/nv/libcuda.so.535.1", LIB "libcuda.so.1"));
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT, "/run/nv/opt/nv/libcuda.so.535.1",
                         "/usr/lib64/libcuda.so"));
    assert_true(
        has_edit(&edits, GPU_EDIT_MOUNT, "/run/nv/opt/nv/bin/nvidia-smi", "/usr/bin/nvidia-smi"));
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT, "/run/nv" LIB "libnvcuvid.so.535.1",
                         LIB "libnvcuvid.so.1"));
    for (size_t i = 0; i < edits.count; i++) {
        assert_null(strstr(edits.list[i].container, "nvidia-debugdump"));
        assert_null(strstr(edits.list[i].container, "libnvidia-api"));
    }
    (void) dir_remove(dir, NULL);
}

/* A library that no table names yet is given with the rest, and to no container that asks for
 * parts. One of another version beside it is left. */
static void new_driver_library(void **state) {
    static const uint8_t asked[] = {DRIVER_CAPABILITIES_UNSAID, DRIVER_CAPABILITIES_ALL,
                                    DRIVER_COMPUTE | DRIVER_GRAPHICS};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512];
    static struct gpu_edits edits;
    const struct gpu_device card = {.minor = 0, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    struct gpu_driver_places places = {.driver_root = "", .sim_dir = "/nonexistent"};
    const struct gpu_driver *driver;

    (void) state;
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    touch(dir, "/dev/nvidiactl");
    touch(dir, "/dev/nvidia0");
    touch(dir, LIB "libcuda.so.700.10");
    make_link(dir, "libcuda.so.700.10", LIB "libcuda.so.1");
    touch(dir, LIB "libnvidia-ml.so.1");
    touch(dir, LIB "libnvidia-next.so.700.10");
    touch(dir, LIB "libnvidia-old.so.600.10");
    make_link(dir, "libnvidia-next.so.700.10", LIB "libnvidia-next.so.3");
    driver = gpu_driver_find(&places, found);
    for (size_t i = 0; i < sizeof(asked); i++) {
        assert_int_equal(gpu_driver_edits(driver, &places, cards, 1, asked[i], "", &edits, NULL),
                         0);
        assert_int_equal(has_edit(&edits, GPU_EDIT_MOUNT, LIB "libnvidia-next.so.700.10",
                                  LIB "libnvidia-next.so.3"),
                         i < 2);
        for (size_t k = 0; k < edits.count; k++)
            assert_null(strstr(edits.list[k].container, "libnvidia-old"));
    }
    (void) dir_remove(dir, NULL);
}

static void simulated_driver(void **state) {
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512], path[128], path2[64];
    static struct gpu_edits edits;
    const struct gpu_device card = {.minor = 1, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    struct gpu_driver_places places = {
        .host_root = "/nonexistent", .driver_root = "", .sim_dir = dir};
    const struct gpu_driver *driver;

    (void) state;
    assert_non_null(mkdtemp(dir));
    touch(dir, "/nvidiactl");
    touch(dir, "/nvidia1");
    touch(dir, "/lib/libnvidia-ml.so.1");
    touch(dir, "/lib/libcuda.so.1");
    driver = gpu_driver_find(&places, found);
    assert_non_null(driver);
    assert_string_equal(gpu_driver_name(driver), "simulated");
    gpu_driver_path(driver, &places, &card, path2);
    (void) snprintf(path, sizeof(path), "%s/nvidia1", dir);
    assert_string_equal(path2, path);
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, NULL),
        0);
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT_RW, path, path));
    (void) snprintf(path, sizeof(path), "%s/lib/libcuda.so.1", dir);
    assert_true(has_edit(&edits, GPU_EDIT_MOUNT, path, "/usr/lib64/libcuda.so.1"));
    (void) dir_remove(dir, NULL);
}

/* ---- where distributions have it ---- */

static void link_to(const char *dir, const char *target, const char *name) {
    char path[256];

    touch(dir, name);
    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(target, path), 0);
}

/* A row is a node with nothing given: where its libraries, nvidia-smi and device nodes are. */
static const struct platform {
    const char *name, *libraries, *programs, *dev;
} platforms[] = {
    {"Debian", "/usr/lib/" MULTIARCH "/nvidia/current", "/usr/bin", ""},
    {"Ubuntu", "/usr/lib/" MULTIARCH, "/usr/bin", ""},
    {"RHEL", "/usr/lib64", "/usr/bin", ""},
    {"GPU operator", "/run/nvidia/driver/usr/lib/" MULTIARCH, "/run/nvidia/driver/usr/bin", ""},
    {"GPU operator, older", "/run/nvidia/driver/usr/lib64", "/run/nvidia/driver/usr/bin",
     "/run/nvidia/driver"},
    {"GKE", "/home/kubernetes/bin/nvidia/lib64", "/home/kubernetes/bin/nvidia/bin", ""},
    {"Talos", "/usr/local/glibc/usr/lib", "/usr/local/bin", ""},
    {"Talos, older", "/usr/local/lib", "/usr/local/bin", ""},
    {"Flatcar", "/opt/nvidia/current/usr/lib64", "/opt/nvidia/current/usr/bin", ""},
    {"Bottlerocket", "/" MACHINE "-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia",
     "/" MACHINE "-bottlerocket-linux-gnu/sys-root/usr/bin", ""},
    {"NixOS", "/run/opengl-driver/lib", "/run/current-system/sw/bin", ""},
};

static void put_driver(const char *dir, const struct platform *p) {
    static const char *const stems[] = {"libcuda.so", "libnvidia-ml.so",
                                        "libnvidia-ptxjitcompiler.so"};
    char name[256], target[64];

    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++) {
        (void) snprintf(target, sizeof(target), "%s.535.261.03", stems[i]);
        (void) snprintf(name, sizeof(name), "%s/%s", p->libraries, target);
        touch(dir, name);
        (void) snprintf(name, sizeof(name), "%s/%s.1", p->libraries, stems[i]);
        link_to(dir, target, name);
    }
    (void) snprintf(name, sizeof(name), "%s/nvidia-smi", p->programs);
    touch(dir, name);
    (void) snprintf(name, sizeof(name), "%s/dev/nvidiactl", p->dev);
    touch(dir, name);
    (void) snprintf(name, sizeof(name), "%s/dev/nvidia3", p->dev);
    touch(dir, name);
}

static void assert_edit(const struct gpu_edits *e, const struct platform *p,
                        enum gpu_edit_kind kind, const char *dir, const char *file,
                        const char *container) {
    char host[256];

    (void) snprintf(host, sizeof(host), "%s/%s", dir, file);
    if (!has_edit(e, kind, host, container))
        fail_msg("%s: the container has no %s from %s", p->name, container, host);
}

static void check_platform(const char *dir, const struct platform *p) {
    struct gpu_driver_places places = {.host_root = dir, .sim_dir = "/nonexistent"};
    const struct gpu_device card = {.minor = 3, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    static struct gpu_edits edits;
    const struct gpu_driver *driver;
    char found[512], want[512];
    struct err err;

    driver = gpu_driver_find(&places, found);
    if (!driver)
        fail_msg("%s: no driver", p->name);
    (void) snprintf(want, sizeof(want), "%s%s/libnvidia-ml.so.535.261.03", dir, p->libraries);
    assert_string_equal(found, want);
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, &err),
        0);
    assert_edit(&edits, p, GPU_EDIT_MOUNT, p->libraries, "libcuda.so.535.261.03",
                "/usr/lib/" MULTIARCH "/libcuda.so.1");
    assert_edit(&edits, p, GPU_EDIT_MOUNT, p->libraries, "libnvidia-ptxjitcompiler.so.535.261.03",
                "/usr/lib/" MULTIARCH "/libnvidia-ptxjitcompiler.so.1");
    assert_edit(&edits, p, GPU_EDIT_MOUNT, p->programs, "nvidia-smi",
                strcmp(p->programs, "/usr/local/bin") == 0 ? "/usr/local/bin/nvidia-smi"
                                                           : "/usr/bin/nvidia-smi");
    assert_edit(&edits, p, GPU_EDIT_NODE, p->dev, "dev/nvidiactl", "/dev/nvidiactl");
    assert_edit(&edits, p, GPU_EDIT_NODE, p->dev, "dev/nvidia3", "/dev/nvidia3");
}

static void distributions(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
        char dir[] = "/tmp/aliquot-driver-XXXXXX";

        assert_non_null(mkdtemp(dir));
        put_driver(dir, &platforms[i]);
        check_platform(dir, &platforms[i]);
        (void) dir_remove(dir, NULL);
    }
}

/* Its directories are links to its store, relative to its root, and so are the files in them. */
static void store_of_nixos(void **state) {
    static const struct platform nixos = {"NixOS", "/nix/store/0-nvidia-x11/lib",
                                          "/nix/store/0-nvidia-x11/bin", ""};
    static const char *const files[] = {"libcuda.so.1",
                                        "libcuda.so.535.261.03",
                                        "libnvidia-ml.so.1",
                                        "libnvidia-ml.so.535.261.03",
                                        "libnvidia-ptxjitcompiler.so.1",
                                        "libnvidia-ptxjitcompiler.so.535.261.03"};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", name[128], target[128];

    (void) state;
    assert_non_null(mkdtemp(dir));
    put_driver(dir, &nixos);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void) snprintf(name, sizeof(name), "/nix/store/1-graphics-drivers/lib/%s", files[i]);
        (void) snprintf(target, sizeof(target), "/nix/store/0-nvidia-x11/lib/%s", files[i]);
        link_to(dir, target, name);
    }
    link_to(dir, "/nix/store/1-graphics-drivers", "/run/opengl-driver");
    link_to(dir, "/nix/store/2-system-path", "/run/current-system/sw");
    link_to(dir, "/nix/store/0-nvidia-x11/bin/nvidia-smi",
            "/nix/store/2-system-path/bin/nvidia-smi");
    check_platform(dir, &nixos);
    (void) dir_remove(dir, NULL);
}

/* In a directory that only the linker's cache of the root names. */
static void by_the_cache_of_the_linker(void **state) {
    static const struct platform odd = {"odd", "/opt/odd", "/usr/bin", ""};
    static const struct ldcache_library libraries[] = {
        {"libcuda.so.1", "/opt/odd/libcuda.so.1"},
        {"libnvidia-ml.so.1", "/opt/odd/libnvidia-ml.so.1"}};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512], path[256];
    struct gpu_driver_places places = {.sim_dir = "/nonexistent"};
    size_t len;
    void *cache = ldcache_merge(NULL, 0, libraries, 2, &len);

    (void) state;
    assert_non_null(cache);
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    put_driver(dir, &odd);
    assert_null(gpu_driver_find(&places, found));
    touch(dir, "/etc/ld.so.cache");
    assert_null(gpu_driver_find(&places, found));
    (void) snprintf(path, sizeof(path), "%s/etc/ld.so.cache", dir);
    assert_int_equal(file_replace(path, cache, len, 0644, NULL), 0);
    check_platform(dir, &odd);
    free(cache);
    (void) dir_remove(dir, NULL);
}

static void nodes_in_a_given_place(void **state) {
    static const struct platform given = {"given", "/drv/usr/lib64", "/drv/usr/bin", "/nodes"};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512], path[64];
    struct gpu_driver_places places = {
        .driver_root = "/drv", .dev_root = "/nodes", .sim_dir = "/nonexistent"};
    const struct gpu_device card = {.minor = 3, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    static struct gpu_edits edits;
    const struct gpu_driver *driver;
    struct err err;

    (void) state;
    assert_non_null(mkdtemp(dir));
    places.host_root = dir;
    put_driver(dir, &given);
    driver = gpu_driver_find(&places, found);
    assert_non_null(driver);
    gpu_driver_path(driver, &places, &card, path);
    assert_string_equal(path, "/nodes/dev/nvidia3");
    assert_int_equal(
        gpu_driver_edits(driver, &places, cards, 1, DRIVER_CAPABILITIES_UNSAID, "", &edits, &err),
        0);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, "/nodes/dev/nvidia3", "/dev/nvidia3"));
    places.dev_root = "/";
    assert_null(gpu_driver_find(&places, found));
    (void) dir_remove(dir, NULL);
}

static bool has_link(int dir, const char *name) {
    return faccessat(dir, name, F_OK, 0) == 0;
}

/* A program goes on with the links while they are made again, and none leads to a library of the
 * driver that was there before. */
static void links_beside_a_program(void **state) {
    char root[] = "/tmp/aliquot-links-XXXXXX", to[64], nvml[64];
    struct err err = {0};
    int dir;

    (void) state;
    assert_non_null(mkdtemp(root));
    (void) snprintf(to, sizeof(to), "%s/links", root);
    (void) snprintf(nvml, sizeof(nvml), "%s/libnvidia-ml.so.1", root);
    touch(root, "/libcuda.so.1");
    touch(root, "/libcuda.so.535");
    touch(root, "/libc.so.6");
    assert_int_equal(gpu_driver_link_libraries(nvml, to, &err), 0);
    dir = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    assert_true(has_link(dir, "libcuda.so.1") && has_link(dir, "libcuda.so.535"));
    assert_false(has_link(dir, "libc.so.6"));
    assert_int_equal(unlinkat(dir, "../libcuda.so.535", 0), 0);
    assert_int_equal(gpu_driver_link_libraries(nvml, to, &err), 0);
    assert_true(has_link(dir, "libcuda.so.1"));
    assert_int_equal(faccessat(dir, "libcuda.so.535", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    (void) close(dir);
    assert_int_equal(dir_remove(root, &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_driver),
        cmocka_unit_test(another_driver_in_the_same_place),
        cmocka_unit_test(driver_behind_absolute_links),
        cmocka_unit_test(new_driver_library),
        cmocka_unit_test(simulated_driver),
        cmocka_unit_test(distributions),
        cmocka_unit_test(store_of_nixos),
        cmocka_unit_test(by_the_cache_of_the_linker),
        cmocka_unit_test(nodes_in_a_given_place),
        cmocka_unit_test(links_beside_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
