/* SPDX-License-Identifier: Apache-2.0 */

/* Section `aliquot`. */

#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"
#include "base/num.h"
#include "mig/file.h"
#include "model/dra.h"

#define HEALTH(field)                                                                              \
    (offsetof(struct node_config, health) + offsetof(struct health_options, field))

static const struct yaml_range interval = {100, 60000}, deadline = {500, 60000},
                               settle = {0, 600000}, timeout = {1000, 3600000},
                               within = {1000, 86400000}, times = {0, HEALTH_FLAPPING_MAX},
                               temperature = {0, 150};
static const char *const recoveries[] = {"manual", "auto", NULL};
static const char *const resets[] = {"never", "idle", "drain", NULL};

/* ---- health ---- */

static int add_xid(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct xid_set *set = target;
    uint64_t code;

    (void) arg;
    if (!v->text || num_parse_u64(v->text, UINT32_MAX, &code) < 0 || xid_set_add(set, code) < 0)
        return yaml_error(v, err, "'%.40s' is not an XID: expected a number below %d",
                          v->text ? v->text : yaml_type_name(v), XID_CODES_MAX);
    return 0;
}

static int read_xids(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    return yaml_read_each(v, add_xid, target, NULL, err);
}

static int read_recover(const struct yaml *v, void *target, const void *arg, struct err *err) {
    bool *ret = target;
    int word = 0, r = yaml_word(v, &word, arg, err);

    if (r == 0)
        *ret = word == 1;
    return r;
}

static int read_within(const struct yaml *v, void *target, const void *arg, struct err *err) {
    uint64_t *ret = target;
    uint32_t ms = 0;
    int r = config_milliseconds(v, &ms, arg, err);

    if (r == 0)
        *ret = ms;
    return r;
}

static const struct yaml_field flapping[] = {
    {"times", yaml_u32, HEALTH(flapping_times), &times, false},
    {"within", read_within, HEALTH(flapping_within_ms), &within, false},
    YAML_FIELD_END,
};

static const struct yaml_field health[] = {
    {"interval", config_milliseconds, HEALTH(interval_ms), &interval, false},
    {"deadline", config_milliseconds, HEALTH(deadline_ms), &deadline, false},
    {"settle", config_milliseconds, HEALTH(settle_ms), &settle, false},
    {"fatalXids", read_xids, HEALTH(xids.fatal), NULL, false},
    {"ignoreXids", read_xids, HEALTH(xids.ignored), NULL, false},
    {"maxTemperature", yaml_u32, HEALTH(max_temperature), &temperature, false},
    {"recover", read_recover, HEALTH(recover), recoveries, false},
    {"flapping", config_section, 0, flapping, false},
    YAML_FIELD_END,
};

/* ---- reset ---- */

static int read_policy(const struct yaml *v, void *target, const void *arg, struct err *err) {
    static const enum health_reset values[] = {HEALTH_RESET_NEVER, HEALTH_RESET_IDLE,
                                               HEALTH_RESET_DRAIN};
    enum health_reset *ret = target;
    int word = 0, r = yaml_word(v, &word, arg, err);

    if (r == 0)
        *ret = values[word];
    return r;
}

static int add_word(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;
    size_t n = 0;

    while (c->reset_command[n])
        n++;
    if (n == CONFIG_WORDS_MAX)
        return yaml_error(v, err, "a command of more than %d words", CONFIG_WORDS_MAX);
    return yaml_string(v, &c->reset_command[n], arg, err);
}

static int read_command(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;
    int r = yaml_read_each(v, add_word, c, arg, err);

    if (r < 0)
        return r;
    if (!c->reset_command[0] || c->reset_command[0][0] != '/')
        return yaml_error(v, err, "expected a program by its absolute path, then its arguments");
    return 0;
}

static const struct yaml_field reset[] = {
    {"policy", read_policy, HEALTH(reset), resets, false},
    {"command", read_command, 0, NULL, false},
    {"timeout", config_milliseconds, HEALTH(reset_timeout_ms), &timeout, false},
    YAML_FIELD_END,
};

/* ---- cards ---- */

static const struct yaml_field cards[] = {
    {"devices", config_devices, offsetof(struct config_cards, devices), NULL, true},
    {"mode", yaml_word, offsetof(struct config_cards, mode), config_modes, false},
    {"memoryScaling", config_scaling, offsetof(struct config_cards, memory_scaling), NULL, false},
    {"dynamic", yaml_bool, offsetof(struct config_cards, dynamic), NULL, false},
    {"allocator", yaml_word, offsetof(struct config_cards, allocator), dra_allocator_names, false},
    YAML_FIELD_END,
};

static int add_cards(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct node_config *c = target;

    (void) arg;
    if (c->ncards == CONFIG_ROWS_MAX)
        return yaml_error(v, err, "more than %d entries", CONFIG_ROWS_MAX);
    c->cards[c->ncards].mode = c->cards[c->ncards].allocator = -1;
    return yaml_read(v, cards, &c->cards[c->ncards++], err);
}

static int read_cards(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    return yaml_read_each(v, add_cards, target, NULL, err);
}

static int read_mig_config(const struct yaml *v, void *target, const void *arg, struct err *err) {
    if (v->text && strlen(v->text) >= MIG_CONFIG_NAME_MAX)
        return yaml_error(v, err, "the name of a configuration has at most %d characters",
                          MIG_CONFIG_NAME_MAX - 1);
    return yaml_string(v, target, arg, err);
}

static const struct yaml_field mig[] = {
    {"config", read_mig_config, offsetof(struct node_config, mig_config), NULL, false},
    {"dynamic", yaml_bool, offsetof(struct node_config, mig_dynamic), NULL, false},
    YAML_FIELD_END,
};

const struct yaml_field config_aliquot[] = {
    {"health", config_section, 0, health, false},
    {"reset", config_section, 0, reset, false},
    {"allocationPolicy", yaml_word, offsetof(struct node_config, allocation_policy),
     config_allocations, false},
    {"cards", read_cards, 0, NULL, false},
    {"mig", config_section, 0, mig, false},
    YAML_FIELD_END,
};
