/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MIG instances on demand for claims: of cards whose instances aliquot-scheduler gives out. */

struct egpu_claim;
struct scheduler;

/* 0 or -ENOMEM. */
int mig_claims_start(struct scheduler *s);

/* No instance for the claim is free; as `want_instance` of struct elastic. */
void mig_claims_want(struct scheduler *s, const struct egpu_claim *claim, const char *profile);
