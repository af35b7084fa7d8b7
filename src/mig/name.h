/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of MIG devices, as nvidia-smi and NVIDIA's tools write them: "1g.10gb", "1g.10gb+me",
 * "1c.3g.40gb", "1g.24gb-me". Pure. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MIG_PROFILE_NAME_MAX 40 /* bytes of a name, with the NUL */
#define MIG_PROFILE_NUMBERS 18  /* NVML_GPU_INSTANCE_PROFILE_...: 0 to 17 */

struct mig_name {
    uint32_t compute;    /* slices of the compute instance; those of the GPU instance: all of it */
    uint32_t slices;     /* compute slices of the GPU instance */
    uint32_t gb;         /* memory of the GPU instance */
    char attributes[16]; /* "", "+me", "+me.all", "+gfx", "-me" */
};

/* Whether a text is a name by its syntax; no card needs to have such a profile. -EINVAL. */
int mig_name_parse(const char *text, struct mig_name *ret, struct err *err);

/* Writes into `out` and returns it. */
const char *mig_name_format(const struct mig_name *name, char out[static MIG_PROFILE_NAME_MAX]);

/* The profile of NVIDIA's extended resource of whole GPU instances: "nvidia.com/mig-1g.24gb.me.all"
 * is "1g.24gb+me.all", as the name of a resource has no plus sign. False: the name is another one.
 */
bool mig_name_of_resource(const char *resource, struct mig_name *ret);

bool mig_name_equal(const struct mig_name *a, const struct mig_name *b);

/* The attributes of one of NVML's GPU instance profiles: "+me" for a REV1 profile, and so on. */
const char *mig_name_attributes(uint32_t number);

/* The GB in the name of an instance of `mib` MiB on a card of `total` bytes: eighths of the card,
 * rounded up. 0 for a card without memory. */
uint32_t mig_name_gb(uint64_t mib, uint64_t total);
