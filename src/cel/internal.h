/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the directory, each file using those before it: quantity.c and version.c (values),
 * lexer.c, functions.c (the table of functions and operators), parser.c, eval.c. */

#include <stddef.h>

#include "cel/cel.h"

/* Amounts of Kubernetes are counted in 10^-9. */
typedef __int128 cel_nano; /* NOLINT: 2^63 of them need more than 64 bits */

#define CEL_DEPTH_MAX 64
#define CEL_BINDS_MAX 8
#define CEL_ARGS_MAX 2
#define CEL_VERSION_MAX 256

struct cel_text {
    const char *data; /* not terminated */
    size_t len;
};

struct cel_version {
    uint64_t numbers[3];
    struct cel_text pre; /* behind the "-", without it */
};

enum cel_type {
    CEL_ANY, /* static only: an attribute */
    CEL_BOOL,
    CEL_INT,
    CEL_STRING,
    CEL_VERSION,
    CEL_QUANTITY,
    CEL_LIST,
    CEL_DEVICE,
    CEL_ATTRIBUTES, /* device.attributes */
    CEL_CAPACITIES,
    CEL_ATTRIBUTES_OF, /* those of a domain */
    CEL_CAPACITIES_OF,
    CEL_ERROR,
    CEL_NOT_SERVED,
    CEL_TYPES,
};

struct cel_value {
    enum cel_type type;
    union {
        bool truth;
        int64_t number;
        struct cel_text text; /* of a string; the domain; what an error is about */
        struct cel_version version;
        cel_nano quantity;
        uint32_t list; /* its node */
    };
    const char *problem; /* of an error, and of what is not served */
    uint32_t column;
};

enum cel_op {
    CEL_OP_CONST,
    CEL_OP_LIST, /* of constants */
    CEL_OP_VARIABLE,
    CEL_OP_FIELD, /* of the device */
    CEL_OP_KEY,
    CEL_OP_HAS, /* the same as a test */
    CEL_OP_IN,
    CEL_OP_EQUAL,
    CEL_OP_UNEQUAL,
    CEL_OP_AND,
    CEL_OP_OR,
    CEL_OP_NOT,
    CEL_OP_IF,
    CEL_OP_BIND,
    CEL_OP_CALL,
};

/* Nodes are named by their indexes; 0 is none. */
struct cel_node {
    enum cel_op op;
    enum cel_type type;     /* static */
    uint32_t column;        /* from 1 */
    uint32_t depth;         /* of the tree below, 1 for a leaf */
    uint32_t first, next;   /* child, and next child of the parent */
    uint32_t last;          /* child */
    uint32_t row;           /* of a call: the first row of its name */
    uint32_t slot;          /* of a variable or binding; of a key: 1 for an index, 0 for a field */
    struct cel_value value; /* of a constant */
};

struct cel {
    uint32_t n, cap;
    struct cel_node *nodes; /* nodes[0].first is the root */
    char *text;             /* the expression, and behind it the values of its strings */
};

/* ---- quantity.c, version.c ---- */

/* False: it is no plain number with one of the suffixes, or out of range. */
bool cel_quantity_parse(struct cel_text text, cel_nano *ret);

enum cel_parsed { CEL_PARSED, CEL_MALFORMED, CEL_TOO_LONG };

/* As semver() reads it; with `tolerant` as with its second argument. The version refers to `buf`.
 */
enum cel_parsed cel_version_parse(struct cel_text text, bool tolerant,
                                  char buf[static CEL_VERSION_MAX], struct cel_version *ret);
int cel_version_compare(const struct cel_version *a, const struct cel_version *b);

/* ---- lexer.c ---- */

enum cel_token_kind {
    CEL_TOKEN_END,
    CEL_TOKEN_NAME,
    CEL_TOKEN_INT,
    CEL_TOKEN_STRING,
    CEL_TOKEN_OP
};

struct cel_token {
    enum cel_token_kind kind;
    uint32_t column;
    struct cel_text text; /* as it is written; of a string: its value */
    uint64_t number;
};

struct cel_lexer {
    const char *start, *at;
    char *texts; /* where the values of strings go */
    struct err *err;
    struct cel_token token; /* the current one */
};

/* Goes to the next token. False with `err`: there is none in the subset. */
bool cel_lex(struct cel_lexer *lexer);

/* ---- functions.c ---- */

/* Of one evaluation. */
struct cel_run {
    const struct cel *cel;
    const struct cel_device *device;
    uint64_t *budget;
    struct cel_value bound[CEL_BINDS_MAX];
    struct cel_memory *memory; /* of texts that were made */
    size_t made;
};

struct cel_function {
    const char *name;
    bool member, global; /* x.f(), f(x) */
    uint32_t nargs;      /* the target is one */
    enum cel_type args[CEL_ARGS_MAX];
    enum cel_type result;
    struct cel_value (*call)(struct cel_run *run, const struct cel_value *args);
};

/* Rows of one name and number of arguments are adjacent. NULL: behind the last. */
const struct cel_function *cel_function(uint32_t row);

struct cel_value cel_error(const char *problem);
struct cel_value cel_not_served(const char *problem);
bool cel_is_failure(const struct cel_value *value);

/* Order of two values of the same type, of those that have one. */
int cel_compare(const struct cel_value *a, const struct cel_value *b);

/* False: the budget is used up. */
bool cel_spend(struct cel_run *run, size_t steps);

/* Memory up to cel_unmake(); NULL: too much of it. */
char *cel_make(struct cel_run *run, size_t size);
void cel_unmake(struct cel_run *run);
