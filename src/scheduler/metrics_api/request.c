/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/metrics_api/request.h"

#include <errno.h>
#include <string.h>

#include "kube/api/field.h"

#define PARTS_MAX 5
#define PART_MAX KUBE_NAME_MAX

static const struct {
    const char *path;
    unsigned parts; /* behind it, of a request for values */
} apis[] = {
    [METRICS_API_CUSTOM] = {"/apis/" METRICS_CUSTOM "/" METRICS_CUSTOM_VERSION, 5},
    [METRICS_API_EXTERNAL] = {"/apis/" METRICS_EXTERNAL "/" METRICS_EXTERNAL_VERSION, 3},
};

struct parts {
    char v[PARTS_MAX][PART_MAX];
    unsigned n;
};

/* False: more of them, or longer ones, than any path of ours has. */
static bool split(const char *path, struct parts *ret) {
    while (*path == '/') {
        size_t len = strcspn(++path, "/");
        if (ret->n == PARTS_MAX || len >= PART_MAX)
            return false;
        memcpy(ret->v[ret->n], path, len);
        ret->v[ret->n++][len] = '\0';
        path += len;
    }
    return *path == '\0';
}

static bool is_metric(const char *name) {
    return *name && strlen(name) < METRIC_NAME_MAX &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static int read_values(const struct parts *parts, struct metrics_request *ret) {
    const char *namespace = parts->v[1], *metric = parts->v[parts->n - 1];
    if (strcmp(parts->v[0], "namespaces") != 0 || !field_is_name(namespace) ||
        strlen(namespace) >= sizeof(ret->namespace) || !is_metric(metric))
        return -ENOENT;
    if (ret->api == METRICS_API_CUSTOM) {
        const char *pod = parts->v[3];
        if (strcmp(parts->v[2], "pods") != 0 || (strcmp(pod, "*") != 0 && !field_is_name(pod)))
            return -ENOENT;
        memcpy(ret->pod, pod, strlen(pod) + 1);
    }
    memcpy(ret->namespace, namespace, strlen(namespace) + 1);
    memcpy(ret->metric, metric, strlen(metric) + 1);
    return 0;
}

int metrics_request_read(const char *path, const char *selector, struct metrics_request *ret) {
    struct metrics_request request = {0};
    struct parts parts = {0};
    size_t len = 0;
    unsigned i = 0;
    for (; i < sizeof(apis) / sizeof(apis[0]); i++) {
        len = strlen(apis[i].path);
        if (strncmp(path, apis[i].path, len) == 0 && (path[len] == '/' || path[len] == '\0'))
            break;
    }
    if (i == sizeof(apis) / sizeof(apis[0]) || !split(path + len, &parts))
        return -ENOENT;
    request.api = (enum metrics_group) i;
    request.discovery = parts.n == 0 || (parts.n == 1 && parts.v[0][0] == '\0');
    int r = 0;
    if (!request.discovery)
        r = parts.n == apis[i].parts ? read_values(&parts, &request) : -ENOENT;
    if (r == 0 && selector)
        r = label_selector_parse(selector, &request.selector);
    if (r == 0)
        *ret = request;
    return r;
}

void metrics_request_done(struct metrics_request *r) {
    label_terms_done(&r->selector);
}
