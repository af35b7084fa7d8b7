/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"

#define TAG_PREFIX "tag:yaml.org,2002:"
#define MERGE_KEY "<<"
#define TEXT_SHOWN 60 /* characters of the file in a message */

struct node {
    struct yaml pub;
    struct node *last;  /* of its elements */
    struct node *older; /* all nodes of the document */
    struct node *named; /* the anchor before it */
    char *anchor;
    uint32_t nodes; /* itself and all below it */
    char text[];
};

struct yaml_doc {
    struct node *nodes;   /* the newest first */
    struct node *anchors; /* likewise; only complete nodes */
    size_t nanchors;
};

/* What is open while events come. */
struct builder {
    struct yaml_doc *doc;
    struct node *root;
    struct node *open[YAML_DEPTH_MAX];
    struct node *key[YAML_DEPTH_MAX]; /* of open[i]: its value is the next node */
    uint32_t depth;
    struct err *err;
};

static struct node *free_node(struct node *n) {
    free(n->anchor);
    free(n);
    return NULL;
}

struct yaml_doc *yaml_doc_free(struct yaml_doc *doc) {
    if (!doc)
        return NULL;
    for (struct node *n = doc->nodes, *older; n; n = older) {
        older = n->older;
        (void) free_node(n);
    }
    free(doc);
    return NULL;
}

static int fail_at(struct builder *b, const yaml_mark_t *at, int code, const char *what,
                   const char *text) {
    return err_set(b->err, code, "line %zu, column %zu: %s%.*s%s", at->line + 1, at->column + 1,
                   what, TEXT_SHOWN, text ? text : "", text ? "'" : "");
}

/* ---- scalars ---- */

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static const char *digits(const char *p) {
    return p + strspn(p, "0123456789");
}

/* Decimal numbers, which JSON has, too. */
static bool is_number(const char *p) {
    const char *start = p += *p == '-' || *p == '+';

    p = digits(p);
    if (p == start && !(p[0] == '.' && digits(p + 1) != p + 1))
        return false;
    if (*p == '.')
        p = digits(p + 1);
    if (*p == 'e' || *p == 'E') {
        const char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');

        p = digits(exponent);
        if (p == exponent)
            return false;
    }
    return *p == 0;
}

/* Of YAML 1.1, by which Kubernetes reads its files. */
static enum yaml_type plain_type(const char *text) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const bools[] = {"y",     "Y",     "yes",   "Yes", "YES", "on",  "On", "ON",
                                        "true",  "True",  "TRUE",  "n",   "N",   "no",  "No", "NO",
                                        "false", "False", "FALSE", "off", "Off", "OFF", NULL};

    if (is_one_of(text, nulls))
        return YAML_NULL;
    if (is_one_of(text, bools))
        return YAML_BOOL;
    return is_number(text) ? YAML_NUMBER : YAML_STRING;
}

static int scalar_type(struct builder *b, const yaml_event_t *e, enum yaml_type *ret) {
    static const char *const known[] = {"null", "bool", "int", "float", NULL};
    const char *tag = (const char *) e->data.scalar.tag;
    const char *text = (const char *) e->data.scalar.value;

    if (strlen(text) != e->data.scalar.length)
        return fail_at(b, &e->start_mark, EBADMSG, "a text with a NUL in it", NULL);
    if (!tag) {
        *ret = e->data.scalar.plain_implicit ? plain_type(text) : YAML_STRING;
        return 0;
    }
    if (strncmp(tag, TAG_PREFIX, strlen(TAG_PREFIX)) != 0)
        return fail_at(b, &e->start_mark, EBADMSG, "a tag that has no meaning here: '", tag);
    tag += strlen(TAG_PREFIX);
    if (strcmp(tag, "str") != 0 && !is_one_of(tag, known))
        return fail_at(b, &e->start_mark, EBADMSG, "a tag that has no meaning here: '!!", tag);
    *ret = strcmp(tag, "str") == 0 ? YAML_STRING : plain_type(text);
    return 0;
}

/* ---- the tree ---- */

static int new_node(struct builder *b, const yaml_event_t *e, enum yaml_type type, const char *text,
                    struct node **ret) {
    size_t size = text ? strlen(text) + 1 : 0;
    struct node *n = calloc(1, sizeof(*n) + size);

    if (!n)
        return err_set(b->err, ENOMEM, "out of memory");
    n->pub.type = type;
    n->pub.line = (uint32_t) e->start_mark.line + 1;
    n->pub.column = (uint32_t) e->start_mark.column + 1;
    n->nodes = 1;
    if (text)
        n->pub.text = memcpy(n->text, text, size);
    n->older = b->doc->nodes;
    b->doc->nodes = n;
    *ret = n;
    return 0;
}

static int set_anchor(struct builder *b, struct node *n, const yaml_char_t *anchor) {
    if (!anchor)
        return 0;
    if (b->doc->nanchors++ == YAML_ANCHORS_MAX)
        return err_set(b->err, EFBIG, "line %u, column %u: more anchors than a file may have",
                       n->pub.line, n->pub.column);
    n->anchor = strdup((const char *) anchor);
    return n->anchor ? 0 : err_set(b->err, ENOMEM, "out of memory");
}

/* From now on an alias can stand for it. */
static void publish_anchor(struct builder *b, struct node *n) {
    if (!n->anchor)
        return;
    n->named = b->doc->anchors;
    b->doc->anchors = n;
}

static void append(struct node *parent, struct node *n) {
    if (parent->last)
        parent->last->pub.next = &n->pub;
    else
        parent->pub.first = &n->pub;
    parent->last = n;
    parent->pub.size++;
}

/* Below `parent` are all that are below n, too. */
static int count_nodes(struct builder *b, const yaml_event_t *e, struct node *parent,
                       const struct node *n) {
    if (n->nodes > YAML_NODES_MAX - parent->nodes)
        return fail_at(b, &e->start_mark, EFBIG, "more nodes than a file may have", NULL);
    parent->nodes += n->nodes;
    return 0;
}

static int take_key(struct builder *b, const yaml_event_t *e, struct node *n) {
    const struct node *map = b->open[b->depth - 1];

    if (!n->pub.text)
        return err_set(b->err, EBADMSG, "line %u, column %u: a key that is a list or a map",
                       n->pub.line, n->pub.column);
    if (map->pub.size == YAML_KEYS_MAX)
        return fail_at(b, &e->start_mark, EFBIG, "more keys than a map may have", NULL);
    if (yaml_get(&map->pub, n->pub.text))
        return fail_at(b, &e->start_mark, EBADMSG, "a second key '", n->pub.text);
    b->key[b->depth - 1] = n;
    return 0;
}

/* A complete node finds its place. */
static int place(struct builder *b, const yaml_event_t *e, struct node *n) {
    struct node *parent = b->depth > 0 ? b->open[b->depth - 1] : NULL;
    int r;

    if (!parent) {
        b->root = n;
        return 0;
    }
    r = count_nodes(b, e, parent, n);
    if (r < 0)
        return r;
    if (parent->pub.type == YAML_MAP) {
        if (!b->key[b->depth - 1])
            return take_key(b, e, n);
        n->pub.key = &take_ptr(b->key[b->depth - 1])->pub;
    }
    append(parent, n);
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *e) {
    enum yaml_type type = YAML_NULL;
    struct node *n;
    int r = scalar_type(b, e, &type);

    if (r == 0)
        r = new_node(b, e, type, (const char *) e->data.scalar.value, &n);
    if (r == 0)
        r = set_anchor(b, n, e->data.scalar.anchor);
    if (r == 0)
        r = place(b, e, n);
    if (r == 0)
        publish_anchor(b, n);
    return r;
}

static int on_open(struct builder *b, const yaml_event_t *e, enum yaml_type type,
                   const yaml_char_t *anchor) {
    struct node *n = NULL;
    int r;

    if (b->depth == YAML_DEPTH_MAX)
        return fail_at(b, &e->start_mark, EFBIG, "nested too deeply", NULL);
    r = new_node(b, e, type, NULL, &n);
    if (r == 0)
        r = set_anchor(b, n, anchor);
    if (r < 0)
        return r;
    b->key[b->depth] = NULL;
    b->open[b->depth++] = n;
    return 0;
}

static struct node *find_anchor(const struct builder *b, const yaml_char_t *name) {
    for (struct node *n = b->doc->anchors; n; n = n->named)
        if (strcmp(n->anchor, (const char *) name) == 0)
            return n;
    return NULL;
}

/* A copy with the elements of the original. */
static int copy_node(struct builder *b, const yaml_event_t *e, const struct node *of,
                     struct node **ret) {
    struct node *n;
    int r = new_node(b, e, of->pub.type, of->pub.text, &n);

    if (r < 0)
        return r;
    n->pub.first = of->pub.first;
    n->pub.size = of->pub.size;
    n->nodes = of->nodes;
    *ret = n;
    return 0;
}

static int on_alias(struct builder *b, const yaml_event_t *e) {
    const struct node *of = find_anchor(b, e->data.alias.anchor);
    struct node *n;
    int r;

    if (!of)
        return fail_at(b, &e->start_mark, EBADMSG, "no complete node before it has the anchor '",
                       (const char *) e->data.alias.anchor);
    r = copy_node(b, e, of, &n);
    return r < 0 ? r : place(b, e, n);
}

/* ---- merge keys ---- */

static int merge_map(struct builder *b, const yaml_event_t *e, struct node *into,
                     const struct yaml *from) {
    if (from->type != YAML_MAP)
        return err_set(b->err, EBADMSG, "line %u, column %u: '<<' takes a map, or a list of maps",
                       from->line, from->column);
    for (const struct yaml *member = from->first; member; member = member->next) {
        /* Every public part is the first member of its node. */
        const struct node *of = (const void *) member;
        struct node *n;
        int r;

        if (yaml_get(&into->pub, member->key->text))
            continue;
        if (into->pub.size == YAML_KEYS_MAX)
            return fail_at(b, &e->start_mark, EFBIG, "more keys than a map may have", NULL);
        r = copy_node(b, e, of, &n);
        if (r < 0)
            return r;
        r = count_nodes(b, e, into, n);
        if (r < 0)
            return r;
        n->pub.line = member->line;
        n->pub.column = member->column;
        n->pub.key = member->key;
        append(into, n);
    }
    return 0;
}

/* The map is not complete yet: no alias has its members. */
static void unlink_member(struct node *map, const struct node *gone) {
    struct node *before = NULL;

    for (struct node *n = (void *) (uintptr_t) map->pub.first; n != gone;
         n = (void *) (uintptr_t) n->pub.next)
        before = n;
    if (before)
        before->pub.next = gone->pub.next;
    else
        map->pub.first = gone->pub.next;
    if (map->last == gone)
        map->last = before;
    map->pub.size--;
}

static int merge(struct builder *b, const yaml_event_t *e, struct node *map) {
    const struct yaml *with = yaml_get(&map->pub, MERGE_KEY);
    int r = 0;

    if (!with)
        return 0;
    unlink_member(map, (const void *) with);
    if (with->type != YAML_LIST)
        return merge_map(b, e, map, with);
    for (const struct yaml *from = with->first; from && r == 0; from = from->next)
        r = merge_map(b, e, map, from);
    return r;
}

static int on_close(struct builder *b, const yaml_event_t *e) {
    struct node *n = b->open[--b->depth];
    int r = n->pub.type == YAML_MAP ? merge(b, e, n) : 0;

    if (r == 0)
        r = place(b, e, n);
    if (r == 0)
        publish_anchor(b, n);
    return r;
}

/* ---- events ---- */

static int on_event(struct builder *b, const yaml_event_t *e) {
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return b->root ? fail_at(b, &e->start_mark, EBADMSG, "a second document", NULL) : 0;
    case YAML_ALIAS_EVENT:
        return on_alias(b, e);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, e, YAML_LIST, e->data.sequence_start.anchor);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, e, YAML_MAP, e->data.mapping_start.anchor);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(b, e);
    default:
        return 0;
    }
}

static int parser_error(struct builder *b, const yaml_parser_t *p) {
    const yaml_mark_t *at = &p->problem_mark;

    if (p->error == YAML_MEMORY_ERROR)
        return err_set(b->err, ENOMEM, "out of memory");
    if (p->error == YAML_READER_ERROR)
        return err_set(b->err, EBADMSG, "byte %zu: %s", p->problem_offset, p->problem);
    return err_set(b->err, EBADMSG, "line %zu, column %zu: %s%s%s", at->line + 1, at->column + 1,
                   p->context ? p->context : "", p->context ? ", " : "", p->problem);
}

static int build(struct builder *b, yaml_parser_t *p) {
    bool end = false;
    int r = 0;

    while (!end && r == 0) {
        yaml_event_t e;

        if (!yaml_parser_parse(p, &e))
            return parser_error(b, p);
        end = e.type == YAML_STREAM_END_EVENT;
        r = on_event(b, &e);
        yaml_event_delete(&e);
    }
    return r;
}

int yaml_parse(const char *text, size_t len, struct yaml_doc **ret_doc,
               const struct yaml **ret_root, struct err *err) {
    static const struct node nothing = {.pub = {.line = 1, .column = 1, .text = ""}};
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    struct builder b = {.err = err};
    yaml_parser_t parser;
    int r;

    if (len > YAML_SIZE_MAX)
        return err_set(err, EFBIG, "the file has more than %zu bytes", YAML_SIZE_MAX);
    b.doc = doc = calloc(1, sizeof(*doc));
    if (!doc || !yaml_parser_initialize(&parser))
        return err_set(err, ENOMEM, "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *) text, len);
    r = build(&b, &parser);
    yaml_parser_delete(&parser);
    if (r < 0)
        return r;
    *ret_root = b.root ? &b.root->pub : &nothing.pub;
    *ret_doc = take_ptr(doc);
    return 0;
}

const struct yaml *yaml_get(const struct yaml *map, const char *key) {
    if (!map || map->type != YAML_MAP)
        return NULL;
    for (const struct yaml *v = map->first; v; v = v->next)
        if (strcmp(v->key->text, key) == 0)
            return v;
    return NULL;
}
