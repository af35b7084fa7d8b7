/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/units.h"
#include "model/mig_strategy.h"

#define FIELD_MAX 9999 /* of a number in a name */

/* "<number><unit>" of `len` bytes. */
static int parse_field(const char *text, size_t len, const char *unit, uint32_t *ret) {
    char digits[8];
    size_t n = strlen(unit);
    uint64_t value;

    if (len <= n || len - n >= sizeof(digits) || memcmp(text + len - n, unit, n) != 0)
        return -EINVAL;
    memcpy(digits, text, len - n);
    digits[len - n] = 0;
    if (num_parse_u64(digits, FIELD_MAX, &value) < 0)
        return -EINVAL;
    *ret = (uint32_t) value;
    return 0;
}

/* "1c.3g.40gb" or "3g.40gb", `len` bytes. */
static int parse_fields(const char *text, size_t len, struct mig_name *ret) {
    const char *dot = memchr(text, '.', len), *last;
    size_t first;

    if (!dot)
        return -EINVAL;
    first = (size_t) (dot - text);
    last = memchr(dot + 1, '.', len - first - 1);
    if (!last) {
        if (parse_field(text, first, "g", &ret->slices) < 0)
            return -EINVAL;
        ret->compute = ret->slices;
        return parse_field(dot + 1, len - first - 1, "gb", &ret->gb);
    }
    if (parse_field(text, first, "c", &ret->compute) < 0 ||
        parse_field(dot + 1, (size_t) (last - dot - 1), "g", &ret->slices) < 0)
        return -EINVAL;
    return parse_field(last + 1, len - (size_t) (last + 1 - text), "gb", &ret->gb);
}

/* One attribute or several with commas between them, behind the sign. No profile has two. */
static bool attributes_ok(const char *text) {
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");

        if (n == 0 || !isalpha((unsigned char) at[0]) || at[n - 1] == '.')
            return false;
        for (size_t i = 0; i < n; i++)
            if (!isalnum((unsigned char) at[i]) && at[i] != '.')
                return false;
        at += n;
        if (!*at)
            return true;
    }
}

int mig_name_parse(const char *text, struct mig_name *ret, struct err *err) {
    struct mig_name name = {0};
    size_t len = strcspn(text, "+-");

    if (parse_fields(text, len, &name) < 0)
        return err_set(err, EINVAL, "'%s' is no MIG device: expected a name such as 1g.10gb", text);
    if (text[len] &&
        (!attributes_ok(text + len + 1) || strlen(text + len) >= sizeof(name.attributes)))
        return err_set(err, EINVAL, "'%s' is no MIG device: '%s' is no attribute", text,
                       text + len);
    memcpy(name.attributes, text + len, strlen(text + len) + 1);
    *ret = name;
    return 0;
}

const char *mig_name_format(const struct mig_name *name, char out[static MIG_PROFILE_NAME_MAX]) {
    char part[12] = "";

    if (name->compute != name->slices)
        (void) snprintf(part, sizeof(part), "%uc.", name->compute);
    (void) snprintf(out, MIG_PROFILE_NAME_MAX, "%s%ug.%ugb%s", part, name->slices, name->gb,
                    name->attributes);
    return out;
}

bool mig_name_equal(const struct mig_name *a, const struct mig_name *b) {
    return a->compute == b->compute && a->slices == b->slices && a->gb == b->gb &&
           strcmp(a->attributes, b->attributes) == 0;
}

const char *mig_name_attributes(uint32_t number) {
    static const char *const names[MIG_PROFILE_NUMBERS] = {
        [7] = "+me",  [8] = "+me",  [10] = "+gfx",    [11] = "+gfx",    [12] = "+gfx",
        [13] = "-me", [14] = "-me", [15] = "+me.all", [16] = "+me.all", [17] = "+gfx",
    };

    return number < MIG_PROFILE_NUMBERS && names[number] ? names[number] : "";
}

uint32_t mig_name_gb(uint64_t mib, uint64_t total) {
    uint64_t gb = (total + GIB - 1) / GIB, eighths;

    if (total == 0)
        return 0;
    eighths = (mib * MIB * 8 + total - 1) / total;
    return (uint32_t) ((eighths * gb + 4) / 8);
}

bool mig_name_of_resource(const char *resource, struct mig_name *ret) {
    char text[MIG_PROFILE_NAME_MAX];
    size_t prefix = strlen(MIG_RESOURCE_PREFIX);
    char *dot;

    if (strncmp(resource, MIG_RESOURCE_PREFIX, prefix) != 0 ||
        strlen(resource + prefix) >= sizeof(text))
        return false;
    memcpy(text, resource + prefix, strlen(resource + prefix) + 1);
    dot = strstr(text, "gb.");
    if (dot)
        dot[2] = '+';
    return mig_name_parse(text, ret, NULL) == 0 && ret->compute == ret->slices;
}
