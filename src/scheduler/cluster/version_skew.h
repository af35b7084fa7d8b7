/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether the kube-scheduler in this replica's pod suits the API server
 * (kube/objects/scheduler_image.h). After an upgrade of a cluster its provider does not upgrade
 * this one. Its version is the tag of its image: it serves no page that names its version to a
 * client without further rights. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/names.h"
#include "scheduler/cluster/api.h"

#define VERSION_SKEW_CHECK_MS 600000
#define VERSION_SKEW_RETRY_MS 10000

struct event_writer;

struct version_skew {
    struct api api;
    const char *name_space, *pod; /* of this replica */
    struct event_writer *events;
    uint64_t next_ms; /* of the next check; UINT64_MAX during one */
    uint64_t now_ms;  /* when the current one began */
    char server[64];  /* gitVersion of the API server */
    double ahead;     /* minor versions of kube-scheduler beyond the API server; NAN: not known */
    bool unknown;     /* which was logged */
    char wrong[512];  /* for the Event; "": nothing */
    char uid[KUBE_UID_MAX]; /* of the pod */
    bool told;
};

/* The fields before `next_ms` are the caller's to fill in. */
void version_skew_init(struct version_skew *v);

/* To be called about once a second. The replica that `leads` tells what is wrong by an Event on its
 * pod, once for each check. */
void version_skew_run(struct version_skew *v, uint64_t now_ms, bool leads);
