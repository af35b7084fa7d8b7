/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the configuration of the node says of one device: what it is given out as, and as which
 * resource of kubelet. Pure. `s` has all devices of the node, `d` is one of them. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/config/node_config.h"
#include "model/dra.h"

struct card_replicas;
struct gpu_device;
struct gpu_snapshot;

/* What the device is given out as. In this order: --mps-cards; the first entry of aliquot.cards
 * that names the device and has a mode; operatingmode of HAMi; replicas of section `sharing`; a
 * pattern of resources.gpus. Without any of these a card is given out in shares. A card in MIG
 * mode and its instances are CONFIG_MODE_MIG, and kubelet gives out the instances, unless an entry
 * has another mode for them; an instance that no entry names has the mode of its card. */
enum config_mode config_card_mode(const struct node_config *c, const struct gpu_snapshot *s,
                                  const struct gpu_device *d);

/* Oversubscription of the memory of one card, in thousandths; 0: only what applies to all cards. */
uint32_t config_card_scaling(const struct node_config *c, const struct gpu_snapshot *s,
                             const struct gpu_device *d);

/* Whether the card is put under MPS for claims: one that is given out in shares and that an entry
 * with `dynamic: true` names. */
bool config_card_dynamic(const struct node_config *c, const struct gpu_snapshot *s,
                         const struct gpu_device *d);

/* Who allocates the device to ResourceClaims: by the first entry that names it, or else its card,
 * and has an allocator; without one `otherwise`. */
enum dra_allocator config_card_allocator(const struct node_config *c, const struct gpu_snapshot *s,
                                         const struct gpu_device *d, enum dra_allocator otherwise);

/* A device as a resource of kubelet. */
struct config_offer {
    char resource[CONFIG_NAME_MAX];
    uint32_t replicas; /* of the device; 1: the device itself */
    bool one_at_most;  /* a container gets one of the replicas at most */
    bool renamed;      /* the replicas have another name than the device itself */
};

/* How kubelet is offered a card that is not in MIG mode. False: kubelet does not give it out. A
 * whole card of the resource nvidia.com/gpu, unless --served-elsewhere leaves that name, is given
 * out by aliquot-scheduler, which reads the name as a request of whole cards; and so are the
 * replicas of config_card_replicas(). */
bool config_card_offer(const struct node_config *c, const struct gpu_snapshot *s,
                       const struct gpu_device *d, struct config_offer *ret);

/* The replicas of a card that aliquot-scheduler gives out: those under nvidia.com/gpu and
 * nvidia.com/gpu.shared, unless --served-elsewhere leaves the name. False, and all 0: none. */
bool config_card_replicas(const struct node_config *c, const struct gpu_snapshot *s,
                          const struct gpu_device *d, struct card_replicas *ret);

/* How kubelet is offered a device of the resource `name`: that resource itself, or the replicas
 * that section `sharing` makes of it. */
void config_replicas_of(const struct node_config *c, const struct gpu_snapshot *s,
                        const struct gpu_device *d, const char *name, struct config_offer *ret);
