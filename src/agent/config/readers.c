/* SPDX-License-Identifier: Apache-2.0 */

/* What several sections read in the same way. */

#include <stdio.h>
#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"
#include "base/num.h"
#include "gpu/device.h"
#include "model/scaling.h"

#define MS UINT64_C(1000000)
#define DOMAIN "nvidia.com/"

const char *const config_mig_strategies[] = {"none", "single", "mixed", NULL};
const char *const config_allocations[] = {"distributed", "packed", "aligned", NULL};
const char *const config_modes[] = {"share", "whole", "mps", "mig", NULL};

int config_section(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_read(v, arg, target, err);
}

int config_unserved(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;
    const char *reason = arg;

    (void) err;
    buf_printf(&c->notes, "line %u: %s has no effect here: %s\n", v->line, v->key->text, reason);
    return 0;
}

int config_milliseconds(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const struct yaml_range *range = arg;
    uint64_t ns = 0, min = range ? range->min : 0, max = range ? range->max : UINT32_MAX;
    uint32_t *ret = target;
    int r = yaml_duration(v, &ns, NULL, err);

    if (r < 0)
        return r;
    if (ns / MS < min || ns / MS > max)
        return yaml_error(v, err, "'%.40s' is not between %llu ms and %llu ms", v->text,
                          (unsigned long long) min, (unsigned long long) max);
    *ret = (uint32_t) (ns / MS);
    return 0;
}

int config_scaling(const struct yaml *v, void *target, const void *arg, struct err *err) {
    uint32_t *ret = target;

    (void) arg;
    if (v->type != YAML_NUMBER || scaling_parse(v->text, ret) < 0)
        return yaml_error(v, err, "expected a factor from 1 to %u like 1.5, not '%.40s'",
                          SCALING_MAX / SCALING_ONE, v->text ? v->text : yaml_type_name(v));
    return 0;
}

int config_path(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const char **ret = target;

    (void) arg;
    if (!v->text || v->text[0] != '/')
        return yaml_error(v, err, "expected an absolute path, not '%.64s'",
                          v->text ? v->text : yaml_type_name(v));
    *ret = v->text;
    return 0;
}

/* ---- devices ---- */

static bool is_index(const char *text, size_t len) {
    return len > 0 && len < 6 && strspn(text, "0123456789") >= len;
}

static bool is_device(const char *text) {
    size_t len = strlen(text);
    const char *colon = strchr(text, ':');

    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        return len > 4 && len < GPU_UUID_MAX &&
               strspn(text + 4, "0123456789abcdefABCDEF-GPU/") == len - 4;
    if (colon)
        return is_index(text, (size_t) (colon - text)) && is_index(colon + 1, strlen(colon + 1));
    return is_index(text, len);
}

static int check_device(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) target;
    (void) arg;
    if (v->text && is_device(v->text))
        return 0;
    return yaml_error(v, err,
                      "'%.64s' is not a device: expected an index (0), the index of a MIG instance "
                      "(0:1) or a UUID (GPU-... or MIG-...)",
                      v->text ? v->text : yaml_type_name(v));
}

int config_devices(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const struct yaml **ret = target;
    uint64_t count;

    (void) arg;
    if (v->text && strcmp(v->text, "all") == 0) {
        *ret = NULL;
        return 0;
    }
    if (v->type == YAML_LIST && v->size == 0)
        return yaml_error(v, err, "the list of devices is empty");
    if (v->type != YAML_LIST &&
        (v->type != YAML_NUMBER || num_parse_u64(v->text, GPU_MAX, &count) < 0 || count == 0))
        return yaml_error(
            v, err,
            "expected all, a number of devices from 1 to %d, or a list of indexes and "
            "UUIDs, not '%.40s'",
            GPU_MAX, v->text ? v->text : yaml_type_name(v));
    *ret = v;
    return v->type == YAML_LIST ? yaml_read_each(v, check_device, NULL, NULL, err) : 0;
}

/* ---- names of resources ---- */

/* A name of the DNS. */
static bool is_name(const char *text) {
    static const char inside[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
    size_t len = strlen(text);

    return len > 0 && strspn(text, inside) == len && !strchr("-.", text[0]) &&
           !strchr("-.", text[len - 1]) && !strstr(text, "..");
}

int config_resource_name(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const char *text = v->text, *domain = DOMAIN;
    char *ret = target;

    (void) arg;
    if (!text)
        return yaml_error(v, err, "expected the name of a resource, not %s", yaml_type_name(v));
    if (strncmp(text, DOMAIN, strlen(DOMAIN)) == 0)
        text += strlen(DOMAIN);
    if (!is_name(text))
        return yaml_error(
            v, err,
            "'%.64s' is not the name of a resource: lower-case letters, digits, - and "
            ". behind " DOMAIN,
            v->text);
    if (strlen(domain) + strlen(text) >= CONFIG_NAME_MAX)
        return yaml_error(v, err, "'%s%.64s' has more than %d characters", domain, text,
                          CONFIG_NAME_MAX - 1);
    (void) snprintf(ret, CONFIG_NAME_MAX, "%s%s", domain, text);
    return 0;
}
