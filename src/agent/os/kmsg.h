/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XIDs in the kernel's log. NVML reports only those that the driver calls critical; the log has all
 * of them, and those of the time in which no NVML child ran. One thread, on a libuv loop. */

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct err;
struct kmsg;

#define KMSG_WHOLE_CARD UINT32_MAX

struct kmsg_xid {
    uint64_t sequence; /* of the record, from the boot on */
    uint32_t domain, bus, device;
    uint32_t gi, ci; /* NVML's ids of the MIG instance, or KMSG_WHOLE_CARD */
    uint32_t xid;
};

/* Reads one record of /dev/kmsg. 1: it is an XID; 0: something else; -EINVAL: no record of the
 * kernel's log. Records that a process has written are something else, whatever they say. */
int kmsg_parse(const char *record, size_t len, struct kmsg_xid *ret);

/* Whether the PCI address of NVML ("00000000:3B:00.0") is that of the XID. */
int kmsg_is_of(const struct kmsg_xid *x, const char *pci);

/* Reports the XIDs of the log at `path` whose records come after `after` (0: only new ones). Later
 * records that the kernel has overwritten are lost. At most some hundred records are read in one
 * turn of the loop. -ENOENT, -EACCES ...: the log cannot be read here. */
int kmsg_start(uv_loop_t *loop, const char *path, uint64_t after,
               void (*on_xid)(const struct kmsg_xid *x, void *userdata), void *userdata,
               struct kmsg **ret, struct err *err);

/* Sequence number of the last record that is in the log at `path`; 0: there is none, or the log
 * cannot be read. */
uint64_t kmsg_last(const char *path);

/* Sequence number of the last record that was read; 0: none. For tests. */
uint64_t kmsg_sequence(const struct kmsg *k);

/* Frees it, then calls on_closed (may be NULL). The loop must run. */
void kmsg_close(struct kmsg *k, void (*on_closed)(void *userdata), void *userdata);
