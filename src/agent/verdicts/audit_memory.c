/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verdicts/audit_memory.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

static const char *const state_names[AUDIT_MEMORY_STATES] = {
    [AUDIT_MEMORY_FINE] = "Fine",       [AUDIT_MEMORY_LOWERED] = "Lowered",
    [AUDIT_MEMORY_DAMAGED] = "Damaged", [AUDIT_MEMORY_ESCAPED] = "Escaped",
    [AUDIT_MEMORY_OVER] = "Over",
};

const char *audit_memory_name(enum audit_memory_state state) {
    return state_names[state < AUDIT_MEMORY_STATES ? state : AUDIT_MEMORY_FINE];
}

/* A raised limit raises the ceiling. A lowered limit lowers it to what the container holds: a
 * container within its limit is not killed, and memory that it frees lowers the ceiling. Memory
 * counts as freed after two polls: between them it can pass from a process to a descriptor.
 */
static void move_ceiling(struct audit_memory *o, const struct audit_memory_poll *poll) {
    uint64_t driver = poll->driver > o->last ? poll->driver : o->last;

    if (poll->limit == 0)
        o->ceiling = UINT64_MAX;
    else if (poll->limit >= o->ceiling || driver <= poll->limit)
        o->ceiling = poll->limit;
    else if (driver < o->ceiling)
        o->ceiling = driver;
    o->last = poll->driver;
}

/* Whether a condition has held long enough; `since` is the time of the first poll with it. */
static bool confirmed(uint64_t *since, bool now, uint64_t now_ms) {
    if (!now)
        *since = 0;
    else if (*since == 0)
        *since = now_ms ? now_ms : 1;
    return now && now_ms - *since >= AUDIT_MEMORY_CONFIRM_MS;
}

static bool beyond(uint64_t driver, uint64_t limit) {
    return driver > AUDIT_MEMORY_SLACK && driver - AUDIT_MEMORY_SLACK > limit;
}

bool audit_memory_poll(struct audit_memory *o, const struct audit_memory_poll *poll) {
    bool above, bypass;

    move_ceiling(o, poll);
    above = confirmed(&o->above_since, beyond(poll->driver, o->ceiling), poll->now_ms);
    bypass = confirmed(&o->bypass_since, poll->bypassing > 0, poll->now_ms);
    if (above)
        o->state = AUDIT_MEMORY_OVER;
    else if (bypass)
        o->state = AUDIT_MEMORY_ESCAPED;
    else if (poll->damaged)
        o->state = AUDIT_MEMORY_DAMAGED;
    else if (poll->limit > 0 && beyond(poll->driver, poll->limit) && o->above_since == 0)
        o->state = AUDIT_MEMORY_LOWERED;
    else
        o->state = AUDIT_MEMORY_FINE;
    return (o->above_since && !above) || (o->bypass_since && !bypass);
}

/* ---- policies ---- */

static const char *const policy_names[] = {[OVERUSE_REPORT] = "report", [OVERUSE_STOP] = "stop"};

static int policy_of_span(const char *text, size_t len, enum overuse_policy *ret) {
    for (unsigned int i = 0; i < sizeof(policy_names) / sizeof(policy_names[0]); i++) {
        if (strlen(policy_names[i]) != len || memcmp(policy_names[i], text, len) != 0)
            continue;
        *ret = (enum overuse_policy) i;
        return 0;
    }
    return -EINVAL;
}

int overuse_policy_parse(const char *text, enum overuse_policy *ret) {
    return policy_of_span(text, strlen(text), ret);
}

/* Takes the next "NAMESPACE=POLICY" off the list; 0 at its end. */
static int next_rule(const char **at, const char **ret_name, size_t *ret_len,
                     enum overuse_policy *ret) {
    size_t len, name;

    if (!text_item(at, ret_name, &len))
        return 0;
    name = strcspn(*ret_name, "=,");
    if (name == 0 || name >= len || policy_of_span(*ret_name + name + 1, len - name - 1, ret) < 0)
        return -EINVAL;
    *ret_len = name;
    return 1;
}

int overuse_rules_check(const char *rules) {
    enum overuse_policy policy;
    const char *name;
    size_t len;
    int r;

    while ((r = next_rule(&rules, &name, &len, &policy)) > 0)
        ;
    return r;
}

enum overuse_policy overuse_policy_of(enum overuse_policy node, const char *rules,
                                      const char *namespace, const char *annotation) {
    enum overuse_policy rule, own;
    const char *name;
    size_t len;

    while (rules && next_rule(&rules, &name, &len, &rule) > 0)
        if (strlen(namespace) == len && memcmp(namespace, name, len) == 0)
            node = rule;
    if (annotation && overuse_policy_parse(annotation, &own) == 0 && own > node)
        node = own;
    return node;
}
