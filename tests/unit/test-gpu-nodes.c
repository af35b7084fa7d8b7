/* SPDX-License-Identifier: Apache-2.0 */

/* Which device nodes a container gets: of its cards and instances, and beside the driver. */

#include <errno.h>
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
#include "driver-files.h"
#include "gpu/device.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/extra_nodes.h"
#include "gpu/driver/proc_value.h"

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
        assert_non_null(strstr(err.text, "is not known: the card does not answer"));
        assert_int_equal(edits.count, 0);
    }
    (void) alarm(0);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_instances),
        cmocka_unit_test(lines_of_the_kernel_module),
        cmocka_unit_test(numbers_of_cards),
        cmocka_unit_test(a_card_without_an_answer_is_not_asked),
        cmocka_unit_test(extra_nodes),
        cmocka_unit_test(extra_nodes_beside_the_simulated_driver),
        cmocka_unit_test(nodes_that_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
