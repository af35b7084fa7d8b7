/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/claim_terms.h"

#include <errno.h>

#include "agent/shares/compute_policy.h"
#include "agent/shares/shares.h"
#include "base/err.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/share_config.h"

static int choose_policy(const struct share_options *node, const char *word, uint32_t core,
                         uint8_t *ret, struct err *err) {
    enum share_policy policy;

    if (compute_policy_parse(word, &policy) < 0)
        return err_set(err, EINVAL, SHARE_CONFIG_KIND ": computePolicy '%s' is not known", word);
    if (policy == SHARE_DEFAULT)
        return 0;
    if (!(node->pod_policies & (1u << policy)))
        return err_set(err, EPERM,
                       SHARE_CONFIG_KIND
                       ": this node does not let pods choose computePolicy '%s' (--pod-policies)",
                       word);
    if (policy == SHARE_FIXED && core == 0)
        return err_set(err, EINVAL, SHARE_CONFIG_KIND ": computePolicy fixed needs core");
    *ret = (uint8_t) policy;
    return 0;
}

/* Those of the allocation are class and claim together; an allocator that is not kube-scheduler may
 * leave them out, and what the claim itself says counts. */
int dra_claim_terms(const struct share_options *node, const struct resource_claim *claim,
                    const char *request, uint32_t core, struct slot_terms *ret, struct err *err) {
    bool given = claim->nallocated_configs > 0, part = core > 0 && core < 100;
    struct slot_terms t = {.policy = part ? (uint8_t) node->compute_policy : SHARE_BEST_EFFORT,
                           .slices = part && node->hardware_slices};
    struct share_config config = {0};
    int r =
        share_config_of(given ? claim->allocated_configs : claim->configs,
                        given ? claim->nallocated_configs : claim->nconfigs, request, &config, err);

    if (r == 0 && config.compute_policy[0])
        r = choose_policy(node, config.compute_policy, core, &t.policy, err);
    if (r < 0)
        return r;
    t.weight = config.weight;
    t.ceiling = config.ceiling;
    /* A share that is the whole card is not held back on it. */
    *ret = core < 100 ? t : (struct slot_terms){.policy = SHARE_BEST_EFFORT};
    return 0;
}
