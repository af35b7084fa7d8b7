/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The public keys of aliquot-scheduler, from ConfigMap aliquot-signing, which is watched: a removed
 * key becomes invalid with the watch event. */

#include <stdint.h>
#include <uv.h>

struct err;
struct keys;
struct kube_client;
struct signing_verifier;

int keys_start(struct kube_client *client, const char *namespace, void (*on_change)(void *userdata),
               void *userdata, struct keys **ret, struct err *err);
/* Before the client is closed. */
void keys_stop(struct keys *k);

/* NULL while there is none that can be used. Valid until the next turn of the loop. */
const struct signing_verifier *keys_verifier(const struct keys *k);

/* uv_now() of the moment at which the last list was asked for: what was written before is known; 0:
 * no list has been read. */
uint64_t keys_read_at(const struct keys *k);

/* Lists them again, unless that is under way; on_change runs when it is done, changed or not. Not
 * from inside on_change. */
void keys_refresh(struct keys *k);
