/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The public key of aliquot-scheduler, from ConfigMap aliquot-signing: read at the start (until it
 * is there) and again when somebody doubts it. */

#include <stdint.h>
#include <uv.h>

struct err;
struct keys;
struct kube_client;
struct signing_verifier;

int keys_start(struct kube_client *client, const char *namespace, void (*on_change)(void *userdata),
               void *userdata, struct keys **ret, struct err *err);
void keys_stop(struct keys *k, void (*on_closed)(void *userdata), void *userdata);

/* NULL while it is not known. Valid until the next turn of the loop. */
const struct signing_verifier *keys_verifier(const struct keys *k);

/* When the keys were last read: uv_now() of that moment; 0: never. */
uint64_t keys_read_at(const struct keys *k);

/* Reads them again (at most once a second); on_change runs when that is done, changed or not. */
void keys_refresh(struct keys *k);
