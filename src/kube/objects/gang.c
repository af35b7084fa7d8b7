/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/gang.h"

#include <string.h>

#include "base/num.h"
#include "kube/api/field.h"

/* Annotations of Aliquot, koordinator and the coscheduling plugin; the first that names a gang is
 * used. Groups with an object of their own (volcano, KAI) are left to their schedulers. They are
 * not in dialects.def: a gang's pods may have no GPU, and resources of any dialect. */
static const struct {
    const char *name, *size, *timeout;
} dialects[] = {
    {"elasticgpu.io/gang", "elasticgpu.io/gang-size", "elasticgpu.io/gang-timeout"},
    {"gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available",
     "gang.scheduling.koordinator.sh/waiting-time"},
    {"pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available",
     NULL},
};

/* Permitted characters of a name: it is printed on terminals of others. */
static bool is_name(const char *name) {
    static const char good[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_./:";
    return *name && name[strspn(name, good)] == '\0';
}

static struct json read_mark(struct json metadata, const char *key) {
    struct json value = JSON_PATH(metadata, "annotations", key);
    return json_valid(value) ? value : JSON_PATH(metadata, "labels", key);
}

bool gang_parse_seconds(const char *text, uint32_t *ret) {
    static const struct {
        char unit;
        uint32_t seconds;
    } units[] = {{'h', 3600}, {'m', 60}, {'s', 1}};
    uint64_t total = 0;
    bool any = false;
    for (size_t u = 0; *text; u++) {
        size_t digits = strspn(text, "0123456789");
        uint64_t value = 0;
        if (digits == 0 || digits > 6)
            return false;
        for (size_t i = 0; i < digits; i++)
            value = value * 10 + (uint64_t) (text[i] - '0');
        text += digits;
        if (*text == '\0' && !any) {
            total = value;
            break;
        }
        while (u < 3 && units[u].unit != *text)
            u++;
        if (u == 3)
            return false;
        total += value * units[u].seconds;
        text++;
        any = true;
    }
    if (total == 0 || total > GANG_TIMEOUT_MAX_S)
        return false;
    *ret = (uint32_t) total;
    return true;
}

bool gang_read(struct json metadata, struct pod_gang *ret) {
    for (size_t i = 0; i < sizeof(dialects) / sizeof(dialects[0]); i++) {
        struct pod_gang gang = {.timeout_s = GANG_TIMEOUT_S};
        struct json name = read_mark(metadata, dialects[i].name);
        const char *size = json_string(read_mark(metadata, dialects[i].size));
        const char *timeout =
            dialects[i].timeout ? json_string(read_mark(metadata, dialects[i].timeout)) : NULL;
        uint64_t value;
        if (!json_valid(name) || (i > 0 && !size))
            continue; /* a group of another project, whose size is in another object */
        bool good = field_copy(name, gang.name, sizeof(gang.name)) == 0 && is_name(gang.name);
        if (!good)
            memcpy(gang.name, "?", 2);
        good = good && size && num_parse_u64(size, GANG_SIZE_MAX, &value) == 0 &&
               (!timeout || gang_parse_seconds(timeout, &gang.timeout_s));
        gang.size = good ? (uint32_t) value : 0;
        *ret = gang;
        return true;
    }
    return false;
}
