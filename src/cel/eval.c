/* SPDX-License-Identifier: Apache-2.0 */

/* The value of a tree for one device. Errors are values, which && and || absorb. What is not served
 * ends the evaluation. */

#include <string.h>

#include "cel/internal.h"

#define KEY_TOLD_MAX 64

static struct cel_value eval(struct cel_run *run, uint32_t at);

static const struct cel_node *node_of(const struct cel_run *run, uint32_t node) {
    return &run->cel->nodes[node];
}

static struct cel_value truth(bool value) {
    return (struct cel_value){.type = CEL_BOOL, .truth = value};
}

static struct cel_value no_overload(void) {
    return cel_error("no such overload");
}

/* Of two operands of which at least one has failed. */
static struct cel_value worse(struct cel_value a, struct cel_value b) {
    return b.type == CEL_NOT_SERVED || !cel_is_failure(&a) ? b : a;
}

/* ---- the device ---- */

static bool is_name(const char *name, struct cel_text text) {
    return strlen(name) == text.len && memcmp(name, text.data, text.len) == 0;
}

static struct cel_text text_of(const char *text) {
    return (struct cel_text){text, strlen(text)};
}

static struct cel_value attribute(struct cel_run *run, const struct cel_attribute *a) {
    struct cel_value value = {.type = CEL_STRING, .text = text_of(a->text ? a->text : "")};
    if (a->kind == CEL_KIND_STRING)
        return value;
    if (a->kind == CEL_KIND_BOOL)
        return truth(a->number != 0);
    if (a->kind == CEL_KIND_INT)
        return (struct cel_value){.type = CEL_INT, .number = a->number};
    char *buf = cel_make(run, CEL_VERSION_MAX);
    struct cel_value version = {.type = CEL_VERSION};
    if (buf && cel_version_parse(value.text, false, buf, &version.version) == CEL_PARSED)
        return version;
    return cel_not_served("an attribute that is no version");
}

static const struct cel_attribute *
find_attribute(const struct cel_device *d, struct cel_text domain, const struct cel_text *name) {
    for (uint32_t i = 0; i < d->nattributes; i++)
        if (is_name(d->attributes[i].domain, domain) &&
            (!name || is_name(d->attributes[i].name, *name)))
            return &d->attributes[i];
    return NULL;
}

static const struct cel_capacity *find_capacity(const struct cel_device *d, struct cel_text domain,
                                                const struct cel_text *name) {
    for (uint32_t i = 0; i < d->ncapacities; i++)
        if (is_name(d->capacities[i].domain, domain) &&
            (!name || is_name(d->capacities[i].name, *name)))
            return &d->capacities[i];
    return NULL;
}

static struct cel_value field(const struct cel_run *run, const struct cel_node *node) {
    struct cel_value value = {.type = node->type};
    if (node->type == CEL_STRING)
        value.text = text_of(run->device->driver);
    else if (node->type == CEL_BOOL)
        value.truth = run->device->multiple;
    return value;
}

/* Whether the map has the key. A domain without attributes is an empty map. */
static bool has_key(const struct cel_run *run, const struct cel_value *map,
                    const struct cel_text *key) {
    const struct cel_device *d = run->device;
    switch ((int) map->type) {
    case CEL_ATTRIBUTES:
        return find_attribute(d, *key, NULL) != NULL;
    case CEL_CAPACITIES:
        return find_capacity(d, *key, NULL) != NULL;
    case CEL_ATTRIBUTES_OF:
        return find_attribute(d, map->text, key) != NULL;
    default:
        return find_capacity(d, map->text, key) != NULL;
    }
}

static bool is_map(const struct cel_value *value) {
    return value->type >= CEL_ATTRIBUTES && value->type <= CEL_CAPACITIES_OF;
}

static struct cel_value key(struct cel_run *run, const struct cel_node *node) {
    struct cel_value map = eval(run, node->first);
    struct cel_value name = eval(run, node_of(run, node->first)->next);
    if (cel_is_failure(&map) || cel_is_failure(&name))
        return worse(map, name);
    if (!is_map(&map) || name.type != CEL_STRING)
        return cel_not_served("a key that is no string");
    if (map.type == CEL_ATTRIBUTES || map.type == CEL_CAPACITIES)
        return (struct cel_value){.type = map.type == CEL_ATTRIBUTES ? CEL_ATTRIBUTES_OF
                                                                     : CEL_CAPACITIES_OF,
                                  .text = name.text};
    if (map.type == CEL_ATTRIBUTES_OF) {
        const struct cel_attribute *a = find_attribute(run->device, map.text, &name.text);
        if (a)
            return attribute(run, a);
    } else {
        const struct cel_capacity *c = find_capacity(run->device, map.text, &name.text);
        if (c)
            return (struct cel_value){.type = CEL_QUANTITY,
                                      .quantity = (cel_nano) c->value * 1000000000};
    }
    struct cel_value error = cel_error("no such key: ");
    error.text = name.text;
    return error;
}

/* ---- operators that are no functions ---- */

static struct cel_value has(struct cel_run *run, const struct cel_node *node) {
    struct cel_value map = eval(run, node->first);
    struct cel_value name = eval(run, node_of(run, node->first)->next);
    if (cel_is_failure(&map) || cel_is_failure(&name))
        return worse(map, name);
    if (map.type != CEL_ATTRIBUTES_OF && map.type != CEL_CAPACITIES_OF)
        return cel_not_served("has() of this");
    return truth(has_key(run, &map, &name.text));
}

/* As Kubernetes compares: versions and quantities with nothing else, others with all. */
static struct cel_value equal(const struct cel_value *a, const struct cel_value *b, bool unequal) {
    if (a->type == b->type)
        return truth((cel_compare(a, b) == 0) != unequal);
    if (!unequal && (a->type == CEL_VERSION || a->type == CEL_QUANTITY))
        return no_overload();
    return truth(unequal);
}

static struct cel_value compare(struct cel_run *run, const struct cel_node *node, bool unequal) {
    struct cel_value a = eval(run, node->first);
    struct cel_value b = eval(run, node_of(run, node->first)->next);
    if (cel_is_failure(&a) || cel_is_failure(&b))
        return worse(a, b);
    if (a.type > CEL_QUANTITY || b.type > CEL_QUANTITY)
        return cel_not_served("a comparison of these types");
    return equal(&a, &b, unequal);
}

static struct cel_value in(struct cel_run *run, const struct cel_node *node) {
    struct cel_value a = eval(run, node->first);
    struct cel_value b = eval(run, node_of(run, node->first)->next);
    if (cel_is_failure(&a) || cel_is_failure(&b))
        return worse(a, b);
    if (is_map(&b))
        return a.type == CEL_STRING ? truth(has_key(run, &b, &a.text))
                                    : cel_not_served("a key that is no string");
    if (b.type != CEL_LIST || a.type > CEL_STRING)
        return cel_not_served("\"in\" for these types");
    for (uint32_t i = node_of(run, b.list)->first; i; i = node_of(run, i)->next) {
        const struct cel_value *item = &node_of(run, i)->value;
        if (!cel_spend(run, 1 + (item->type == CEL_STRING ? item->text.len : 0)))
            return cel_not_served("an evaluation that costs too much");
        if (equal(&a, item, false).truth)
            return truth(true);
    }
    return truth(false);
}

/* && and ||: `end` is the value of an operand that decides. */
static struct cel_value logic(struct cel_run *run, const struct cel_node *node, bool end) {
    struct cel_value failed = truth(false);
    for (uint32_t i = node->first; i; i = node_of(run, i)->next) {
        struct cel_value value = eval(run, i);
        if (value.type == CEL_NOT_SERVED || (value.type == CEL_BOOL && value.truth == end))
            return value;
        if (value.type != CEL_BOOL && !cel_is_failure(&value))
            value = no_overload();
        if (cel_is_failure(&value) && !cel_is_failure(&failed))
            failed = value;
    }
    return cel_is_failure(&failed) ? failed : truth(!end);
}

static struct cel_value negate(struct cel_run *run, const struct cel_node *node) {
    struct cel_value value = eval(run, node->first);
    if (cel_is_failure(&value))
        return value;
    return value.type == CEL_BOOL ? truth(!value.truth) : no_overload();
}

static struct cel_value choose(struct cel_run *run, const struct cel_node *node) {
    struct cel_value condition = eval(run, node->first);
    uint32_t yes = node_of(run, node->first)->next;
    if (cel_is_failure(&condition))
        return condition;
    if (condition.type != CEL_BOOL)
        return no_overload();
    return eval(run, condition.truth ? yes : node_of(run, yes)->next);
}

static struct cel_value bind(struct cel_run *run, const struct cel_node *node) {
    struct cel_value value = eval(run, node->first);
    if (value.type == CEL_NOT_SERVED)
        return value;
    run->bound[node->slot] = value;
    return eval(run, node_of(run, node->first)->next);
}

/* ---- calls ---- */

static bool fits(const struct cel_function *f, const struct cel_value *args) {
    for (uint32_t i = 0; i < f->nargs; i++)
        if (f->args[i] != args[i].type)
            return false;
    return true;
}

static struct cel_value call(struct cel_run *run, const struct cel_node *node) {
    const struct cel_function *first = cel_function(node->row), *f;
    struct cel_value args[CEL_ARGS_MAX], failed = truth(false);
    size_t cost = 0;
    uint32_t n = 0;
    for (uint32_t i = node->first; i; i = node_of(run, i)->next, n++) {
        args[n] = eval(run, i);
        if (cel_is_failure(&args[n]))
            failed = cel_is_failure(&failed) ? worse(failed, args[n]) : args[n];
        cost += args[n].type == CEL_STRING ? args[n].text.len : 0;
    }
    if (cel_is_failure(&failed))
        return failed;
    if (!cel_spend(run, cost))
        return cel_not_served("an evaluation that costs too much");
    for (uint32_t row = node->row; (f = cel_function(row)); row++)
        if (strcmp(f->name, first->name) != 0 || f->nargs != n)
            break;
        else if (fits(f, args))
            return f->call(run, args);
    return no_overload();
}

/* ---- all of it ---- */

static struct cel_value eval_node(struct cel_run *run, const struct cel_node *node, uint32_t at) {
    switch (node->op) {
    case CEL_OP_CONST:
        return node->value;
    case CEL_OP_LIST:
        return (struct cel_value){.type = CEL_LIST, .list = at};
    case CEL_OP_VARIABLE:
        return run->bound[node->slot];
    case CEL_OP_FIELD:
        return field(run, node);
    case CEL_OP_KEY:
        return key(run, node);
    case CEL_OP_HAS:
        return has(run, node);
    case CEL_OP_IN:
        return in(run, node);
    case CEL_OP_EQUAL:
    case CEL_OP_UNEQUAL:
        return compare(run, node, node->op == CEL_OP_UNEQUAL);
    case CEL_OP_AND:
    case CEL_OP_OR:
        return logic(run, node, node->op == CEL_OP_OR);
    case CEL_OP_NOT:
        return negate(run, node);
    case CEL_OP_IF:
        return choose(run, node);
    case CEL_OP_BIND:
        return bind(run, node);
    default:
        return call(run, node);
    }
}

static struct cel_value eval(struct cel_run *run, uint32_t at) {
    const struct cel_node *node = node_of(run, at);
    if (!cel_spend(run, 1))
        return cel_not_served("an evaluation that costs too much");
    struct cel_value value = eval_node(run, node, at);
    if (cel_is_failure(&value) && value.column == 0)
        value.column = node->column;
    return value;
}

enum cel_answer cel_ask(const struct cel *cel, const struct cel_device *device, uint64_t *budget,
                        struct err *why) {
    struct cel_run run = {.cel = cel, .device = device, .budget = budget};
    struct cel_value value = eval(&run, cel->nodes[0].first);
    enum cel_answer answer = value.type == CEL_NOT_SERVED ? CEL_UNSERVED
                             : value.type != CEL_BOOL     ? CEL_FAILS
                             : value.truth                ? CEL_YES
                                                          : CEL_NO;
    if (value.type != CEL_BOOL && !cel_is_failure(&value))
        value.problem = "the result is no bool";
    if (answer == CEL_FAILS || answer == CEL_UNSERVED) {
        bool key = cel_is_failure(&value) && value.text.data;
        size_t len = key ? value.text.len : 0;
        (void) err_set(why, EINVAL, "%s%.*s at column %u", value.problem,
                       (int) (len < KEY_TOLD_MAX ? len : KEY_TOLD_MAX), key ? value.text.data : "",
                       value.column > 0 ? value.column : 1);
    }
    cel_unmake(&run);
    return answer;
}
