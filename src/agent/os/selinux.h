/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct err;

/* The directory of SELinux's interface: the kernel makes it where SELinux is on. It is in every
 * sysfs, also where nothing is mounted on it. */
#define SELINUX_INTERFACE "/sys/fs/selinux"

/* Gives the file or directory at `path` the type that containers may use, where the directory
 * `interface` is there; does nothing where it is not, where it is NULL, and where the policy has no
 * such type. What is made in a directory inherits its type. Negative errno: containers could not
 * use the file. Any thread. */
int selinux_label(const char *path, const char *interface, struct err *err);
