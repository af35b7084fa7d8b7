/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MIG profiles by NVIDIA's tables: pure figures and arithmetic. A card has up to 8 memory slices;
 * an instance takes a run of them that begins at one of the profile's placements. */

#include <stddef.h>
#include <stdint.h>

#include "sim/model.h"

#define MIG_INSTANCES_MAX 7u
#define MIG_MODEL_PROFILES_MAX 8u

struct mig_profile {
    const char *name;      /* "1g.10gb" */
    uint8_t nvml;          /* NVML_GPU_INSTANCE_PROFILE_... */
    uint8_t id;            /* in nvidia-smi and instance infos */
    uint8_t slices;        /* of compute */
    uint8_t memory_slices; /* of an instance */
    uint8_t starts;        /* bit per memory slice at which it may begin */
    uint8_t most;          /* instances on an empty card */
    uint8_t sms;
    uint8_t copy, decode, encode, jpeg, ofa; /* engines */
    uint32_t memory_mib;
};

/* The profiles of a model; NULL where the card cannot be divided. */
const struct mig_profile *mig_profiles(const struct sim_model *model, size_t *ret_count);

/* By name, `len` bytes; NULL when the model has no such profile. */
const struct mig_profile *mig_find(const struct sim_model *model, const char *name, size_t len);

/* The first slice of a new instance when `taken` memory slices (bits) are in use: the placement
 * that leaves most choice for further ones, or -ENOSPC. */
int mig_place(const struct sim_model *model, const struct mig_profile *profile, uint8_t taken);

/* The same tables by NVML's name of the card; libc only, for the simulated library. */
const struct mig_profile *mig_profiles_by_name(const char *name, size_t *ret_count);
uint32_t mig_room_among(const struct mig_profile *rows, size_t n, const struct mig_profile *profile,
                        uint8_t taken);

/* The number of further instances of a profile that can be created, one by one. */
uint32_t mig_room(const struct sim_model *model, const struct mig_profile *profile, uint8_t taken);

/* The slices of an instance that begins at `start`. */
uint8_t mig_bits(const struct mig_profile *profile, int start);
