/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/host_view.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/machine.h"
#include "sim/daemon/host_file.h"
#include "sim/daemon/pci.h"

#define PCI "sys/bus/pci"
#define DRIVER "proc/driver/nvidia"
#define MODULES "proc/modules"

static int put_text(const char *dir, const char *device, const char *name, const char *text,
                    struct err *err) {
    char path[128];
    _cleanup_buf_ struct buf content = BUF_INIT(4096);
    (void) snprintf(path, sizeof(path), PCI "/devices/%s/%s", device, name);
    buf_printf(&content, "%s\n", text);
    return host_file_put(dir, path, &content, err);
}

static int put_number(const char *dir, const char *device, const char *name, uint32_t value,
                      int digits, struct err *err) {
    char text[16];
    (void) snprintf(text, sizeof(text), "0x%0*x", digits, value);
    return put_text(dir, device, name, text, err);
}

static int put_files(const char *dir, const char *device, const struct sim_host *host,
                     const struct sim_page *p, struct err *err) {
    char path[128], numa[16];
    uint8_t config[PCI_CONFIG_BYTES];
    _cleanup_buf_ struct buf space = BUF_INIT(4096), resources = BUF_INIT(4096);
    pci_config(host, p, config);
    buf_append(&space, config, sizeof(config));
    pci_resources(p, &resources);
    (void) snprintf(path, sizeof(path), PCI "/devices/%s/config", device);
    int r = host_file_put(dir, path, &space, err);
    (void) snprintf(path, sizeof(path), PCI "/devices/%s/resource", device);
    if (r == 0)
        r = host_file_put(dir, path, &resources, err);
    (void) snprintf(numa, sizeof(numa), "%u", p->numa);
    return r < 0 ? r : put_text(dir, device, "numa_node", numa, err);
}

/* `driver` is a link, as in sysfs: its last name is what programs read. */
static int put_driver(const char *dir, const char *device, struct err *err) {
    char path[PATH_MAX];
    (void) snprintf(path, sizeof(path), "%s/" PCI "/drivers/nvidia", dir);
    int r = dir_make(path, 0755, err);
    (void) snprintf(path, sizeof(path), "%s/" PCI "/devices/%s/driver", dir, device);
    if (r == 0 && symlink("../../drivers/nvidia", path) < 0)
        r = err_errno(err, errno, "cannot create %s", path);
    return r;
}

static int put_device(const char *dir, const struct sim_host *host, const struct sim_page *p,
                      struct err *err) {
    char device[PCI_ADDRESS_CHARS];
    pci_address(p, device);
    const struct {
        const char *name;
        uint32_t value;
        int digits;
    } numbers[] = {{"vendor", p->pci_id & 0xffff, 4},
                   {"device", p->pci_id >> 16, 4},
                   {"subsystem_vendor", p->pci_subsystem & 0xffff, 4},
                   {"subsystem_device", p->pci_subsystem >> 16, 4},
                   {"class", pci_class(p), 6},
                   {"revision", 0xa1, 2}};
    int r = put_files(dir, device, host, p, err);
    for (size_t i = 0; r == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        r = put_number(dir, device, numbers[i].name, numbers[i].value, numbers[i].digits, err);
    return r < 0 ? r : put_driver(dir, device, err);
}

static int put_information(const char *dir, const struct sim_page *p, const char *driver,
                           struct err *err) {
    char path[128], device[PCI_ADDRESS_CHARS];
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    pci_address(p, device);
    (void) snprintf(path, sizeof(path), DRIVER "/gpus/%s/information", device);
    buf_printf(&text,
               "Model: \t\t %s\nIRQ:   \t\t %u\nGPU UUID: \t %s\nVideo BIOS: \t %s\n"
               "Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
               "Bus Location: \t %s\nDevice Minor: \t %u\nGPU Firmware: \t %s\n"
               "GPU Excluded:\t No\n",
               p->name, 120 + p->minor, p->uuid, p->vbios, device, atomic_load(&p->number), driver);
    return host_file_put(dir, path, &text, err);
}

static int put_driver_files(const char *dir, const struct sim_machine *m, struct err *err) {
    _cleanup_buf_ struct buf modules = BUF_INIT(4096), version = BUF_INIT(4096);
    buf_puts(&modules, "nvidia_uvm 2072576 0 - Live 0x0000000000000000\n"
                       "nvidia 56823808 1 nvidia_uvm, Live 0x0000000000000000\n");
    buf_printf(&version, "NVRM version: NVIDIA UNIX " MACHINE " Kernel Module  %s\n",
               m->host->driver);
    int r = host_file_put(dir, MODULES, &modules, err);
    if (r == 0)
        r = host_file_put(dir, DRIVER "/version", &version, err);
    for (uint32_t i = 0; r == 0 && i < m->ngpus; i++)
        r = put_information(dir, m->gpu[i].page, m->host->driver, err);
    return r;
}

int host_view_renumber(const char *dir, const struct sim_machine *m, uint32_t minor,
                       struct err *err) {
    return put_information(dir, m->gpu[minor].page, m->host->driver, err);
}

void host_view_remove(const char *dir) {
    static const char *const names[] = {PCI, DRIVER "/gpus", DRIVER "/version", MODULES};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX];
        (void) snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        if (unlink(path) < 0)
            (void) dir_remove(path, NULL);
    }
}

int host_view_write(const char *dir, const struct sim_machine *m, struct err *err) {
    host_view_remove(dir);
    int r = put_driver_files(dir, m, err);
    for (uint32_t i = 0; r == 0 && i < m->ngpus; i++)
        r = put_device(dir, m->host, m->gpu[i].page, err);
    return r;
}
