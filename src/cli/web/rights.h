/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a reading needs, and how much of it the API server lets a token read, by its own word: a
 * SelfSubjectAccessReview of each list and request. It changes nothing and costs no list. */

#include "base/err.h"

#define RIGHT_CARDS 1u   /* list gpus */
#define RIGHT_WAITING 2u /* list pods, of the namespace or of all */
#define RIGHT_QUOTAS 4u
#define RIGHT_CLAIMS 8u
#define RIGHT_AGENTS 16u  /* list pods of Aliquot's namespace */
#define RIGHT_FIGURES 32u /* request tokens for agents */
#define RIGHT_PROXY 64u   /* ask agents, by pods/proxy; all of them, whatever their names */

/* Nothing that agents tell is refused. */
#define RIGHTS_USE (RIGHT_AGENTS | RIGHT_FIGURES | RIGHT_PROXY)

/* Asks with the login of the thread. `namespace` NULL: rights in all. Without RIGHT_CARDS *ret is
 * 0: the others are not asked about. Errors as of api_create(). */
int rights_review(const char *system, const char *namespace, unsigned *ret, struct err *err);
