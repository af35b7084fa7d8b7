/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the directory, each file using those before it: elastic_events.c (Events), elastic_nodes.c
 * (labels of nodes), elastic_lookup.c (claims on cards), elastic_pods.c (pods that use claims),
 * elastic_quota.c (what claims count in quotas), elastic_mps.c (cards that are put under MPS for
 * claims), elastic_grow.c (pods whose claim has grown), elastic_controller.c (the controller's
 * world). */

#include "scheduler/elastic/elastic.h"

/* The container of the pod, with an assumed allocation or bound, that uses the claim; NULL: none.
 */
const char *elastic_container_of(const struct elastic *e, const struct state_pod *pod,
                                 const struct egpu_claim *claim);

/* The pod whose bind waits for that claim on that node, or NULL. */
struct state_pod *elastic_waiting_pod(struct elastic *e, const struct egpu_claim *claim,
                                      const char *node);

/* Goes on with the binds that wait, as far as their claims are bound by now. */
void elastic_waits_run(struct elastic *e);
void elastic_waits_drop(struct elastic *e);

/* From now on, bound pods draw on claims that were shown after them. */
void elastic_draw_again(struct elastic *e);

/* The policy that the claim's class names; NULL: none, or none of ours. */
const struct place_policy *elastic_policy(const struct elastic *e, const struct egpu_claim *claim);

/* Whether the node is one of those. */
bool elastic_is_on(const struct elastic *e, const struct node_selector *among,
                   const struct state_node *node);
void elastic_nodes_drop(struct elastic *e);

/* A free MIG instance of the profile, on `node` or, with "", on any that the claim's class lets it
 * be made on; of the card that has the fewest free ones, so that others can be divided anew. */
bool elastic_find_instance(struct elastic *e, const struct egpu_claim *claim, const char *profile,
                           const char *node, struct claims_room *ret);

/* What the amount is of that card. */
struct place_grant elastic_grant(const struct claim_amount *amount, const struct state_card *card);

/* Which cards of the node are the ElasticGPU's. */
uint64_t elastic_cards_of(const struct egpu *egpu, const struct state_node *node);

/* A device that gives shares, by the name of its GPU object, or by its UUID. */
struct state_card *elastic_card_find(const struct state *s, const char *name);

/* Orders cards to be under MPS, and not to be any more; at every pass. */
void elastic_mps_run(struct elastic *e, uint64_t now);

/* Whether it was made by a class of shares under MPS; which cards of the node can give such. */
bool elastic_is_of_mps(const struct egpu *egpu);
uint64_t elastic_cards_under_mps(const struct state_node *node);

/* Whether claims of its class are made of cards under MPS only; which cards of the node claims of
 * its class can be made of. */
bool elastic_is_under_mps(const struct elastic *e, const struct egpu_claim *claim);
uint64_t elastic_cards_for(const struct elastic *e, const struct egpu_claim *claim,
                           const struct state_node *node);

/* Whether what the pod holds is on a card of the ElasticGPU (NULL: on none). */
bool elastic_has(const struct egpu *egpu, const struct state_pod *pod,
                 const struct state_allocation *held);

/* The amount's memory on that card: without one, the card decides. */
uint64_t elastic_memory_of(const struct claim_amount *amount, const struct state_pod *pod,
                           const struct state_allocation *held);

/* How many pods but `except` (may be NULL) hold something and use the claim, and the name of one of
 * them (ret_name may be NULL). */
uint32_t elastic_users(const struct elastic *e, const struct egpu_claim *claim,
                       const struct state_pod *except, char ret_name[KUBE_NAME_MAX]);

/* The id of the reserved capacity behind the ElasticGPU that is made for the claim. */
void elastic_id_of_claim(const struct egpu_claim *claim, char ret[static ELASTIC_ID_MAX]);

/* What these devices count in a quota. */
struct quota_use elastic_use_of(const struct assigned_device *devices, uint32_t n);

/* The same without the cards: memory that the amount does not name is not known then. */
struct quota_use elastic_use_of_amount(const struct claim_amount *amount);

/* Whether quotas of the namespace let `claim` or, if that is NULL, what is reserved under `id` come
 * to use that much: what the claim's first consumer has for it, and what is charged under `id`, is
 * a part of it. 0, or -EDQUOT with a sentence. */
int elastic_may_use(struct elastic *e, const char *namespace, const char *id,
                    const struct egpu_claim *claim, const struct quota_use *use, struct err *why);

/* Charges what is reserved for the ElasticGPU to the namespace ("": to none); `use` NULL: its cards
 * are not all there, and it counts as before or, if it did not, as the object says. */
void elastic_charge(struct elastic *e, const struct egpu *egpu, const char *namespace,
                    const struct quota_use *use);

/* struct claims_world: note. */
void elastic_note(void *self, const struct claims_note *note);

/* struct claims_world: admit. */
int elastic_admit(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                  struct err *why);

/* struct claims_world: settle, begun. */
bool elastic_settle(void *self, const struct egpu *egpu);
bool elastic_begun(void *self, const char *pod_uid);
void elastic_growths_drop(struct elastic *e);

int elastic_selector_add(struct elastic *e);
