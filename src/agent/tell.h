/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the agent has to say to the owner of a pod: a line in its own log and an Event on the pod.
 * The same is not said twice in a row of many, and never more than a few Events a second. */

#include <stdint.h>

struct agent;

#define TOLD_MAX 64

struct teller {
    uint64_t told[TOLD_MAX]; /* hashes of what was said last */
    unsigned next;
    uint64_t second; /* loop time in s */
    unsigned in_second;
};

/* `reason` is one word in CamelCase, `message` a sentence. Without an API server it is only logged.
 */
void tell_pod(struct agent *a, const char *namespace, const char *pod, const char *uid,
              const char *reason, const char *message);
