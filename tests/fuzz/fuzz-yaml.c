/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "wire/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct yaml *v, uint32_t *nodes);

static void check_all(const struct yaml *of, uint32_t *nodes) {
    const struct yaml *last = NULL;
    size_t n = 0;

    for (const struct yaml *v = of->first; v; v = v->next, n++) {
        if (!v->key != (of->type != YAML_MAP) || (v->key && !v->key->text))
            abort();
        if (v->key && yaml_get(of, v->key->text) != v)
            abort();
        check(v, nodes);
        last = v;
    }
    if (n != of->size || (last && last->next))
        abort();
}

/* Deeper than the text: aliases in aliases. Each level has at least one node. */
static void check(const struct yaml *v, uint32_t *nodes) {
    bool scalar = v->type != YAML_LIST && v->type != YAML_MAP;
    uint64_t ns;
    bool on;

    if (++*nodes > YAML_NODES_MAX || v->line == 0 || v->column == 0 || scalar != !!v->text)
        abort();
    if (scalar && v->size > 0)
        abort();
    (void) yaml_duration(v, &ns, NULL, NULL);
    (void) yaml_bool(v, &on, NULL, NULL);
    check_all(v, nodes);
}

static int any(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    (void) target;
    return yaml_error(v, err, "%s", yaml_type_name(v));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct yaml_field fields[] = {
        {"version", any, 0, NULL, true}, {"flags", NULL, 0, NULL, false}, YAML_FIELD_END};
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root = NULL;
    struct err err = {0};
    uint32_t nodes = 0;

    if (yaml_parse((const char *) data, size, &doc, &root, &err) < 0) {
        if (doc || root || !err.text[0])
            abort();
        return 0;
    }
    check(root, &nodes);
    (void) yaml_read(root, fields, NULL, &err);
    (void) yaml_read_each(root, any, NULL, NULL, &err);
    return 0;
}
