/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/compute_options.h"

#include "share/compute.h"

static int check_range(const char *option, uint32_t value, const char *of, struct err *err) {
    if (value == COMPUTE_UNSET || (value >= 1 && value <= 100))
        return 0;
    return err_set(err, EINVAL, "--%s %u: 1 to 100%s", option, value, of);
}

int compute_options_check(const struct compute_options *terms, struct err *err) {
    enum share_policy policy;
    int r = check_range("core", terms->core, " percent of a GPU", err);

    if (r == 0)
        r = check_range("weight", terms->weight, "", err);
    if (r == 0)
        r = check_range("ceiling", terms->ceiling, " percent of a GPU", err);
    if (r == 0 && terms->policy && share_policy_parse(terms->policy, &policy) < 0)
        r = err_set(err, EINVAL, "--policy %s: " COMPUTE_POLICY_WORDS, terms->policy);
    return r;
}

int compute_options_apply(const struct compute_options *terms, struct share_device *device,
                          struct err *err) {
    enum share_policy policy;

    if (terms->core != COMPUTE_UNSET)
        device->core_percent = terms->core;
    if (terms->weight != COMPUTE_UNSET)
        device->weight = (uint16_t) terms->weight;
    if (terms->ceiling != COMPUTE_UNSET)
        device->ceiling_percent = (uint8_t) terms->ceiling;
    if (terms->policy && share_policy_parse(terms->policy, &policy) == 0)
        device->policy = (uint8_t) policy;
    if (device->policy == SHARE_FIXED && device->core_percent == 0)
        return err_set(err, EINVAL, "--policy fixed needs --core");
    return 0;
}
