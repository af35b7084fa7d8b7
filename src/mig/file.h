/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mig-parted's configuration file, version v1: named configurations, and what each of them wants of
 * which cards. Text in, values out. */

#include <stddef.h>

#include "base/cleanup.h"
#include "mig/want.h"

#define MIG_FILE_SPECS_MAX 1024 /* of all configurations of a file */
#define MIG_FILTERS_MAX 32
#define MIG_INDEXES_MAX 64
#define MIG_CONFIG_NAME_MAX 128

/* PCI ids as NVML has them: the device in the upper half, the vendor in the lower. */
struct mig_pci {
    uint32_t device;
    uint32_t subsystem;
};

struct mig_filter {
    struct mig_pci pci;
    bool has_subsystem; /* otherwise any */
};

/* What a configuration wants of some cards. */
struct mig_spec {
    char config[MIG_CONFIG_NAME_MAX]; /* the configuration that it belongs to */
    uint32_t nfilters;                /* 0: cards of every kind */
    struct mig_filter filters[MIG_FILTERS_MAX];
    bool all; /* otherwise the cards with the indexes */
    uint32_t nindexes;
    uint32_t indexes[MIG_INDEXES_MAX];
    bool enabled;
    uint32_t ndevices;
    struct mig_devices devices[MIG_DEVICES_MAX];
};

/* The specs of one configuration are beside each other, in their order. */
struct mig_file {
    struct mig_spec *specs;
    size_t nspecs, room;
};

/* -EBADMSG, -EINVAL: the text has line, column and cause. Refused are unknown keys, a version other
 * than v1, an empty mig-configs or configuration, a missing devices or mig-enabled, mig-devices
 * that are missing in MIG mode, all 0, or given without MIG mode; and filters that are no ids. */
int mig_file_parse(const char *text, size_t len, struct mig_file *ret, struct err *err);

/* Appends a spec, for files that are made. -ENOMEM, -EFBIG. */
int mig_file_add(struct mig_file *file, const struct mig_spec *spec, struct err *err);

void mig_file_done(struct mig_file *file);

#define _cleanup_mig_file_ _cleanup_(mig_file_done)

/* The first spec of the configuration with that name; without a name ("") of the only one. NULL:
 * `err` says which there are. */
const struct mig_spec *mig_file_select(const struct mig_file *file, const char *name,
                                       struct err *err);

/* The last spec of a configuration that is for the card; NULL: none is. `first` is what
 * mig_file_select() gave. */
const struct mig_spec *mig_file_match(const struct mig_file *file, const struct mig_spec *first,
                                      uint32_t index, struct mig_pci pci);

/* The file as text, as mig-parted prints it. */
struct buf;
void mig_file_write_yaml(const struct mig_file *file, struct buf *out);
void mig_file_write_json(const struct mig_file *file, struct buf *out);
