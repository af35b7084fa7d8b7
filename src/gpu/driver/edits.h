/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is added to a container so that it can use a card: device nodes, mounts, variables, hooks;
 * before it is written as CDI edits. */

#include <stddef.h>

enum gpu_edit_kind {
    GPU_EDIT_NODE,  /* a device node, the same path in the container, unless host says other */
    GPU_EDIT_MOUNT, /* a bind mount of a file or socket, read-only */
    GPU_EDIT_MOUNT_RW,
    GPU_EDIT_ENV,  /* container: "NAME=value" */
    GPU_EDIT_HOOK, /* host: a program of the host to run before the container's first instruction;
                    * container: its arguments, a line each, before the name of the share */
    GPU_EDIT_HOOK_INSIDE, /* the same in the container's namespaces, without the name */
};

struct gpu_edit {
    enum gpu_edit_kind kind;
    char host[256]; /* in the host's view */
    char container[256];
};

#define GPU_EDITS_MAX 512

struct gpu_edits {
    size_t count;
    struct gpu_edit list[GPU_EDITS_MAX];
};

/* Adds one edit, which must fit; -ENOSPC or -ENAMETOOLONG. */
int gpu_edits_add(struct gpu_edits *edits, enum gpu_edit_kind kind, const char *host,
                  const char *container);
