/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Validation and mutation of pods when they are created: the answers to the API server's
 * AdmissionReviews. Pure: JSON in, JSON out, no state, no clock. The policies of
 * deploy/base/policy-*.yaml are the same rules as ValidatingAdmissionPolicies, as far as CEL can
 * express them; deploy/webhook/ installs this instead. */

#include <stddef.h>

struct admission;
struct buf;
struct err;

/* `name_space` is the one of Aliquot: the service account aliquot-scheduler there is the user that
 * may write assignments, with the Binding of a pod. NULL: out of memory. */
struct admission *admission_new(const char *name_space);
struct admission *admission_free(struct admission *a); /* takes NULL, returns NULL */

/* Pods that ask for a share and name no scheduler, or default-scheduler, are given the name of this
 * one by admission_mutate(). It must outlive `a`; NULL, as at the start: they are left as they are.
 */
void admission_place_by(struct admission *a, const char *scheduler);

/* Both take an AdmissionReview (admission.k8s.io/v1) and append the one to answer with. -EINVAL or
 * -EBADMSG when it is none, with the reason in `err`, and -ENOMEM; then nothing is appended.
 *
 * Mutate: a container that requests by a name for which kubelet does not call the device plugin, or
 * by an annotation, gets the carrier elasticgpu.io/slot. Everything else is left as it is, and
 * nothing is refused.
 *
 * Validate: refuses requests that no node could ever serve or whose meaning is ambiguous, pods with
 * a share that name their node, assignments not written by the scheduler, and claims of existing
 * pods. */
int admission_mutate(struct admission *a, const char *body, size_t len, struct buf *out,
                     struct err *err);
int admission_validate(struct admission *a, const char *body, size_t len, struct buf *out,
                       struct err *err);
