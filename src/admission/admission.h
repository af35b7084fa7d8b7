/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a pod may ask, judged when it is created: the answers to the API server's AdmissionReviews.
 * Pure: JSON in, JSON out, no state, no clock. The policies of deploy/base/policy-*.yaml say
 * the same in the API server's own language, where that has it; deploy/webhook/ installs this
 * instead. */

#include <stddef.h>

struct admission;
struct buf;
struct err;

/* Its user name is who may write assignments, by the binding of a pod. */
#define ADMISSION_SCHEDULER "system:serviceaccount:aliquot-system:aliquot-scheduler"

struct admission *admission_new(void);                 /* NULL: out of memory */
struct admission *admission_free(struct admission *a); /* takes NULL, returns NULL */

/* Both take an AdmissionReview (admission.k8s.io/v1) and append the one to answer with. -EINVAL or
 * -EBADMSG when it is none, with the reason in `err`, and -ENOMEM; then nothing is appended.
 *
 * Mutate: a container that asks by a name for which kubelet calls no plugin of ours, or by an
 * annotation, gets the carrier elasticgpu.io/slot. Everything else is left as it is, and nothing is
 * refused.
 *
 * Validate: refuses requests that no node could ever serve or that mean something else than they
 * say, pods with a share that name their node, assignments not written by the scheduler, and claims
 * of pods that are there. */
int admission_mutate(struct admission *a, const char *body, size_t len, struct buf *out,
                     struct err *err);
int admission_validate(struct admission *a, const char *body, size_t len, struct buf *out,
                       struct err *err);
