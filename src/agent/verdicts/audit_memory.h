/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Detects containers that hold more of a card than their limit. Pure: no I/O, no clock. The
 * container's programs write the ledger, so the decision uses NVML's figures, which they cannot
 * forge. A single poll proves nothing, because processes start and end during it: a finding needs
 * two polls at least AUDIT_MEMORY_CONFIRM_MS apart. */

#include <stdbool.h>
#include <stdint.h>

/* How far the driver's figure may be above the limit before overuse is reported: what the driver
 * takes by itself (code, heaps, rounding) shows up before the next reconciliation shrinks the room
 * for it. */
#define AUDIT_MEMORY_SLACK ((uint64_t) 32 << 20)
#define AUDIT_MEMORY_CONFIRM_MS 80

/* Findings for a container on one card, in order of severity. */
enum audit_memory_state {
    AUDIT_MEMORY_FINE,
    AUDIT_MEMORY_LOWERED, /* its limit was lowered below what it holds; it gets nothing new */
    AUDIT_MEMORY_DAMAGED, /* its ledger is destroyed: its programs get no memory any more */
    AUDIT_MEMORY_ESCAPED, /* a process of it uses the card without the library */
    AUDIT_MEMORY_OVER,    /* it holds more than its limit */
    AUDIT_MEMORY_STATES,
};

/* "Fine", "Lowered" ... as /usage has it; never NULL. */
const char *audit_memory_name(enum audit_memory_state state);

struct audit_memory_poll {
    uint64_t now_ms;
    uint64_t limit;     /* bytes that may be on the card; 0: no limit */
    uint64_t driver;    /* bytes that it holds, those of processes that are ending not counted */
    uint32_t bypassing; /* processes on the card that have not mapped the ledger */
    bool damaged;
};

/* What is remembered of a container on one card. All zero at first. */
struct audit_memory {
    uint64_t
        ceiling;   /* maximum for the driver's figure: the limit, or the use when it was lowered */
    uint64_t last; /* the driver's figure at the last poll */
    uint64_t above_since, bypass_since; /* ms of the first poll of the run; 0: none */
    enum audit_memory_state state;
};

/* Takes a poll in. Returns whether the next poll should come soon, because this one raised a
 * suspicion. */
bool audit_memory_poll(struct audit_memory *o, const struct audit_memory_poll *poll);

/* What the agent does about it. */
enum overuse_policy {
    OVERUSE_REPORT,
    OVERUSE_STOP,
};

/* The policy of a container: `node` unless the namespace has another in `rules`
 * ("NAMESPACE=POLICY,..."; NULL: none), made stricter, never milder, by the pod's own annotation
 * (NULL: none). */
enum overuse_policy overuse_policy_of(enum overuse_policy node, const char *rules,
                                      const char *namespace, const char *annotation);

/* Reads "report", "stop"; -EINVAL. */
int overuse_policy_parse(const char *text, enum overuse_policy *ret);

/* Checks a list of rules; -EINVAL. */
int overuse_rules_check(const char *rules);
