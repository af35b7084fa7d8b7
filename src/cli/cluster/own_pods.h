/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What pods of one namespace have of cards and use of them, for a user who may read these pods, and
 * neither GPU objects nor agents: by their assignments and ResourceClaims, and by the metrics API
 * of pods. */

#include "cli/cluster/agents.h"
#include "cli/cluster/cards.h"

/* As cards_fetch() and cards_keep_namespace(). A user who may not read cards gets those of the pods
 * of the namespace (`of_pods`). */
int own_pods_or_cards(const char *namespace, struct cards *ret, struct err *err);

/* As agents_read(); of cards of pods what these pods use. */
int own_pods_or_agents(const char *system, const char *namespace, const struct cards *cards,
                       void (*trouble)(const char *pod, const char *text), struct agents *ret,
                       struct err *err);

/* The cards on which they have shares, with these shares alone. Of a card its node, index and UUID
 * are known: its state is CARD_UNTOLD, it has no size, and taken of it is what they have. */
int own_pods_cards(const char *namespace, struct cards *ret, struct err *err);

/* What these shares use, as agents would tell it. The API speaks of pods, so what a pod with
 * several shares uses of each is not known. -ENOENT where there is no such API. */
int own_pods_use(const char *namespace, const struct cards *cards, struct agents *ret,
                 struct err *err);
