/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mig-parted's file from ConfigMaps, as mig-manager's pod has it mounted: the entry MIG_SOURCE_KEY
 * of the first ConfigMap of a list that exists. What can be used is written to a file of the agent,
 * which stays when the agent is restarted with the same list; what cannot changes nothing. One
 * thread. */

#include <stdbool.h>
#include <stdint.h>

struct err;
struct kube_client;
struct mig_source;

#define MIG_SOURCE_KEY "config.yaml"
#define MIG_SOURCE_MAPS_MAX 4
#define MIG_SOURCE_REFUSED_MS 60000

struct mig_source_options {
    const char *maps;                /* "[NAMESPACE/]NAME", with commas between */
    const char *namespace;           /* of names without one */
    const char *file;                /* where the text goes */
    void (*on_file)(void *userdata); /* the file is another one */
    /* The ConfigMaps cannot be used, and the file, if there is one, stays. "": they can again. */
    void (*on_trouble)(const char *why, void *userdata);
    void *userdata;
};

/* -EINVAL: no list of ConfigMaps. */
int mig_source_check(const char *maps, struct err *err);

/* The texts of `options` have to live as long. Callbacks come from the loop, never inside this
 * call. */
int mig_source_start(struct kube_client *client, const struct mig_source_options *options,
                     struct mig_source **ret, struct err *err);

/* To be called now and then, with the time of the loop. A ConfigMap that the agent has no right to
 * read (403) is no answer at first: the API server refuses all requests for a moment after its
 * start. After MIG_SOURCE_REFUSED_MS it counts as one that cannot be used, which is told. */
void mig_source_pass(struct mig_source *s, uint64_t now_ms);

/* Whether it is known which file applies: there is one, or the ConfigMaps are known to have none
 * that can be used. */
bool mig_source_is_known(const struct mig_source *s);

/* Why there is no file; NULL: there is one. */
const char *mig_source_missing(const struct mig_source *s);

/* Before the client is closed. Takes NULL. */
void mig_source_stop(struct mig_source *s);
