/* SPDX-License-Identifier: Apache-2.0 */

/* Where a driver is found, and which of its files and device nodes a container gets. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/machine.h"
#include "gpu/device.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/driver_links.h"
#include "gpu/driver/extra_nodes.h"
#include "gpu/driver/ldcache.h"
#include "gpu/driver/proc_value.h"
#include "model/driver_capability.h"

static void touch(const char *dir, const char *name) {
    char path[256];
    char *slash;

    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(file_replace(path, "x", 1, 0644, NULL), 0);
}

static bool has_edit(const struct gpu_edits *e, enum gpu_edit_kind kind, const char *host,
                     const char *container) {
    for (size_t i = 0; i < e->count; i++)
        if (e->list[i].kind == kind && strcmp(e->list[i].host, host) == 0 &&
            strcmp(e->list[i].container, container) == 0)
            return true;
    return false;
}

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

static void put(const char *dir, const char *name, const char *text) {
    char path[256];

    touch(dir, name);
    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    assert_int_equal(file_replace(path, text, strlen(text), 0444, NULL), 0);
}

#define CAPABILITIES "/proc/driver/nvidia/capabilities/gpu5/mig/"
#define CAP "/dev/nvidia-caps/nvidia-cap"

/* A node of the real driver with two GPU instances on card 5; the first one is divided into two
 * compute instances. The driver reports the device numbers of GI 1 in mig-minors only. */
static const struct gpu_driver *make_divided(char *dir, struct gpu_driver_places *ret) {
    static const char *const files[] = {"/dev/nvidiactl",
                                        "/dev/nvidia5",
                                        CAP "30",
                                        CAP "31",
                                        CAP "33",
                                        CAP "39",
                                        CAP "40",
                                        CAP "41",
                                        "/usr/lib64/libnvidia-ml.so.1",
                                        "/usr/lib64/libcuda.so.1"};
    char found[512];

    assert_non_null(mkdtemp(dir));
    *ret =
        (struct gpu_driver_places){.host_root = dir, .driver_root = "", .sim_dir = "/nonexistent"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        touch(dir, files[i]);
    put(dir, CAPABILITIES "gi1/access", "DeviceFileMode: 256\n");
    put(dir, CAPABILITIES "gi1/ci0/access", "DeviceFileMode: 256\n");
    put(dir, CAPABILITIES "gi1/ci2/access", "DeviceFileMode: 256\n");
    put(dir, CAPABILITIES "gi2/access", "DeviceFileMinor: 39\nDeviceFileMode: 256\n");
    put(dir, CAPABILITIES "gi2/ci0/access", "DeviceFileMinor: 40\nDeviceFileMode: 256\n");
    put(dir, "/proc/driver/nvidia-caps/mig-minors",
        "config 1\nmonitor 2\ngpu5/gi1/access 30\ngpu5/gi1/ci0/access 31\n"
        "gpu5/gi1/ci1/access 32\ngpu5/gi1/ci2/access 33\ngpu5/gi11/access 41\n");
    return gpu_driver_find(ret, found);
}

static int edits_of(const struct gpu_driver *d, const struct gpu_driver_places *places,
                    const struct gpu_device *a, const struct gpu_device *b, struct gpu_edits *ret,
                    struct err *err) {
    const struct gpu_device *devices[] = {a, b};

    return gpu_driver_edits(d, places, devices, b ? 2 : 1, DRIVER_CAPABILITIES_UNSAID, "", ret,
                            err);
}

static size_t nodes_of(const struct gpu_edits *e) {
    size_t n = 0;

    for (size_t i = 0; i < e->count; i++)
        n += e->list[i].kind == GPU_EDIT_NODE;
    return n;
}

/* A container reaches the instances that it gets, and no other one of the card. */
static void nodes_of_instances(void **state) {
    const struct gpu_device
        first = {.kind = GPU_MIG_INSTANCE, .minor = 5, .mig = {.gi = 1}, .healthy = true},
        sister = {.kind = GPU_MIG_INSTANCE, .minor = 5, .mig = {.gi = 1, .ci = 2}, .healthy = true},
        other = {.kind = GPU_MIG_INSTANCE, .minor = 5, .mig = {.gi = 2}, .healthy = true};
    char dir[] = "/tmp/aliquot-driver-XXXXXX";
    static struct gpu_edits edits;
    struct gpu_driver_places places;
    const struct gpu_driver *driver = make_divided(dir, &places);
    struct err err;

    (void) state;
    assert_non_null(driver);
    assert_int_equal(edits_of(driver, &places, &other, NULL, &edits, &err), 0);
    assert_int_equal(nodes_of(&edits), 4);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, "/dev/nvidiactl", "/dev/nvidiactl"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, "/dev/nvidia5", "/dev/nvidia5"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CAP "39", CAP "39"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CAP "40", CAP "40"));
    assert_int_equal(edits_of(driver, &places, &first, &sister, &edits, &err), 0);
    assert_int_equal(nodes_of(&edits), 5);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CAP "30", CAP "30"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CAP "31", CAP "31"));
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CAP "33", CAP "33"));
    (void) dir_remove(dir, NULL);
}

/* The key is all before the blanks; a value has no end but that of its line. */
static void lines_of_the_kernel_module(void **state) {
    static const char text[] = "a1 1\nab 2\n a 3\na\n\na \t 4 b\na 5\nlast: \t 6";
    char value[8];

    (void) state;
    assert_true(proc_value(text, "a", value, sizeof(value)));
    assert_string_equal(value, "4 b");
    assert_true(proc_value(text, "last:", value, sizeof(value)));
    assert_string_equal(value, "6");
    assert_true(proc_value(text, "a", value, 3));
    assert_string_equal(value, "4 ");
    assert_false(proc_value(text, "las", value, sizeof(value)));
    assert_false(proc_value("", "a", value, sizeof(value)));
}

static const char information[] = "Model: \t\t NVIDIA A100\nIRQ:   \t\t 125\n"
                                  "GPU UUID: \t GPU-5\nBus Location: \t 0000:3b:00.0\n"
                                  "Device Minor: \t 5\nGPU Excluded:\t No\n";

/* A container gets no node of a card whose number is another one by now, and none of its instances.
 */
static void numbers_of_cards(void **state) {
    static const char path[] = "/proc/driver/nvidia/gpus/0000:3b:00.0/information";
    static const struct {
        const char *text; /* of the kernel module; NULL: no file */
        int expected;
        const char *error;
    } rows[] = {
        {information, 0, NULL},
        {"GPU UUID: \t GPU-????????\nDevice Minor: \t 5\n", 0, NULL},
        {NULL, 0, NULL},
        {"GPU UUID: \t GPU-5\nDevice Minor: \t 4\n", -ENODEV, "numbered its cards anew"},
        {"GPU UUID: \t GPU-4\nDevice Minor: \t 5\n", -ENODEV, "numbered its cards anew"},
        {"GPU UUID: \t GPU-5\nDevice Minor: \t none\n", -ENODEV, "cannot be read"},
        {"GPU UUID: \t GPU-5\n", -ENODEV, "cannot be read"},
    };
    struct gpu_device card = {.minor = 5, .uuid = "GPU-5", .healthy = true},
                      instance = {.kind = GPU_MIG_INSTANCE,
                                  .minor = 5,
                                  .uuid = "MIG-1",
                                  .parent = "GPU-5",
                                  .pci = "00000000:3B:00.0",
                                  .mig = {.gi = 1},
                                  .healthy = true};
    char dir[] = "/tmp/aliquot-driver-XXXXXX", file[256];
    static struct gpu_edits edits;
    struct gpu_driver_places places;
    const struct gpu_driver *driver = make_divided(dir, &places);
    struct err err;

    (void) state;
    assert_int_equal(edits_of(driver, &places, &card, NULL, &edits, &err), 0); /* no address */
    (void) snprintf(card.pci, sizeof(card.pci), "%s", instance.pci);
    (void) snprintf(file, sizeof(file), "%s%s", dir, path);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_device *const devices[] = {&card, &instance};

        (void) unlink(file);
        if (rows[i].text)
            put(dir, path, rows[i].text);
        for (size_t k = 0; k < 2; k++) {
            if (edits_of(driver, &places, devices[k], NULL, &edits, &err) != rows[i].expected ||
                (rows[i].error && !strstr(err.text, rows[i].error)))
                fail_msg("row %zu: %s", i, rows[i].error ? err.text : "refused");
            assert_int_equal(edits.count > 0, rows[i].expected == 0);
        }
    }
    /* Another error than that there is no file. */
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0755), 0);
    assert_int_equal(edits_of(driver, &places, &card, NULL, &edits, &err), -ENODEV);
    assert_non_null(strstr(err.text, "cannot be read: Is a directory"));
    (void) dir_remove(dir, NULL);
}

/* The file of a card that may hang is not opened: here a FIFO, whose reader waits for a writer. */
static void a_card_without_an_answer_is_not_asked(void **state) {
    static const struct gpu_device rows[] = {
        {.healthy = false},
        {.healthy = true, .saved = true},
        {.healthy = true, .late = true},
        {.healthy = true, .stale = true},
        {.healthy = true, .released = true},
    };
    char dir[] = "/tmp/aliquot-driver-XXXXXX", file[256];
    static struct gpu_edits edits;
    struct gpu_driver_places places;
    const struct gpu_driver *driver = make_divided(dir, &places);
    struct err err;

    (void) state;
    touch(dir, "/proc/driver/nvidia/gpus/0000:3b:00.0/information");
    (void) snprintf(file, sizeof(file), "%s/proc/driver/nvidia/gpus/0000:3b:00.0/information", dir);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0644), 0);
    (void) alarm(10);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_device card = rows[i];

        card.minor = 5;
        (void) snprintf(card.pci, sizeof(card.pci), "00000000:3B:00.0");
        assert_int_equal(edits_of(driver, &places, &card, NULL, &edits, &err), -ENODEV);
        assert_non_null(strstr(err.text, "is not known: the last poll has no answer"));
        assert_int_equal(edits.count, 0);
    }
    (void) alarm(0);
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

/* Device 0:0, which needs no privilege. */
static void put_node(const char *dir, const char *name) {
    char path[256];

    touch(dir, name); /* its directories */
    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(0, 0)), 0);
}

#define DRIVER "/run/nvidia/driver"
#define CHANNEL "/dev/nvidia-caps-imex-channels/channel0"

/* Nodes are in the place of the driver's, else in the host's /dev, and the other files are the
 * host's. */
static const struct gpu_driver *make_extras(char *dir, struct gpu_driver_places *ret) {
    static const char *const files[] = {
        DRIVER "/dev/nvidiactl", "/usr/lib64/libnvidia-ml.so.1", DRIVER "/run/udev/data",
        "/run/udev/control",     DRIVER "/etc/cufile.json",      "/etc/cufile.json",
        "/dev/nvidia-fs2",       DRIVER "/dev/gdrdrv",           "/dev/infiniband/uverbs2"};
    static const char *const nodes[] = {DRIVER "/dev/nvidia-fs1",  "/dev/nvidia-fs0",
                                        DRIVER "/dev/nvidia-fs0",  "/dev/gdrdrv",
                                        "/dev/infiniband/uverbs1", "/dev/infiniband/uverbs0",
                                        "/dev/infiniband/rdma_cm", "/dev/infiniband/umad0"};
    char found[512], link[256];

    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        touch(dir, files[i]);
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        put_node(dir, nodes[i]);
    (void) snprintf(link, sizeof(link), "%s/dev/infiniband/uverbs3", dir);
    assert_int_equal(symlink("uverbs0", link), 0);
    *ret = (struct gpu_driver_places){
        .host_root = dir, .driver_root = "", .dev_root = DRIVER, .sim_dir = "/nonexistent"};
    return gpu_driver_find(ret, found);
}

static void extra_nodes(void **state) {
    static const struct {
        unsigned int extras;
        const char *nodes; /* in their order */
    } rows[] = {
        {0, ""},
        {GPU_EXTRA_GDS, "/run/nvidia/driver/dev/nvidia-fs0=/dev/nvidia-fs0 "
                        "/run/nvidia/driver/dev/nvidia-fs1=/dev/nvidia-fs1 "
                        "/run/udev=/run/udev /etc/cufile.json=/etc/cufile.json "},
        {GPU_EXTRA_MOFED | GPU_EXTRA_GDRCOPY,
         "/dev/infiniband/uverbs0=/dev/infiniband/uverbs0 "
         "/dev/infiniband/uverbs1=/dev/infiniband/uverbs1 "
         "/dev/infiniband/rdma_cm=/dev/infiniband/rdma_cm /dev/gdrdrv=/dev/gdrdrv "},
        {GPU_EXTRA_IMEX, ""},
    };
    const unsigned int required = GPU_EXTRA_IMEX | GPU_EXTRA_IMEX_REQUIRED;
    char dir[] = "/tmp/aliquot-driver-XXXXXX";
    static struct gpu_edits edits;
    struct gpu_driver_places places;
    const struct gpu_driver *driver = make_extras(dir, &places);
    struct err err;

    (void) state;
    assert_non_null(driver);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf found = BUF_INIT(4096);

        edits.count = 0;
        assert_int_equal(gpu_extra_nodes(driver, &places, rows[i].extras, &edits, &err), 0);
        for (size_t k = 0; k < edits.count; k++)
            buf_printf(&found, "%s=%s ", edits.list[k].host, edits.list[k].container);
        assert_string_equal(buf_str(&found), rows[i].nodes);
    }
    assert_int_equal(gpu_extra_nodes(driver, &places, required, &edits, &err), -ENXIO);
    assert_non_null(strstr(err.text, "imex.required"));
    put_node(dir, CHANNEL);
    put_node(dir, "/dev/nvidia-caps-imex-channels/channel1");
    edits.count = 0;
    assert_int_equal(gpu_extra_nodes(driver, &places, required, &edits, &err), 0);
    assert_int_equal(edits.count, 1);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, CHANNEL, CHANNEL));
    /* Without a node of GPUDirect Storage its files are of no use. */
    places.host_root = "/nonexistent";
    edits.count = 0;
    assert_int_equal(gpu_extra_nodes(driver, &places, GPU_EXTRA_GDS, &edits, &err), 0);
    assert_int_equal(edits.count, 0);
    (void) dir_remove(dir, NULL);
}

/* Its directory is at the same path on the host and here. */
static void extra_nodes_beside_the_simulated_driver(void **state) {
    char dir[] = "/tmp/aliquot-driver-XXXXXX", found[512], host[128];
    static struct gpu_edits edits;
    struct gpu_driver_places places = {.host_root = "/nonexistent", .sim_dir = dir};
    const struct gpu_driver *driver;
    struct err err;

    (void) state;
    assert_non_null(mkdtemp(dir));
    touch(dir, "/nvidiactl");
    touch(dir, "/lib/libnvidia-ml.so.1");
    put_node(dir, "/dev/gdrdrv");
    driver = gpu_driver_find(&places, found);
    assert_non_null(driver);
    edits.count = 0;
    assert_int_equal(gpu_extra_nodes(driver, &places, GPU_EXTRA_GDRCOPY, &edits, &err), 0);
    (void) snprintf(host, sizeof(host), "%s/dev/gdrdrv", dir);
    assert_int_equal(edits.count, 1);
    assert_true(has_edit(&edits, GPU_EDIT_NODE, host, "/dev/gdrdrv"));
    (void) dir_remove(dir, NULL);
}

/* Without a node, a number or the instance there are no edits, and the error has the path. */
static void nodes_that_are_missing(void **state) {
    static const struct {
        struct gpu_mig mig;
        int error;
        const char *text;
    } rows[] = {{{.gi = 3}, -ENODEV, CAPABILITIES "gi3/access"},
                {{.gi = 2, .ci = 1}, -ENODEV, CAPABILITIES "gi2/ci1/access"},
                {{.gi = 4}, -EBADMSG, CAPABILITIES "gi4/access"},
                {{.gi = 6}, -ENOENT, CAP "60 is not on this node"}};
    char dir[] = "/tmp/aliquot-driver-XXXXXX";
    static struct gpu_edits edits;
    struct gpu_driver_places places;
    const struct gpu_driver *driver = make_divided(dir, &places);
    struct err err;

    (void) state;
    put(dir, CAPABILITIES "gi4/access", "DeviceFileMinor: many\n");
    put(dir, CAPABILITIES "gi6/access", "DeviceFileMinor: 60\n");
    put(dir, CAPABILITIES "gi6/ci0/access", "DeviceFileMinor: 61\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_device d = {
            .kind = GPU_MIG_INSTANCE, .minor = 5, .mig = rows[i].mig, .healthy = true};

        assert_int_equal(edits_of(driver, &places, &d, NULL, &edits, &err), rows[i].error);
        assert_non_null(strstr(err.text, rows[i].text));
        assert_int_equal(edits.count, 0);
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
        cmocka_unit_test(nodes_of_instances),
        cmocka_unit_test(lines_of_the_kernel_module),
        cmocka_unit_test(numbers_of_cards),
        cmocka_unit_test(a_card_without_an_answer_is_not_asked),
        cmocka_unit_test(extra_nodes),
        cmocka_unit_test(extra_nodes_beside_the_simulated_driver),
        cmocka_unit_test(another_driver_in_the_same_place),
        cmocka_unit_test(nodes_that_are_missing),
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
