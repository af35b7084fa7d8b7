/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Storage of the signing key: the private key in the Secret aliquot-signing, created when missing;
 * the public key in the ConfigMap aliquot-signing, which the agents read. An older public key is
 * kept after a new one, so that running pods keep their shares, until the caller declares it old.
 * Schedulers that start concurrently agree on the key stored first. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/signing.h"
#include "scheduler/cluster/api.h"

#define SIGNING_NAME "aliquot-signing"
#define SIGNING_PRIVATE "private.pem" /* in the Secret */
#define SIGNING_PUBLIC "public.pem"   /* in the ConfigMap */

struct keys;

/* `error` NULL: `key` and `verifier` are there, and the caller's from now on. Otherwise a sentence,
 * and the caller may start again. */
typedef void (*keys_done)(struct signing_key *key, struct signing_verifier *verifier,
                          const char *error, void *userdata);

/* Whether the public key of that id is to be taken out of the ConfigMap. */
typedef bool (*keys_is_old)(uint64_t id, void *userdata);

/* Calls `done` exactly once, possibly inside this call. `name_space` must outlive that. `is_old` is
 * asked before each write, but not for the first public key nor for that of the private key, which
 * always stay; NULL: none is old. A change of the ConfigMap between its reading and the write is a
 * conflict, after which it is read again. */
void keys_start(const struct api *api, const char *name_space, keys_is_old is_old, keys_done done,
                void *userdata);
