/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The configuration of a node: version 1 of the file of NVIDIA's device plugin, and beside it the
 * section `aliquot`. Or the entry of the node in the list of gpu-manager (`nodeConfig`) or of HAMi
 * (`nodeconfig`). Pure: text in, values out. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/verdicts/health.h"
#include "base/buf.h"
#include "model/mig_strategy.h"

struct err;
struct yaml;
struct yaml_doc;

#define CONFIG_NAME_MAX 64  /* of a resource, with its end: at most 63 characters */
#define CONFIG_ROWS_MAX 64  /* of a list */
#define CONFIG_WORDS_MAX 32 /* of the reset command */
#define CONFIG_NOTES_MAX 8192
#define CONFIG_GPU "nvidia.com/gpu" /* the resource of whole cards in NVIDIA's file */

enum config_sharing { CONFIG_SHARING_NONE, CONFIG_TIME_SLICING, CONFIG_MPS };
enum config_allocation { CONFIG_DISTRIBUTED, CONFIG_PACKED, CONFIG_ALIGNED };

/* What a card is given out as. */
enum config_mode {
    CONFIG_MODE_SHARE, /* parts by percent and byte */
    CONFIG_MODE_WHOLE,
    CONFIG_MODE_MPS,
    CONFIG_MODE_MIG,
};

/* Cards or instances whose product name has the pattern in it, in which * is any text. */
struct config_pattern {
    const char *pattern;
    char name[CONFIG_NAME_MAX]; /* of their resource, with its domain */
};

/* Devices are NULL for all, a number for that many, or a list of indexes ("0", "0:1") and UUIDs. */
struct config_replicas {
    char name[CONFIG_NAME_MAX];   /* the resource that is replicated */
    char rename[CONFIG_NAME_MAX]; /* what the replicas are offered as */
    const struct yaml *devices;
    uint32_t replicas; /* of each device, 2 or more */
};

struct config_cards {
    const struct yaml *devices;
    int mode;                /* enum config_mode; -1: not given */
    int allocator;           /* enum dra_allocator; -1: not given */
    uint32_t memory_scaling; /* thousandths; 0: not given */
    bool dynamic;            /* cards in shares are put under MPS for claims */
};

/* Texts borrow from `doc`. */
struct node_config {
    struct yaml_doc *doc;
    struct buf notes; /* a line for each key that is understood and has no effect here */

    /* flags */
    int mig_strategy;        /* enum mig_strategy */
    const char *driver_root; /* NULL: not given */
    const char *dev_root;
    bool gds, mofed, gdrcopy; /* containers get the device nodes */

    /* imex */
    bool imex, imex_required; /* likewise those of channel 0, and none starts without */

    /* resources */
    struct config_pattern gpus[CONFIG_ROWS_MAX], migs[CONFIG_ROWS_MAX];
    size_t ngpus, nmigs;

    /* sharing */
    enum config_sharing sharing;
    bool rename_by_default;
    bool fail_requests_greater_than_one;
    struct config_replicas replicas[CONFIG_ROWS_MAX];
    size_t nreplicas;

    /* aliquot */
    struct health_options health; /* its reset_command is `reset_command`, or NULL */
    const char *reset_command[CONFIG_WORDS_MAX + 1];
    int allocation_policy; /* enum config_allocation */
    struct config_cards cards[CONFIG_ROWS_MAX];
    size_t ncards;
    const char *mig_config; /* NULL: not given */
    bool mig_dynamic;

    /* of the node's entry in another project's list */
    uint32_t memory_scaling; /* thousandths; 0: not given */
    int mode;                /* of all cards; -1: not given */

    const char *mps_cards; /* of the overrides */
};

/* Reads `text`; `node` is the name of this node. -EINVAL or -EBADMSG: the error names line, column,
 * key, value and what was meant; -EFBIG, -ENOMEM. */
int node_config_parse(const char *text, size_t len, const char *node, struct node_config **ret,
                      struct err *err);

/* The resource that the first of the n patterns in `text`, a product name or a profile, has; NULL:
 * none is in it. */
const char *node_config_name(const struct config_pattern *patterns, size_t n, const char *text);

/* The configuration of a node without a file: NVIDIA's defaults, and ours. NULL without memory. */
struct node_config *node_config_new(void);

struct node_config *node_config_free(struct node_config *c); /* takes NULL, returns NULL */

static inline void node_config_freep(struct node_config **c) {
    (void) node_config_free(*c);
}

/* Variables that only the configuration of the node knows, by their numbers. */
#define CONFIG_VARIABLES 30
const char *config_variable_name(size_t i);

/* What takes precedence over the file: options of the agent and variables of its environment, by
 * NVIDIA's names. Each may be NULL: not given. */
struct config_overrides {
    const char *mig_strategy;
    const char *allocation_policy;
    const char *disable_health_checks;       /* DP_DISABLE_HEALTHCHECKS */
    const char *enable_health_checks;        /* DP_ENABLE_HEALTHCHECKS */
    const char *mps_cards;                   /* "all", or indexes and UUIDs with commas between */
    const char *variables[CONFIG_VARIABLES]; /* those of config_variable_name() */
    bool gpu_is_elsewhere; /* nvidia.com/gpu is among the names of --served-elsewhere */
};

/* -EINVAL: a value is none of its words, or does not go with another one. */
int node_config_override(struct node_config *c, const struct config_overrides *over,
                         struct err *err);
