/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A container runtime that does not know CDI, or has it off, drops CDI names without an error: the
 * container would start without its share and without its limits. The guard makes the runtime
 * refuse it. Beside the CDI name the device plugin returns a mount of a file in a directory of
 * sysfs, where no mount point can be made. The CDI edits cover that directory by one that has the
 * mount point. Without them the mount fails, and the runtime's error names the file, whose name is
 * the reason.
 *
 * Runtimes differ in which of two mounts on one path takes effect, those of CDI or the others, and
 * in their order. All make a mount of CDI before a deeper one.
 *
 * kubelet keeps the mount for as long as the pod lives, and agents before the guard write edits
 * that lack the directory. It is therefore a CDI device of its own, too, which the device plugin
 * returns beside the share's, and whose file stays. */

#include <stdbool.h>

struct err;
struct gpu_edits;

#define CDI_GUARD_NAME "CDI-is-off-in-the-container-runtime"
/* Every Linux has it; what it shows are the classes of /dev/mem, /dev/null and /dev/zero. */
#define CDI_GUARD_DIRECTORY "/sys/class/mem"
#define CDI_GUARD_BELOW CDI_GUARD_DIRECTORY "/aliquot"

/* In the host's view, which is also the agent's. "": no guard. */
struct cdi_guard {
    char dir[288];  /* for CDI_GUARD_DIRECTORY */
    char file[352]; /* for CDI_GUARD_BELOW */
};

/* Makes <state>/guard and its files, and the CDI file of its device. */
int cdi_guard_install(const char *state_dir, const char *cdi_dir, struct cdi_guard *ret,
                      struct err *err);

/* Writes the CDI file again if it is gone. */
int cdi_guard_keep(const struct cdi_guard *guard, const char *cdi_dir, struct err *err);

/* Adds the directory to the edits of a container. -ENOSPC. */
int cdi_guard_edits(const struct cdi_guard *guard, struct gpu_edits *edits);

/* Whether an error of the runtime, as kubelet reports it of a container, is the guard's. */
bool cdi_guard_refused(const char *message);
