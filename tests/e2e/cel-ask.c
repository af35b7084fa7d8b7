/* SPDX-License-Identifier: Apache-2.0 */

/* cel-ask: {"devices": [...], "expressions": [...]} on stdin, with the devices as in a
 * ResourceSlice and their `driver` beside. Prints a line for each expression: a JSON array with an
 * answer for each device, or one for all where the expression cannot be read. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cel/cel.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define ITEMS_MAX 32
#define DEVICES_MAX 16
#define BUDGET 100000

struct device {
    struct cel_device cel;
    struct cel_attribute attributes[ITEMS_MAX];
    struct cel_capacity capacities[ITEMS_MAX];
};

/* "domain/name", or a name of the driver's. */
static void split(const char *name, const char *driver, const char **domain, const char **rest) {
    const char *slash = strchr(name, '/');

    *domain = slash ? strndup(name, (size_t) (slash - name)) : driver;
    *rest = slash ? slash + 1 : name;
}

static void read_attribute(struct json value, struct cel_attribute *a) {
    static const char *const kinds[] = {"bool", "int", "string", "version"};
    bool truth = false;

    for (int i = 0; i < 4; i++)
        if (json_valid(json_get(value, kinds[i])))
            a->kind = (enum cel_kind) i;
    (void) json_i64(json_get(value, "int"), &a->number);
    if (json_bool(json_get(value, "bool"), &truth))
        a->number = truth;
    a->text = json_string(json_get(value, kinds[a->kind]));
}

static void read_device(struct json object, struct device *d) {
    struct json_iter it = json_iter(json_get(object, "attributes"));
    struct json value;
    const char *key;

    d->cel.driver = json_string_or(json_get(object, "driver"), "");
    (void) json_bool(json_get(object, "allowMultipleAllocations"), &d->cel.multiple);
    d->cel.attributes = d->attributes;
    d->cel.capacities = d->capacities;
    while (d->cel.nattributes < ITEMS_MAX && json_next(&it, &key, &value)) {
        struct cel_attribute *a = &d->attributes[d->cel.nattributes++];

        split(key, d->cel.driver, &a->domain, &a->name);
        read_attribute(value, a);
    }
    it = json_iter(json_get(object, "capacity"));
    while (d->cel.ncapacities < ITEMS_MAX && json_next(&it, &key, &value)) {
        struct cel_capacity *c = &d->capacities[d->cel.ncapacities++];

        split(key, d->cel.driver, &c->domain, &c->name);
        c->value = strtoull(json_string_or(json_get(value, "value"), "0"), NULL, 10);
    }
}

static void ask(const char *text, const struct device *devices, size_t n) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    struct json_writer w = {.out = &out};
    struct cel *cel;
    struct err err;

    json_array_begin(&w, NULL);
    if (cel_parse(text, &cel, &err) < 0) {
        json_put_stringf(&w, NULL, "unsupported: %s", err.text);
        n = 0;
        cel = NULL;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t budget = BUDGET;
        enum cel_answer answer = cel_ask(cel, &devices[i].cel, &budget, &err);

        json_put_stringf(&w, NULL, "%s%s",
                         answer == CEL_YES     ? "true"
                         : answer == CEL_NO    ? "false"
                         : answer == CEL_FAILS ? "error: "
                                               : "unsupported: ",
                         answer == CEL_FAILS || answer == CEL_UNSERVED ? err.text : "");
    }
    json_array_end(&w);
    printf("%s\n", buf_str(&out));
    cel_free(cel);
}

int main(void) {
    static struct device devices[DEVICES_MAX];
    static char text[1 << 22];
    _cleanup_json_ struct json_parser *parser = NULL;
    size_t len = fread(text, 1, sizeof(text), stdin), n = 0;
    struct json root, item;
    struct err err;

    if (json_open(text, len, &parser, &root, &err) < 0) {
        fprintf(stderr, "cel-ask: %s\n", err.text);
        return 1;
    }
    struct json_iter it = json_iter(json_get(root, "devices"));
    while (n < DEVICES_MAX && json_next(&it, NULL, &item))
        read_device(item, &devices[n++]);
    it = json_iter(json_get(root, "expressions"));
    while (json_next(&it, NULL, &item))
        ask(json_string_or(item, ""), devices, n);
    return 0;
}
