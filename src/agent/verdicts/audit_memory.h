/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Does a container hold more of a card than it was given? Pure: no I/O, no clock. The ledger is the
 * container's own word; here the driver's is judged, which no program in the container can forge.
 *
 * One poll is worth nothing: processes come and go between the driver's answer and ours. What is
 * found stands at two polls at least AUDIT_MEMORY_CONFIRM_MS apart. */

#include <stdbool.h>
#include <stdint.h>

/* How far the driver's figure may be above the limit before overuse is reported: what the driver
 * takes by itself (code, heaps, rounding) shows up before the next reconciliation shrinks the room
 * for it. */
#define AUDIT_MEMORY_SLACK ((uint64_t) 32 << 20)
#define AUDIT_MEMORY_CONFIRM_MS 80

/* What is said of a container on one card; in the order of their weight. */
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
    uint32_t strangers; /* processes on the card that have not mapped the ledger */
    bool damaged;
};

/* What is remembered of a container on one card. All zero at first. */
struct audit_memory {
    uint64_t ceiling; /* highest the driver may say: the limit, or what it held when that sank */
    uint64_t last;    /* what the driver said at the last poll */
    uint64_t above_since, stranger_since; /* ms of the first poll of the run; 0: none */
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
