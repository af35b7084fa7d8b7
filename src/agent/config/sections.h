/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sections of the file, as tables of their keys; offsets are those of struct node_config. */

#include "agent/config/node_config.h"
#include "wire/yaml.h"

/* Readers for the tables; the target of the first two is the whole struct (offset 0). */

/* A section inside a section: `arg` is its table. */
int config_section(const struct yaml *v, void *target, const void *arg, struct err *err);
/* Why NVIDIA's root of the MPS daemons has no effect: the agent mounts and removes what is in their
 * directories. */
#define CONFIG_MPS_ROOT                                                                            \
    "the directories of MPS daemons are the agent's own, in mps of its --state-dir (default "      \
    "/run/aliquot)"

/* A key without an effect here: `arg` is the reason, which becomes a note. */
int config_unserved(const struct yaml *v, void *target, const void *arg, struct err *err);
/* The reason of such a key of section `flags`, of `plugin` or of `gfd`. */
const char *config_unserved_reason(const char *key);
/* uint32_t * in milliseconds; `arg` may be a struct yaml_range of them. */
int config_milliseconds(const struct yaml *v, void *target, const void *arg, struct err *err);
/* uint32_t * in thousandths. */
int config_scaling(const struct yaml *v, void *target, const void *arg, struct err *err);
/* const struct yaml **: `all`, a count, or a list of indexes and UUIDs. */
int config_devices(const struct yaml *v, void *target, const void *arg, struct err *err);
/* char [CONFIG_NAME_MAX]: a resource; without NVIDIA's domain it gets it. */
int config_resource_name(const struct yaml *v, void *target, const void *arg, struct err *err);

/* const char **: an absolute path. */
int config_path(const struct yaml *v, void *target, const void *arg, struct err *err);

extern const char *const config_mig_strategies[];
extern const char *const config_allocations[];
extern const char *const config_modes[];

extern const struct yaml_field config_flags[];     /* flags.c */
extern const struct yaml_field config_resources[]; /* resources.c */
extern const struct yaml_field config_sharing[];   /* resources.c */
extern const struct yaml_field config_imex[];      /* flags.c */
extern const struct yaml_field config_aliquot[];   /* aliquot.c */

/* Variables of the environment; values as in struct config_overrides. -EINVAL. */
int config_variables_apply(struct node_config *c, const char *const *values, struct err *err);

/* The whole struct: an entry of nodeConfig, and of HAMi's nodeconfig. */
extern const struct yaml_field config_gpu_manager[]; /* foreign.c */
extern const struct yaml_field config_hami[];
