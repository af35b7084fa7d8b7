/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/uninstall/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cluster/api.h"

#define ANSWERS_MS 60000
#define KIND_MAX 64

/* All groups with their kinds in one answer: Kubernetes 1.30. */
#define DISCOVERY "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
/* A server that is not the API server's own may know no lists of metadata. */
#define METADATA "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

struct contents {
    const struct contents_options *options;
    size_t n, group; /* lists, and where those of the group begin */
    struct api_get *gets;
    char (*kinds)[KIND_MAX];
    bool out_of_memory;
};

static void contents_done(struct contents *c) {
    api_gets_done(c->gets, c->n);
    free(c->kinds);
}

static int open_answer(const struct api_get *get, struct json_parser **ret_parser, struct json *ret,
                       struct err *err) {
    if (get->result == 0)
        return json_open(buf_str(&get->text), get->text.len, ret_parser, ret, err);
    *err = get->err;
    return get->result;
}

/* ---- kinds ---- */

static bool can_be_listed(struct json resource) {
    struct json_iter it = json_iter(json_get(resource, "verbs"));
    struct json verb;

    while (json_next(&it, NULL, &verb))
        if (json_is_string(verb, "list"))
            return json_is_string(json_get(resource, "scope"), "Namespaced");
    return false;
}

/* In a version of the group that the API server would rather have. */
static bool is_known(const struct contents *c, const char *resource) {
    for (size_t i = c->group; i < c->n; i++)
        if (strcmp(strrchr(c->gets[i].path, '/') + 1, resource) == 0)
            return true;
    return false;
}

static void add_list(struct contents *c, const char *group, const char *version,
                     struct json resource) {
    const char *name = json_string_or(json_get(resource, "resource"), "");
    const char *kind = json_string_or(JSON_PATH(resource, "responseKind", "kind"), "");
    void *gets, *kinds;
    char *path;

    if (!can_be_listed(resource) || is_known(c, name) || strcmp(kind, "Event") == 0 ||
        strcmp(kind, "PodMetrics") == 0)
        return;
    gets = reallocarray(c->gets, c->n + 1, sizeof(*c->gets));
    c->gets = gets ? gets : c->gets;
    kinds = reallocarray(c->kinds, c->n + 1, sizeof(*c->kinds));
    c->kinds = kinds ? kinds : c->kinds;
    if (!gets || !kinds ||
        asprintf(&path, "/api%s%s/%s/namespaces/%s/%s", group[0] ? "s/" : "", group, version,
                 c->options->namespace, name) < 0) {
        c->out_of_memory = true;
        return;
    }
    text_copy(c->kinds[c->n], KIND_MAX, kind);
    c->gets[c->n++] = (struct api_get){.path = path, .accept = METADATA};
}

static int add_version(struct contents *c, const char *group, struct json version,
                       struct err *err) {
    const char *name = json_string_or(json_get(version, "version"), "");
    struct json_iter it = json_iter(json_get(version, "resources"));
    struct json resource;

    if (json_is_string(json_get(version, "freshness"), "Stale"))
        return err_set(err, EREMOTEIO, "the server of %s/%s does not answer", group, name);
    while (json_next(&it, NULL, &resource))
        add_list(c, group, name, resource);
    return 0;
}

static int add_group(struct contents *c, struct json group, struct err *err) {
    const char *name = json_string_or(JSON_PATH(group, "metadata", "name"), "");
    struct json_iter it = json_iter(json_get(group, "versions"));
    struct json version;
    int r = 0;

    if (c->options->without_group && strcmp(name, c->options->without_group) == 0)
        return 0;
    c->group = c->n;
    while (r == 0 && json_next(&it, NULL, &version))
        r = add_version(c, name, version, err);
    return r;
}

static int add_groups(struct contents *c, const struct api_get *get, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root = {0}, groups, group;
    struct json_iter it;
    int r = open_answer(get, &parser, &root, err);

    groups = json_get(root, "items");
    if (r == 0 && json_type(groups) != JSON_ARRAY)
        r = err_set(err, EBADMSG, "the API server does not say which kinds it has");
    it = json_iter(groups);
    while (r == 0 && json_next(&it, NULL, &group))
        r = add_group(c, group, err);
    return r;
}

static int discover(struct contents *c, struct err *err) {
    static const char *const paths[] = {"/api", "/apis"};
    struct api_get gets[2] = {0};
    int r = 0;

    for (size_t i = 0; i < 2; i++) {
        gets[i] = (struct api_get){.path = strdup(paths[i]), .accept = DISCOVERY};
        if (!gets[i].path)
            r = err_errno(err, ENOMEM, "cannot list kinds");
    }
    if (r == 0)
        api_get_all(gets, 2, ANSWERS_MS, ANSWERS_MS);
    for (size_t i = 0; i < 2; i++) {
        if (r == 0)
            r = add_groups(c, &gets[i], err);
        free(gets[i].path);
        buf_done(&gets[i].text);
    }
    return r;
}

/* ---- objects ---- */

/* A kind that has gone meanwhile has no objects. */
static int see_list(const struct contents *c, size_t i, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list = {0}, object;
    struct json_iter it;
    int r = open_answer(&c->gets[i], &parser, &list, err);

    if (r == -ENOENT)
        return 0;
    it = json_iter(json_get(list, "items"));
    while (json_next(&it, NULL, &object))
        c->options->see(c->kinds[i], object, c->options->userdata);
    return r;
}

int contents_read(const struct contents_options *options, struct err *err) {
    _cleanup_(contents_done) struct contents c = {.options = options};
    int r = discover(&c, err);

    if (r == 0 && c.out_of_memory)
        r = err_errno(err, ENOMEM, "cannot list kinds");
    if (r == 0)
        api_get_all(c.gets, c.n, ANSWERS_MS, ANSWERS_MS);
    for (size_t i = 0; r == 0 && i < c.n; i++)
        r = see_list(&c, i, err);
    return r;
}
