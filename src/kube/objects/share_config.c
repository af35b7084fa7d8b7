/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/share_config.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "model/dra.h"
#include "model/placement_policies.h"

static int read_word(struct json value, char *ret, size_t size) {
    const char *text = json_string(value);
    size_t len = text ? strlen(text) : 0;

    if (len == 0 || len >= size || text[strspn(text, "abcdefghijklmnopqrstuvwxyz-")] != '\0')
        return -EINVAL;
    memcpy(ret, text, len + 1);
    return 0;
}

static int read_1_to_100(struct json value, uint8_t *ret) {
    uint64_t n;

    if (!json_u64(value, &n) || n == 0 || n > 100)
        return -EINVAL;
    *ret = (uint8_t) n;
    return 0;
}

/* ---- a member each ---- */

static int check_version(struct json value, struct share_config *c) {
    (void) c;
    return json_is_string(value, SHARE_CONFIG_VERSION) ? 0 : -EINVAL;
}

static int check_kind(struct json value, struct share_config *c) {
    (void) c;
    return json_is_string(value, SHARE_CONFIG_KIND) ? 0 : -EINVAL;
}

static int read_compute_policy(struct json value, struct share_config *c) {
    return read_word(value, c->compute_policy, sizeof(c->compute_policy));
}

static int read_weight(struct json value, struct share_config *c) {
    return read_1_to_100(value, &c->weight);
}

static int read_ceiling(struct json value, struct share_config *c) {
    return read_1_to_100(value, &c->ceiling);
}

static int read_placement_policy(struct json value, struct share_config *c) {
    static const char *const words[] = {
#define WORD(id, word) word,
        PLACEMENT_POLICIES(WORD, WORD, WORD)
#undef WORD
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (json_is_string(value, words[i]))
            return read_word(value, c->placement_policy, sizeof(c->placement_policy));
    return -EINVAL;
}

static const struct member {
    const char *name;
    int (*read)(struct json value, struct share_config *c);
    const char *rule;
} members[] = {
    {"apiVersion", check_version, SHARE_CONFIG_VERSION},
    {"kind", check_kind, SHARE_CONFIG_KIND},
    {"computePolicy", read_compute_policy, "the name of a compute policy"},
    {"weight", read_weight, "a whole number from 1 to 100"},
    {"ceiling", read_ceiling, "a whole number from 1 to 100"},
    {"placementPolicy", read_placement_policy, PLACEMENT_POLICY_WORDS},
};

static const struct member *find_member(const char *name) {
    for (size_t i = 0; name && i < sizeof(members) / sizeof(members[0]); i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

int share_config_read(struct json parameters, struct share_config *config, struct err *err) {
    struct share_config c = *config;
    struct json_iter it = json_iter(parameters);
    struct json value;
    const char *key;

    if (json_type(parameters) != JSON_OBJECT || !json_valid(json_get(parameters, "apiVersion")) ||
        !json_valid(json_get(parameters, "kind")))
        return err_set(err, EINVAL,
                       "parameters for " DRA_DRIVER " must be an object of "
                       "apiVersion " SHARE_CONFIG_VERSION " and kind " SHARE_CONFIG_KIND);
    while (json_next(&it, &key, &value)) {
        const struct member *member = find_member(key);

        if (!member)
            return err_set(err, EINVAL, "ShareConfig has no field %.64s",
                           key ? key : "of this name");
        if (member->read(value, &c) < 0)
            return err_set(err, EINVAL, "ShareConfig: %s must be %s", member->name, member->rule);
    }
    *config = c;
    return 0;
}

static int read_config(const struct device_config *config, struct share_config *c,
                       struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    const char *text = config->parameters ? config->parameters : "null";
    struct json root;
    int r = json_open(text, strlen(text), &parser, &root, err);

    return r < 0 ? r : share_config_read(root, c, err);
}

int share_config_of(const struct device_config *configs, uint32_t n, const char *request,
                    struct share_config *ret, struct err *err) {
    struct share_config c = {0};
    int r = 0;

    for (int claim = 0; claim < 2; claim++)
        for (uint32_t i = 0; r == 0 && i < n; i++)
            if (configs[i].from_class == !claim && strcmp(configs[i].driver, DRA_DRIVER) == 0 &&
                device_requests_have(&configs[i].requests, request))
                r = read_config(&configs[i], &c, err);
    if (r == 0)
        *ret = c;
    return r;
}
