/* SPDX-License-Identifier: Apache-2.0 */

/* From text to a tree of nodes with their static types. Every function that reads a part returns
 * its node, or 0 with the parser's error. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cel/internal.h"

struct parser {
    struct cel *cel;
    struct cel_lexer lexer;
    struct err *err;
    unsigned nesting; /* of functions that call themselves */
    unsigned nbinds;
    struct {
        struct cel_text name;
        enum cel_type type;
    } binds[CEL_BINDS_MAX];
};

static uint32_t read_expression(struct parser *p);

/* ---- tools ---- */

static struct cel_node *node_of(const struct parser *p, uint32_t node) {
    return &p->cel->nodes[node];
}

static uint32_t refuse(struct parser *p, uint32_t column, const char *what,
                       const struct cel_text *name) {
    (void) err_set(p->err, EINVAL, "%s%s%.*s at column %u", what, name ? " " : "",
                   name ? (int) (name->len < 64 ? name->len : 64) : 0, name ? name->data : "",
                   column);
    return 0;
}

static uint32_t refuse_token(struct parser *p) {
    const struct cel_token *token = &p->lexer.token;
    if (token->kind == CEL_TOKEN_END)
        return refuse(p, token->column, "the end of the expression", NULL);
    return refuse(p, token->column, token->kind == CEL_TOKEN_STRING ? "a string" : "unexpected",
                  token->kind == CEL_TOKEN_STRING ? NULL : &token->text);
}

static bool is_text(struct cel_text a, const char *b) {
    return strlen(b) == a.len && memcmp(a.data, b, a.len) == 0;
}

static bool is_op(const struct parser *p, const char *op) {
    return p->lexer.token.kind == CEL_TOKEN_OP && is_text(p->lexer.token.text, op);
}

static bool next(struct parser *p) {
    return cel_lex(&p->lexer);
}

static bool expect(struct parser *p, const char *op) {
    if (!is_op(p, op))
        return refuse_token(p) != 0;
    return next(p);
}

static uint32_t add(struct parser *p, enum cel_op op, enum cel_type type, uint32_t column) {
    struct cel *cel = p->cel;
    if (cel->n == cel->cap) {
        uint32_t cap = cel->cap * 2;
        struct cel_node *nodes = realloc(cel->nodes, cap * sizeof(*nodes));
        if (!nodes) {
            (void) err_errno(p->err, ENOMEM, "cannot read a selector");
            return 0;
        }
        cel->nodes = nodes;
        cel->cap = cap;
    }
    cel->nodes[cel->n] = (struct cel_node){.op = op, .type = type, .column = column, .depth = 1};
    return cel->n++;
}

/* Makes `child` the last child. 0: the tree is too deep. */
static uint32_t append(struct parser *p, uint32_t node, uint32_t child) {
    struct cel_node *parent = node_of(p, node);
    if (parent->last)
        node_of(p, parent->last)->next = child;
    else
        parent->first = child;
    parent->last = child;
    if (parent->depth <= node_of(p, child)->depth)
        parent->depth = node_of(p, child)->depth + 1;
    if (parent->depth > CEL_DEPTH_MAX)
        return refuse(p, parent->column, "an expression that is nested too deep", NULL);
    return node;
}

static uint32_t make(struct parser *p, enum cel_op op, enum cel_type type, uint32_t column,
                     uint32_t a, uint32_t b) {
    uint32_t node = a ? add(p, op, type, column) : 0;
    if (node)
        node = append(p, node, a);
    return node && b ? append(p, node, b) : node;
}

/* Behind the arguments that a binary operator or index has read; one of them may have failed. */
static uint32_t make_pair(struct parser *p, enum cel_op op, enum cel_type type, uint32_t column,
                          uint32_t a, uint32_t b) {
    return a && b ? make(p, op, type, column, a, b) : 0;
}

static uint32_t make_const(struct parser *p, struct cel_value value, uint32_t column) {
    uint32_t node = add(p, CEL_OP_CONST, value.type, column);
    if (node)
        node_of(p, node)->value = value;
    return node;
}

static bool may_be(enum cel_type type, enum cel_type wanted) {
    return type == wanted || type == CEL_ANY;
}

static bool is_scalar(enum cel_type type) {
    return type <= CEL_QUANTITY;
}

/* ---- calls ---- */

static bool fits(const struct parser *p, const struct cel_function *f, uint32_t call) {
    uint32_t arg = node_of(p, call)->first;
    for (uint32_t i = 0; i < f->nargs; i++, arg = node_of(p, arg)->next)
        if (!may_be(node_of(p, arg)->type, f->args[i]))
            return false;
    return true;
}

/* Finds the function of a node that has its arguments. */
static uint32_t resolve(struct parser *p, uint32_t call, struct cel_text name, bool member,
                        uint32_t nargs) {
    const struct cel_function *f;
    enum cel_type result = CEL_ERROR;
    bool known = false;
    for (uint32_t row = 0; (f = cel_function(row)); row++) {
        if (!is_text(name, f->name) || f->nargs != nargs || !(member ? f->member : f->global))
            continue;
        if (!known)
            node_of(p, call)->row = row;
        known = true;
        if (fits(p, f, call))
            result = result == CEL_ERROR || result == f->result ? f->result : CEL_ANY;
    }
    if (result == CEL_ERROR)
        return refuse(p, node_of(p, call)->column,
                      known ? "other types of arguments of" : "the function or macro", &name);
    node_of(p, call)->type = result;
    return call;
}

static uint32_t make_operator(struct parser *p, struct cel_text op, uint32_t column, uint32_t a,
                              uint32_t b) {
    uint32_t call = make(p, CEL_OP_CALL, CEL_ANY, column, a, b);
    return call ? resolve(p, call, op, false, b ? 2 : 1) : 0;
}

/* The arguments behind the "(", as children of `call`, and the ")". */
static uint32_t read_arguments(struct parser *p, uint32_t call, uint32_t *count) {
    while (call && !is_op(p, ")")) {
        uint32_t argument = read_expression(p);
        call = argument ? append(p, call, argument) : 0;
        ++*count;
        if (call && !is_op(p, ")") && !expect(p, ","))
            return 0;
    }
    return call && next(p) ? call : 0;
}

/* ---- macros ---- */

static uint32_t read_has(struct parser *p, uint32_t column) {
    uint32_t what = read_expression(p);
    if (!what || !expect(p, ")"))
        return 0;
    struct cel_node *node = node_of(p, what);
    if (node->op == CEL_OP_FIELD)
        return make_const(p, (struct cel_value){.type = CEL_BOOL, .truth = true}, column);
    if (node->op != CEL_OP_KEY || node->slot != 0)
        return refuse(p, column, "has() of what is no field", NULL);
    node->op = CEL_OP_HAS;
    node->type = CEL_BOOL;
    return what;
}

/* Names that mean something already, alone or before a ".". */
static bool is_taken(struct cel_text name) {
    static const char *const taken[] = {
        "device",  "cel",      "sets", "lists", "math",  "ip",     "cidr",      "base64", "format",
        "strings", "optional", "int",  "uint",  "bool",  "string", "bytes",     "double", "list",
        "map",     "type",     "in",   "true",  "false", "null",   "null_type", "google", "has"};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (is_text(name, taken[i]))
            return true;
    return false;
}

/* cel.bind(name, value, expression), behind its "(". */
static uint32_t read_bind(struct parser *p, uint32_t column) {
    const struct cel_token name = p->lexer.token;
    if (name.kind != CEL_TOKEN_NAME || is_taken(name.text))
        return refuse_token(p);
    if (p->nbinds == CEL_BINDS_MAX)
        return refuse(p, column, "too many variables", NULL);
    if (!next(p) || !expect(p, ","))
        return 0;
    uint32_t value = read_expression(p);
    if (!value || !expect(p, ","))
        return 0;
    p->binds[p->nbinds].name = name.text;
    p->binds[p->nbinds].type = node_of(p, value)->type;
    p->nbinds++;
    uint32_t body = read_expression(p);
    p->nbinds--;
    uint32_t node =
        body ? make_pair(p, CEL_OP_BIND, node_of(p, body)->type, column, value, body) : 0;
    if (!node || !expect(p, ")"))
        return 0;
    node_of(p, node)->slot = p->nbinds;
    return node;
}

/* ---- members ---- */

static const struct {
    const char *name;
    enum cel_type type;
} fields[] = {
    {"driver", CEL_STRING},
    {"allowMultipleAllocations", CEL_BOOL},
    {"attributes", CEL_ATTRIBUTES},
    {"capacity", CEL_CAPACITIES},
};

static uint32_t read_field(struct parser *p, struct cel_text name, uint32_t column) {
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (is_text(name, fields[i].name))
            return add(p, CEL_OP_FIELD, fields[i].type, column);
    return refuse(p, column, "the field", &name);
}

static enum cel_type type_of_key(enum cel_type target) {
    return target == CEL_ATTRIBUTES      ? CEL_ATTRIBUTES_OF
           : target == CEL_CAPACITIES    ? CEL_CAPACITIES_OF
           : target == CEL_CAPACITIES_OF ? CEL_QUANTITY
           : target == CEL_ATTRIBUTES_OF ? CEL_ANY
                                         : CEL_ERROR;
}

static uint32_t make_key(struct parser *p, uint32_t target, uint32_t key, uint32_t column) {
    enum cel_type type = target && key ? type_of_key(node_of(p, target)->type) : CEL_ERROR;
    if (!target || !key)
        return 0;
    if (type == CEL_ERROR || !may_be(node_of(p, key)->type, CEL_STRING))
        return refuse(p, column, "a field or index of what has none", NULL);
    return make(p, CEL_OP_KEY, type, column, target, key);
}

/* Behind "target." */
static uint32_t read_member(struct parser *p, uint32_t target) {
    const struct cel_token name = p->lexer.token;
    if (name.kind != CEL_TOKEN_NAME || !next(p))
        return name.kind != CEL_TOKEN_NAME ? refuse_token(p) : 0;
    if (is_op(p, "(")) {
        uint32_t count = 1, call = make(p, CEL_OP_CALL, CEL_ANY, name.column, target, 0);
        if (!call || !next(p) || !(call = read_arguments(p, call, &count)))
            return 0;
        return resolve(p, call, name.text, true, count);
    }
    if (node_of(p, target)->type == CEL_DEVICE && node_of(p, target)->op == CEL_OP_CONST)
        return read_field(p, name.text, name.column);
    const struct cel_value key = {.type = CEL_STRING, .text = name.text};
    return make_key(p, target, make_const(p, key, name.column), name.column);
}

/* Behind "target[". */
static uint32_t read_index(struct parser *p, uint32_t target) {
    uint32_t column = p->lexer.token.column;
    uint32_t node = make_key(p, target, read_expression(p), column);
    if (!node || !expect(p, "]"))
        return 0;
    node_of(p, node)->slot = 1; /* which has() does not take */
    return node;
}

/* ---- operands ---- */

static uint32_t read_list(struct parser *p, uint32_t column) {
    uint32_t list = add(p, CEL_OP_LIST, CEL_LIST, column);
    enum cel_type type = CEL_ANY;
    while (list && !is_op(p, "]")) {
        uint32_t item = read_expression(p);
        if (!item)
            return 0;
        if (node_of(p, item)->op != CEL_OP_CONST || node_of(p, item)->type > CEL_STRING)
            return refuse(p, node_of(p, item)->column, "a list of other than literals", NULL);
        if (!may_be(type, node_of(p, item)->type))
            return refuse(p, node_of(p, item)->column, "a list of several types", NULL);
        type = node_of(p, item)->type;
        list = append(p, list, item);
        if (list && !is_op(p, "]") && !expect(p, ","))
            return 0;
    }
    if (list && !node_of(p, list)->first)
        return refuse(p, column, "an empty list", NULL);
    return list && next(p) ? list : 0;
}

static uint32_t read_call(struct parser *p, struct cel_text name, uint32_t column) {
    if (!next(p))
        return 0;
    if (is_text(name, "has"))
        return read_has(p, column);
    uint32_t count = 0, call = add(p, CEL_OP_CALL, CEL_ANY, column);
    if (!call || !(call = read_arguments(p, call, &count)))
        return 0;
    return resolve(p, call, name, false, count);
}

/* "cel.bind(", of which the first word is read. */
static uint32_t read_cel(struct parser *p, uint32_t column) {
    if (!expect(p, "."))
        return 0;
    if (p->lexer.token.kind != CEL_TOKEN_NAME || !is_text(p->lexer.token.text, "bind"))
        return refuse_token(p);
    return next(p) && expect(p, "(") ? read_bind(p, column) : 0;
}

static uint32_t read_name(struct parser *p) {
    const struct cel_token token = p->lexer.token;
    bool yes = is_text(token.text, "true");
    if (!next(p))
        return 0;
    if (is_op(p, "("))
        return read_call(p, token.text, token.column);
    if (yes || is_text(token.text, "false"))
        return make_const(p, (struct cel_value){.type = CEL_BOOL, .truth = yes}, token.column);
    for (unsigned i = p->nbinds; i-- > 0;)
        if (p->binds[i].name.len == token.text.len &&
            memcmp(p->binds[i].name.data, token.text.data, token.text.len) == 0) {
            uint32_t node = add(p, CEL_OP_VARIABLE, p->binds[i].type, token.column);
            if (node)
                node_of(p, node)->slot = i;
            return node;
        }
    if (is_text(token.text, "device"))
        return add(p, CEL_OP_CONST, CEL_DEVICE, token.column);
    if (is_text(token.text, "cel"))
        return read_cel(p, token.column);
    return refuse(p, token.column, "the name", &token.text);
}

static uint32_t read_number(struct parser *p, bool negative) {
    const struct cel_token token = p->lexer.token;
    if (token.number > (uint64_t) INT64_MAX + negative)
        return refuse(p, token.column, "the number", &token.text);
    int64_t number = (int64_t) (negative ? -token.number : token.number);
    return next(p)
               ? make_const(p, (struct cel_value){.type = CEL_INT, .number = number}, token.column)
               : 0;
}

static uint32_t read_operand(struct parser *p, bool negative) {
    const struct cel_token token = p->lexer.token;
    if (token.kind == CEL_TOKEN_INT)
        return read_number(p, negative);
    if (token.kind == CEL_TOKEN_STRING)
        return next(p) ? make_const(p, (struct cel_value){.type = CEL_STRING, .text = token.text},
                                    token.column)
                       : 0;
    if (token.kind == CEL_TOKEN_NAME)
        return read_name(p);
    if (is_op(p, "["))
        return next(p) ? read_list(p, token.column) : 0;
    if (!is_op(p, "("))
        return refuse_token(p);
    uint32_t node = next(p) ? read_expression(p) : 0;
    return node && expect(p, ")") ? node : 0;
}

static uint32_t read_members(struct parser *p, bool negative) {
    uint32_t node = read_operand(p, negative);
    while (node && (is_op(p, ".") || is_op(p, "["))) {
        bool index = is_op(p, "[");
        if (!next(p))
            return 0;
        node = index ? read_index(p, node) : read_member(p, node);
    }
    return node;
}

/* ---- operators ---- */

/* Two "!" are none, as for Kubernetes. */
static uint32_t read_unary(struct parser *p) {
    const struct cel_token token = p->lexer.token;
    unsigned nots = 0;
    bool minus = is_op(p, "-");
    for (; is_op(p, "!"); nots++)
        if (!next(p))
            return 0;
    if (minus && !next(p))
        return 0;
    bool literal = minus && p->lexer.token.kind == CEL_TOKEN_INT;
    uint32_t node = read_members(p, literal);
    if (node && minus && !literal)
        return make_operator(p, token.text, token.column, node, 0);
    if (!node || nots % 2 == 0)
        return node;
    if (!may_be(node_of(p, node)->type, CEL_BOOL))
        return refuse(p, token.column, "! of what is no bool", NULL);
    return make(p, CEL_OP_NOT, CEL_BOOL, token.column, node, 0);
}

static uint32_t make_equal(struct parser *p, bool unequal, uint32_t column, uint32_t a,
                           uint32_t b) {
    enum cel_type x = node_of(p, a)->type, y = node_of(p, b)->type;
    if (!is_scalar(x) || !is_scalar(y) || !(may_be(x, y) || may_be(y, x)))
        return refuse(p, column, "a comparison of these types", NULL);
    return make(p, unequal ? CEL_OP_UNEQUAL : CEL_OP_EQUAL, CEL_BOOL, column, a, b);
}

static uint32_t make_in(struct parser *p, uint32_t column, uint32_t a, uint32_t b) {
    enum cel_type x = node_of(p, a)->type, y = node_of(p, b)->type;
    bool list = y == CEL_LIST, map = y >= CEL_ATTRIBUTES && y <= CEL_CAPACITIES_OF;
    enum cel_type item =
        node_of(p, b)->op == CEL_OP_LIST ? node_of(p, node_of(p, b)->first)->type : CEL_ANY;
    if (!is_scalar(x) || !(list || map) || (map && !may_be(x, CEL_STRING)) ||
        !(may_be(x, item) || item == CEL_ANY))
        return refuse(p, column, "\"in\" for these types", NULL);
    return make(p, CEL_OP_IN, CEL_BOOL, column, a, b);
}

/* 3: products, 2: sums, 1: relations, 0: no such operator. */
static int level_of(const struct cel_token *token) {
    static const char *const levels[] = {
        "<", "<=", ">", ">=", "==", "!=", "in", "+", "-", "*", "/", "%"};
    if (token->kind != CEL_TOKEN_OP && token->kind != CEL_TOKEN_NAME)
        return 0;
    for (int i = 0; i < 12; i++)
        if (is_text(token->text, levels[i]))
            return i < 7 ? 1 : i < 9 ? 2 : 3;
    return 0;
}

static uint32_t make_binary(struct parser *p, const struct cel_token *op, uint32_t a, uint32_t b) {
    if (!a || !b)
        return 0;
    if (is_text(op->text, "in"))
        return make_in(p, op->column, a, b);
    if (is_text(op->text, "==") || is_text(op->text, "!="))
        return make_equal(p, is_text(op->text, "!="), op->column, a, b);
    return make_operator(p, op->text, op->column, a, b);
}

static uint32_t read_binary(struct parser *p, int level) {
    uint32_t node = level > 3 ? read_unary(p) : read_binary(p, level + 1);
    while (node && level <= 3 && level_of(&p->lexer.token) == level) {
        const struct cel_token op = p->lexer.token;
        if (!next(p))
            return 0;
        node = make_binary(p, &op, node, read_binary(p, level + 1));
    }
    return node;
}

/* Operands of && or ||, in one node. */
static uint32_t read_logic(struct parser *p, bool or) {
    const char *op = or ? "||" : "&&";
    uint32_t part = or ? read_logic(p, false) : read_binary(p, 1);
    uint32_t node = 0, last = part;
    while (part && is_op(p, op)) {
        if (!node)
            node = make(p, or ? CEL_OP_OR : CEL_OP_AND, CEL_BOOL, p->lexer.token.column, part, 0);
        if (!node || !next(p))
            return 0;
        part = or ? read_logic(p, false) : read_binary(p, 1);
        if (!part || !append(p, node, part))
            return 0;
        if (!may_be(node_of(p, part)->type, CEL_BOOL) || !may_be(node_of(p, last)->type, CEL_BOOL))
            return refuse(p, node_of(p, node)->column, "&& or || of what is no bool", NULL);
        last = part;
    }
    return part ? (node ? node : part) : 0;
}

static uint32_t read_conditional(struct parser *p) {
    uint32_t condition = read_logic(p, true);
    if (!condition || !is_op(p, "?"))
        return condition;
    uint32_t column = p->lexer.token.column;
    uint32_t yes = next(p) ? read_logic(p, true) : 0;
    uint32_t no = yes && expect(p, ":") ? read_expression(p) : 0;
    if (!no)
        return 0;
    enum cel_type x = node_of(p, yes)->type, y = node_of(p, no)->type;
    if (!may_be(node_of(p, condition)->type, CEL_BOOL) ||
        (x != y && !(is_scalar(x) && is_scalar(y) && (may_be(x, y) || may_be(y, x)))))
        return refuse(p, column, "?: of these types", NULL);
    uint32_t node = make(p, CEL_OP_IF, x == y ? x : CEL_ANY, column, condition, yes);
    return node ? append(p, node, no) : 0;
}

static uint32_t read_expression(struct parser *p) {
    if (p->nesting == CEL_DEPTH_MAX)
        return refuse(p, p->lexer.token.column, "an expression that is nested too deep", NULL);
    p->nesting++;
    uint32_t node = read_conditional(p);
    p->nesting--;
    return node;
}

/* ---- all of it ---- */

static int parse(struct parser *p) {
    uint32_t root = next(p) ? read_expression(p) : 0;
    if (root && p->lexer.token.kind != CEL_TOKEN_END)
        root = refuse_token(p);
    if (root && !may_be(node_of(p, root)->type, CEL_BOOL))
        root = refuse(p, 1, "a result that is no bool", NULL);
    p->cel->nodes[0].first = root;
    return root ? 0 : -p->err->code;
}

int cel_parse(const char *text, struct cel **ret, struct err *err) {
    size_t len = strlen(text);
    struct err own;
    struct cel *cel = calloc(1, sizeof(*cel));
    struct parser p = {.cel = cel, .err = err ? err : &own};
    if (len > CEL_LENGTH_MAX) {
        free(cel);
        return err_set(err, EINVAL, "more than %d bytes", CEL_LENGTH_MAX);
    }
    if (cel) {
        cel->n = 1;
        cel->cap = 32;
        cel->nodes = calloc(cel->cap, sizeof(*cel->nodes));
        cel->text = malloc(2 * len + 2);
    }
    if (!cel || !cel->nodes || !cel->text) {
        cel_free(cel);
        return err_errno(err, ENOMEM, "cannot read a selector");
    }
    memcpy(cel->text, text, len + 1);
    p.lexer = (struct cel_lexer){
        .start = cel->text, .at = cel->text, .texts = cel->text + len + 1, .err = p.err};
    int r = parse(&p);
    if (r < 0) {
        cel_free(cel);
        return r;
    }
    *ret = cel;
    return 0;
}

void cel_free(struct cel *cel) {
    if (!cel)
        return;
    free(cel->nodes);
    free(cel->text);
    free(cel);
}
