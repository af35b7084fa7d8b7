/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which pods kubelet has given which devices: its checkpoint of the device manager, whatever plugin
 * offered them. A pod may hold an instance that no process uses yet. */

#include <stdbool.h>
#include <stddef.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "mig/card.h"

struct nvml;

#define HELD_DEVICES_FILE "device-plugins/kubelet_internal_checkpoint" /* below kubelet's */
#define POD_NAME_MAX 128

struct held_device {
    char uuid[80];
    char pod[POD_NAME_MAX]; /* "pod namespace/name", or "pod <uid>" where the name is not known */
};

struct held_devices {
    struct held_device *list;
    size_t n, room;
};

/* Reads DIR/device-plugins/kubelet_internal_checkpoint. Pods without a directory in DIR/pods have
 * ended, unless kubelet wrote the file seconds ago: it makes the directory after the entry. Names
 * are those of the pods' directories in `logs`. *ret is replaced, and freed with
 * held_devices_done(). -ENOENT: no such file; -EBADMSG, -EFBIG, -EIO, -ENOMEM. */
int held_devices_read(const char *dir, const char *logs, struct held_devices *ret, struct err *err);

/* The same of the checkpoint's text. `fresh`: kubelet wrote it seconds ago. -EBADMSG, -EFBIG,
 * -ENOMEM. */
int held_devices_parse(const char *text, size_t len, const char *dir, const char *logs, bool fresh,
                       struct held_devices *ret, struct err *err);

/* Adds a device that a pod holds; replicas of a device are UUID::N. -EFBIG, -ENOMEM. */
int held_devices_add(struct held_devices *held, const char *id, const char *pod, struct err *err);

/* The n-th pod that holds a device, or NULL. */
const char *held_devices_pod(const struct held_devices *held, const char *uuid, size_t n);

/* Marks as in use what of the card is held: itself, and its instances. */
void held_devices_mark(const struct held_devices *held, const struct nvml *n, nvmlDevice_t device,
                       struct mig_card *card);

void held_devices_done(struct held_devices *held);

#define _cleanup_held_devices_ _cleanup_(held_devices_done)
