/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ResourceSlices of this node: what it gives out in shares, cards and MIG instances, for the
 * allocators of ResourceClaims. They are watched and repaired, since kubelet deletes them when it
 * starts, and while the plugin is away. */

#include <stdbool.h>
#include <stdint.h>

struct dra_slices;
struct err;
struct gpu_device;
struct gpu_snapshot;
struct kube_client;
struct mig_card;

#define DRA_SLICES_TROUBLE_MAX 512
#define DRA_UNHEALTHY_TAINT "gpu.elasticgpu.io/unhealthy" /* new claims keep away from the card */

struct dra_slices_options {
    struct kube_client *client;
    const char *node;
    /* The devices of the node, each with its allocator. */
    const struct gpu_snapshot *(*devices)(void *userdata);
    /* Whether one claim gets all of the device, and no other has a share of it. */
    bool (*is_whole)(const struct gpu_device *d, void *userdata);
    /* What a card can be divided into for claims, without profiles while that is not known; NULL:
     * it is not divided for claims, and its instances are devices as they are. */
    const struct mig_card *(*dynamic)(const struct gpu_device *card, void *userdata);
    /* What the node offers of the card in shares; bytes. */
    uint64_t (*capacity)(const struct gpu_device *d, void *userdata);
    /* Whether an instance that takes no pods is only about to be destroyed. */
    bool (*ends)(const struct gpu_device *d, void *userdata);
    /* Whether pods that use the device, which takes no others, are to end. */
    bool (*evicts)(const struct gpu_device *d, void *userdata);
    /* Why nothing is published; "": no reason any more. */
    void (*on_trouble)(const char *why, void *userdata);
    void *userdata;
};

int dra_slices_start(const struct dra_slices_options *options, struct dra_slices **ret,
                     struct err *err);

/* The devices are known, and can have changed. Nothing is written before the first call, nor before
 * the Node is known. */
void dra_slices_update(struct dra_slices *s);

/* The Node's UID: its slices go with it. */
void dra_slices_set_node(struct dra_slices *s, const char *uid);

/* Ends without callbacks but on_closed; what is published stays, until kubelet finds that the
 * plugin is away. Before the client is closed. The loop must run. */
void dra_slices_stop(struct dra_slices *s, void (*on_closed)(void *userdata), void *userdata);
