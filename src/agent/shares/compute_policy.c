/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/compute_policy.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "base/text.h"
#include "model/quantity.h"
#include "share/compute_policies.h"

#define ALL_POLICIES (((1u << SHARE_POLICIES) - 1) & ~(1u << SHARE_DEFAULT))

int compute_policy_parse(const char *text, enum share_policy *ret) {
    static const struct {
        const char *name;
        enum share_policy policy;
    } others[] = {
#define ALIAS(id, word) {word, SHARE_##id},
        COMPUTE_POLICY_ALIASES(ALIAS)
#undef ALIAS
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(text, others[i].name) == 0) {
            *ret = others[i].policy;
            return 0;
        }
    }
    return share_policy_parse(text, ret);
}

int compute_policies_parse(const char *text, uint32_t *ret) {
    const char *item;
    uint32_t bits = 0;
    size_t len;

    if (strcmp(text, "all") == 0 || strcmp(text, "none") == 0) {
        *ret = text[0] == 'a' ? ALL_POLICIES : 0;
        return 0;
    }
    while (text_item(&text, &item, &len)) {
        enum share_policy policy;
        char name[32];

        if (snprintf(name, sizeof(name), "%.*s", (int) len, item) >= (int) sizeof(name) ||
            compute_policy_parse(name, &policy) < 0 || policy == SHARE_DEFAULT)
            return -EINVAL;
        bits |= 1u << policy;
    }
    *ret = bits;
    return 0;
}

/* ---- one annotation each ---- */

static int bad_value(enum pod_setting setting, const char *value, const char *rule,
                     struct err *why) {
    return err_set(why, EINVAL, "annotation %s: '%s' is not %s; it has no effect",
                   pod_setting_annotation(setting), value, rule);
}

static int read_policy(const struct compute_policy_node *node, const char *value,
                       struct slot_terms *t, struct err *why) {
    enum share_policy policy;

    if (compute_policy_parse(value, &policy) < 0)
        return bad_value(SETTING_POLICY, value, COMPUTE_POLICY_WORDS, why);
    if (policy == SHARE_DEFAULT)
        return 0;
    if (!(node->pods_may & (1u << policy)))
        return err_set(why, EPERM,
                       "annotation %s: this node does not let pods choose '%s' (--pod-policies)",
                       pod_setting_annotation(SETTING_POLICY), value);
    t->policy = (uint8_t) policy;
    return 0;
}

static int read_1_to_100(enum pod_setting setting, const char *value, struct slot_terms *t,
                         struct err *why) {
    bool weight = setting == SETTING_WEIGHT;
    uint64_t n;

    if (num_parse_u64(value, 100, &n) < 0 || n == 0)
        return bad_value(setting, value,
                         weight ? "a whole number from 1 to 100" : "a percentage from 1 to 100",
                         why);
    if (weight)
        t->weight = (uint16_t) n;
    else
        t->ceiling = (uint8_t) n;
    return 0;
}

static int read_weight(const struct compute_policy_node *node, const char *value,
                       struct slot_terms *t, struct err *why) {
    (void) node;
    return read_1_to_100(SETTING_WEIGHT, value, t, why);
}

static int read_ceiling(const struct compute_policy_node *node, const char *value,
                        struct slot_terms *t, struct err *why) {
    (void) node;
    return read_1_to_100(SETTING_CEILING, value, t, why);
}

static int read_memory(const struct compute_policy_node *node, const char *value,
                       struct slot_terms *t, struct err *why) {
    uint64_t bytes;

    (void) node;
    if (quantity_parse(value, strlen(value), &bytes) < 0 || bytes == 0)
        return bad_value(SETTING_MEMORY, value, "an amount of memory such as 4Gi", why);
    t->memory_limit = bytes;
    return 0;
}

/* No part of the compute policy, but an invalid value is reported in an Event. */
static int check_overuse(const struct compute_policy_node *node, const char *value,
                         struct slot_terms *t, struct err *why) {
    enum overuse_policy policy;

    (void) node;
    (void) t;
    return overuse_policy_parse(value, &policy) == 0
               ? 0
               : bad_value(SETTING_OVERUSE, value, "report or stop", why);
}

static int (*const readers[POD_SETTINGS])(const struct compute_policy_node *, const char *,
                                          struct slot_terms *, struct err *) = {
    [SETTING_POLICY] = read_policy,    [SETTING_WEIGHT] = read_weight,
    [SETTING_CEILING] = read_ceiling,  [SETTING_MEMORY] = read_memory,
    [SETTING_OVERUSE] = check_overuse,
};

/* Without an annotation. A request for unused time gets the policy for it. */
static enum share_policy policy_of(const struct compute_policy_node *node, const struct pod *pod,
                                   const char *container, bool part) {
    for (uint32_t i = 0; !part && i < pod->request.n; i++)
        if (pod->request.containers[i].offline &&
            strcmp(pod->request.containers[i].container, container) == 0)
            return SHARE_OFFLINE;
    return part ? node->policy : SHARE_BEST_EFFORT;
}

int compute_policy_read(const struct compute_policy_node *node, const struct pod *pod,
                        const char *container, uint32_t core, struct slot_terms *ret,
                        struct err *why) {
    bool part = core > 0 && core < 100;
    struct slot_terms t = {.policy = (uint8_t) policy_of(node, pod, container, part),
                           .slices = part && node->slices};
    char value[64];
    int result = 0;

    for (unsigned int w = 0; w < POD_SETTINGS; w++) {
        struct err unused;
        int r;

        if (!readers[w] || !pod_setting(pod, (enum pod_setting) w, container, value))
            continue;
        r = readers[w](node, value, &t, result < 0 ? &unused : why);
        if (r < 0 && result == 0)
            result = r;
        /* A ceiling without a policy (vcuda-core-limit) means burst up to it. */
        if (r == 0 && w == SETTING_CEILING && !pod->settings[SETTING_POLICY] && part &&
            (node->pods_may & (1u << SHARE_BURST)))
            t.policy = SHARE_BURST;
    }
    if (t.policy == SHARE_FIXED && core == 0) {
        t.policy = SHARE_BEST_EFFORT;
        if (result == 0)
            result = err_set(why, EINVAL, "annotation %s: fixed needs gpu-core; it has no effect",
                             pod_setting_annotation(SETTING_POLICY));
    }
    /* Who has the whole card is not held back on it. */
    if (core >= 100)
        t = (struct slot_terms){.policy = SHARE_BEST_EFFORT, .memory_limit = t.memory_limit};
    *ret = t;
    return result;
}
