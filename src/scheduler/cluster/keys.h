/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the signing key lives: the private half in the Secret aliquot-signing, made when it is
 * missing; the public half in the ConfigMap aliquot-signing, where the agents read it. When the key
 * is new but an older public key is there, the older one stays behind the new one, so that pods
 * that run keep their shares, until the caller says that it is old. Several schedulers that start
 * at once agree on the key that was stored first. */

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
