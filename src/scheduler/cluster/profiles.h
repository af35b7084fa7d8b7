/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The scheduler names that a kube-scheduler serves: the profiles of its configuration file. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kube/api/names.h"

#define PROFILES_MAX 32

struct err;

struct profiles {
    uint32_t n; /* 0: not known */
    char names[PROFILES_MAX][KUBE_NAME_MAX];
};

/* Reads a KubeSchedulerConfiguration: at least one name, in the order of the file. A profile
 * without a name, and a file without profiles, have the name that Kubernetes gives them. */
int profiles_read(const char *path, struct profiles *ret, struct err *err);

/* The same of a text. */
int profiles_parse(const char *text, size_t len, struct profiles *ret, struct err *err);

bool profiles_have(const struct profiles *p, const char *name);
