/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/carrier.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claims.h"
#include "kube/objects/pod_selection.h"
#include "model/dialect.h"
#include "wire/json_write.h"

#define LINES_MAX 64 /* resources of one container that are checked */
#define SLOT_POINTER "elasticgpu.io~1slot"

bool carrier_is_share(const char *name) {
    for (size_t i = 0; i < dialect_quantities_count; i++) {
        const struct dialect_quantity *q = &dialect_quantities[i];
        if (strcmp(name, q->name) == 0)
            return q->kind != QUANTITY_PRIORITY && !dialect_is_left(q->dialect);
    }
    return strcmp(name, RESOURCE_SLOT) == 0;
}

/* ---- which containers ---- */

static size_t collect_lines(struct json container, struct resource_line lines[static LINES_MAX]) {
    struct json_iter it = json_iter(JSON_PATH(container, "resources", "limits"));
    struct json value;
    const char *key;
    size_t n = 0;
    while (n < LINES_MAX && json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        if (key && text && dialect_knows(key))
            lines[n++] = (struct resource_line){key, text, strlen(text)};
    }
    return n;
}

static bool has_claim(struct json annotations, const char *container) {
    char key[512];
    const char *prefix;
    for (size_t i = 0; (prefix = pod_claims_prefix(i)); i++) {
        int len = snprintf(key, sizeof(key), "%s%s", prefix, container);
        if (len > 0 && (size_t) len < sizeof(key) && json_string(json_get(annotations, key)))
            return true;
    }
    return false;
}

/* Whether the pod's annotations request for this container: for the first app container where they
 * name none. */
static bool is_annotated(struct json annotations, const char *container, bool first_app) {
    struct annotated_request request;
    if (!dialect_find_annotated(annotation_text, &annotations, &request))
        return false;
    const char *named = request.text[ANNOTATION_CONTAINER];
    return named ? strcmp(named, container) == 0 : first_app;
}

static bool needs_carrier(struct json container, struct json annotations, bool first_app) {
    struct resource_line lines[LINES_MAX];
    const char *name = json_string(json_get(container, "name"));
    if (json_valid(JSON_PATH(container, "resources", "limits", RESOURCE_SLOT)))
        return false;
    if (dialect_needs_slot(lines, collect_lines(container, lines)))
        return true;
    return name && (has_claim(annotations, name) || is_annotated(annotations, name, first_app));
}

/* What requests nothing, such as `nvidia.com/gpu: 0`, is left to the scheduler that it has. */
static bool asks_for_share(struct json container, struct json annotations, bool first_app) {
    struct json_iter it = json_iter(JSON_PATH(container, "resources", "limits"));
    struct json value;
    const char *key;
    while (json_next(&it, &key, &value))
        if (key && carrier_is_share(key) && !json_is_string(value, "0"))
            return true;
    return needs_carrier(container, annotations, first_app);
}

/* ---- the patch ---- */

static void put_step(struct json_writer *w, const char *list, size_t index, const char *behind,
                     const char *value) {
    json_object_begin(w, NULL);
    json_put_string(w, "op", "add");
    json_put_stringf(w, "path", "/spec/%s/%zu/%s", list, index, behind);
    json_put_raw(w, "value", value);
    json_object_end(w);
}

/* Limits and requests of an extended resource are equal; "add" of a member puts it beside others,
 * of an object that is there it would replace it. */
static void add_carrier(struct json_writer *w, struct json container, const char *list,
                        size_t index) {
    struct json resources = json_get(container, "resources");
    static const char *const parts[] = {"limits", "requests"};
    if (json_type(resources) != JSON_OBJECT) {
        put_step(w, list, index, "resources", "{}");
    }
    for (size_t i = 0; i < 2; i++) {
        char behind[64];
        bool there = json_type(json_get(resources, parts[i])) == JSON_OBJECT;
        (void) snprintf(behind, sizeof(behind), "resources/%s%s", parts[i],
                        there ? "/" SLOT_POINTER : "");
        put_step(w, list, index, behind, there ? "\"1\"" : "{\"" RESOURCE_SLOT "\":\"1\"}");
    }
}

/* The name has no character that a JSON pointer escapes but the slash behind its domain. */
static bool drop_assignment(struct json_writer *w, struct json annotations) {
    struct json_iter it = json_iter(annotations);
    struct json value;
    const char *key;
    bool any = false;
    while (json_next(&it, &key, &value)) {
        const char *slash = key ? strchr(key, '/') : NULL;
        if (!slash || strncmp(key, ANNOTATION_ASSIGNMENT, strlen(ANNOTATION_ASSIGNMENT)) != 0)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "op", "remove");
        json_put_stringf(w, "path", "/metadata/annotations/%.*s~1%s", (int) (slash - key), key,
                         slash + 1);
        json_object_end(w);
        any = true;
    }
    return any;
}

static bool name_scheduler(struct json_writer *w, struct json pod, const char *scheduler) {
    const char *named = json_string_or(JSON_PATH(pod, "spec", "schedulerName"), "");
    if (!scheduler || (*named && strcmp(named, POD_DEFAULT_SCHEDULER) != 0))
        return false;
    json_object_begin(w, NULL);
    json_put_string(w, "op", "add");
    json_put_string(w, "path", "/spec/schedulerName");
    json_put_string(w, "value", scheduler);
    json_object_end(w);
    return true;
}

void carrier_patch(struct json pod, const char *scheduler, struct buf *out) {
    static const char *const lists[] = {"containers", "initContainers"};
    struct json annotations = JSON_PATH(pod, "metadata", "annotations");
    _cleanup_buf_ struct buf text = BUF_INIT(out->max);
    struct json_writer w = {.out = &text};
    json_array_begin(&w, NULL);
    bool any = drop_assignment(&w, annotations), asks = false;
    for (size_t i = 0; i < 2; i++) {
        struct json_iter it = json_iter(JSON_PATH(pod, "spec", lists[i]));
        struct json container;
        for (size_t at = 0; json_next(&it, NULL, &container); at++) {
            asks = asks || asks_for_share(container, annotations, i == 0 && at == 0);
            if (!needs_carrier(container, annotations, i == 0 && at == 0))
                continue;
            add_carrier(&w, container, lists[i], at);
            any = true;
        }
    }
    any = (asks && name_scheduler(&w, pod, scheduler)) || any;
    json_array_end(&w);
    if (buf_error(&text) < 0)
        out->error = text.error;
    else if (any)
        buf_append(out, buf_str(&text), text.len);
}

void carrier_base64(const struct buf *text, struct buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *data = (const unsigned char *) buf_str(text);
    for (size_t i = 0; i < text->len; i += 3) {
        size_t n = text->len - i < 3 ? text->len - i : 3;
        uint32_t bits = 0;
        for (size_t b = 0; b < 3; b++)
            bits = bits << 8 | (b < n ? data[i + b] : 0u);
        for (size_t c = 0; c < 4; c++)
            buf_putc(out, (char) (c <= n ? digits[bits >> (18 - 6 * c) & 63] : '='));
    }
}
