/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/assignment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "wire/json_write.h"

#define DEVICES_MAX 64
#define INDEX_MAX 4095

static void assignment_cleanup(struct assignment *a) {
    assignment_done(a);
}

static void parser_cleanup(struct json_parser **p) {
    json_parser_free(*p);
}

static int parse_device(struct json v, struct assigned_device *ret) {
    struct json part = json_get(v, "physical");
    uint64_t index, core, memory, physical;
    if (!json_u64(json_get(v, "index"), &index) || index > INDEX_MAX ||
        !json_u64(json_get(v, "core"), &core) || core > CORE_PER_CARD ||
        !json_u64(json_get(v, "memory"), &memory) || memory == 0 || memory > INT64_MAX)
        return -EINVAL;
    physical = memory;
    if (json_valid(part) && (!json_u64(part, &physical) || physical == 0 || physical > memory))
        return -EINVAL;
    ret->index = (uint32_t) index;
    ret->core = (uint32_t) core;
    ret->memory = memory;
    ret->physical = physical;
    return field_copy(json_get(v, "uuid"), ret->uuid, sizeof(ret->uuid));
}

static bool has_device(const struct assigned_container *c, const char *uuid) {
    for (uint32_t i = 0; i < c->ndevices; i++)
        if (strcmp(c->devices[i].uuid, uuid) == 0)
            return true;
    return false;
}

static int parse_container(struct json devices, struct assigned_container *c) {
    size_t n = json_size(devices);
    if (json_type(devices) != JSON_ARRAY || n == 0 || n > DEVICES_MAX)
        return -EINVAL;
    c->devices = calloc(n, sizeof(*c->devices));
    if (!c->devices)
        return -ENOMEM;
    struct json_iter it = json_iter(devices);
    struct json device;
    while (json_next(&it, NULL, &device)) {
        struct assigned_device d;
        if (c->ndevices == n || parse_device(device, &d) < 0 || has_device(c, d.uuid))
            return -EINVAL;
        c->devices[c->ndevices++] = d;
    }
    return 0;
}

static int parse_containers(struct json containers, struct assignment *a) {
    size_t n = json_size(containers);
    if (json_type(containers) != JSON_OBJECT || n == 0 || n > GPU_CONTAINERS_MAX)
        return -EINVAL;
    a->containers = calloc(n, sizeof(*a->containers));
    if (!a->containers)
        return -ENOMEM;
    struct json_iter it = json_iter(containers);
    struct json devices;
    const char *key;
    while (json_next(&it, &key, &devices)) {
        size_t len = key ? strlen(key) : 0;
        if (a->ncontainers == n || len == 0 || len >= KUBE_LABEL_MAX || assignment_find(a, key))
            return -EINVAL;
        struct assigned_container *c = &a->containers[a->ncontainers++];
        memcpy(c->name, key, len + 1);
        int r = parse_container(devices, c);
        if (r < 0)
            return r;
    }
    return 0;
}

int assignment_parse(const char *text, struct assignment *ret, struct err *err) {
    _cleanup_(assignment_cleanup) struct assignment a = {0};
    size_t len = strnlen(text, ASSIGNMENT_TEXT_MAX + 1);
    if (len > ASSIGNMENT_TEXT_MAX)
        return err_set(err, EINVAL, "assignment is too long");
    _cleanup_(parser_cleanup) struct json_parser *parser = json_parser_new();
    if (!parser)
        return err_errno(err, ENOMEM, "cannot read an assignment");
    struct json root;
    int r = json_parse(parser, text, len, &root, err);
    if (r < 0) {
        err_wrap(err, "assignment is not JSON");
        return r == -ENOMEM ? r : -EINVAL;
    }
    uint64_t version;
    if (!json_u64(json_get(root, "v"), &version) || version < ASSIGNMENT_VERSION)
        return err_set(err, EINVAL, "assignment has no version");
    a.newer = version > ASSIGNMENT_VERSION;
    r = field_copy(json_get(root, "node"), a.node, sizeof(a.node));
    if (r == 0)
        r = parse_containers(json_get(root, "containers"), &a);
    if (r < 0)
        return err_set(err, -r, "assignment has a missing, wrong or duplicate field");
    *ret = take_struct(a);
    return 0;
}

void assignment_done(struct assignment *a) {
    for (uint32_t i = 0; i < a->ncontainers; i++)
        free(a->containers[i].devices);
    free(a->containers);
    a->containers = NULL;
    a->ncontainers = 0;
}

const struct assigned_container *assignment_find(const struct assignment *a,
                                                 const char *container) {
    for (uint32_t i = 0; i < a->ncontainers; i++)
        if (strcmp(a->containers[i].name, container) == 0)
            return &a->containers[i];
    return NULL;
}

static void encode_device(struct json_writer *w, const struct assigned_device *d) {
    json_object_begin(w, NULL);
    json_put(w, "index", d->index, "uuid", d->uuid, "core", d->core, "memory", d->memory);
    if (d->physical > 0 && d->physical < d->memory)
        json_put_u64(w, "physical", d->physical);
    json_object_end(w);
}

void assignment_encode(const struct assignment *a, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_u64(&w, "v", ASSIGNMENT_VERSION);
    json_put_string(&w, "node", a->node);
    json_object_begin(&w, "containers");
    for (uint32_t i = 0; i < a->ncontainers; i++) {
        json_array_begin(&w, a->containers[i].name);
        for (uint32_t j = 0; j < a->containers[i].ndevices; j++)
            encode_device(&w, &a->containers[i].devices[j]);
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
}
