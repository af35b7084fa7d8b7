/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of Dynamic Resource Allocation (resource.k8s.io/v1) that are ours. */

#include "model/gpu_model.h"

#define DRA_DRIVER "gpu.elasticgpu.io"                    /* and the class of shares */
#define DRA_FIRST_FIT_CLASS "first-fit.gpu.elasticgpu.io" /* allocated by kube-scheduler */

/* Capacities of a device. */
#define DRA_CORE "core"     /* percent of a card */
#define DRA_MEMORY "memory" /* bytes */

/* Attributes of a device. */
#define DRA_UUID "uuid"
#define DRA_MODEL "model"
#define DRA_INDEX "index"
#define DRA_NUMA "numa"
#define DRA_DRIVER_VERSION "driverVersion"
#define DRA_PROFILE "profile"        /* of a MIG instance, as the next one */
#define DRA_PARENT_UUID "parentUUID" /* of its card */
#define DRA_ALLOCATOR "allocator"    /* one of the next two: who alone allocates it */
#define DRA_BY_ALIQUOT "aliquot"
#define DRA_BY_KUBE_SCHEDULER "kube-scheduler"

/* Who allocates a card to ResourceClaims. Shares by resource names are aliquot-scheduler's, too. */
enum dra_allocator {
    DRA_NONE, /* it is in no claims */
    DRA_ALIQUOT,
    DRA_KUBE_SCHEDULER,
    DRA_ALLOCATORS,
};

/* "none" or a value of the attribute, and NULL behind the last. */
extern const char *const dra_allocator_names[DRA_ALLOCATORS + 1];
const char *dra_allocator_name(enum dra_allocator allocator);

/* The allocator of that name; -EINVAL: there is none. */
int dra_allocator_parse(const char *name, enum dra_allocator *ret);

/* The UUID of the card or MIG instance of a device, which has it as its name, in lower case. Behind
 * the UUID of a card such a name has the place of an instance that is made for the claim; then it
 * is the card's. */
void dra_device_uuid(const char *device, char ret[static GPU_UUID_MAX]);

/* The label of a DeviceClass, with the same values: who allocates the devices of its claims. */
#define DRA_CLASS_LABEL "gpu.elasticgpu.io/allocator"

/* The scheduling gate of a pod that aliquot-scheduler takes off when its claims are allocated. */
#define DRA_GATE "gpu.elasticgpu.io/placement"

/* A template that aliquot-scheduler made for pods that request shares by resource names: its label,
 * and what it gives its claims as an annotation, the name of the template (model/request_code.h).
 */
#define DRA_TEMPLATE_LABEL "gpu.elasticgpu.io/made-by"
#define DRA_TEMPLATE_MAKER "aliquot-scheduler"
#define DRA_REQUEST_ANNOTATION "gpu.elasticgpu.io/request"

/* Of Kubernetes: a claim with it is not deleted while it is allocated. */
#define DRA_FINALIZER "resource.kubernetes.io/delete-protection"
