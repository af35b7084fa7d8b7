/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/prometheus.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/cluster/kubectl.h"

#define PLACE_MAX 512
#define API_PATH "/api/v1/query?query="

/* ---- where it is ---- */

static bool is_url(const char *where) {
    return strncmp(where, "http://", 7) == 0 || strncmp(where, "https://", 8) == 0;
}

/* "NAMESPACE/SERVICE:PORT" in three parts. */
static bool split(const char *where, char ret[3][API_NAME_MAX + 1]) {
    size_t lens[3];
    const char *parts[3] = {where};

    lens[0] = strcspn(where, "/");
    parts[1] = where + lens[0] + (where[lens[0]] == '/');
    lens[1] = strcspn(parts[1], ":");
    parts[2] = parts[1] + lens[1] + (parts[1][lens[1]] == ':');
    lens[2] = strlen(parts[2]);
    for (int i = 0; i < 3; i++) {
        if (lens[i] > API_NAME_MAX)
            return false;
        memcpy(ret[i], parts[i], lens[i]);
        ret[i][lens[i]] = '\0';
        if (!api_is_name(ret[i]))
            return false;
    }
    return true;
}

int prometheus_check(const char *where, struct err *err) {
    char parts[3][API_NAME_MAX + 1];

    if (strlen(where) < PLACE_MAX && (is_url(where) || split(where, parts)))
        return 0;
    return err_set(err, EINVAL,
                   "a Prometheus is named as http://HOST:PORT, or as NAMESPACE/SERVICE:PORT, not "
                   "as '%s'",
                   where);
}

/* ---- a question ---- */

static void put_encoded(struct buf *out, const char *text) {
    for (; *text; text++)
        if (isalnum((unsigned char) *text) || strchr("-_.~", *text))
            buf_putc(out, *text);
        else
            buf_printf(out, "%%%02X", (unsigned char) *text);
}

/* What is behind the host of a URL belongs to the path. */
static int get_by_url(const char *where, const char *query, struct buf *ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    char server[PLACE_MAX];
    size_t host = strcspn(where, ":") + 3, len = host + strcspn(where + host, "/");
    size_t below = strlen(where + len);

    (void) snprintf(server, sizeof(server), "%.*s", (int) len, where);
    while (below > 0 && where[len + below - 1] == '/')
        below--;
    buf_append(&path, where + len, below);
    buf_puts(&path, API_PATH);
    put_encoded(&path, query);
    if (buf_error(&path) < 0)
        return err_errno(err, ENOMEM, "cannot ask Prometheus");
    return kubectl_get_url(server, buf_str(&path), true, ret, err);
}

static int get_by_service(const char *where, const char *query, struct buf *ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    char parts[3][API_NAME_MAX + 1];

    if (!split(where, parts))
        return prometheus_check(where, err);
    buf_printf(&path, "/api/v1/namespaces/%s/services/%s:%s/proxy" API_PATH, parts[0], parts[1],
               parts[2]);
    put_encoded(&path, query);
    if (buf_error(&path) < 0)
        return err_errno(err, ENOMEM, "cannot ask Prometheus");
    return api_get(buf_str(&path), ret, err);
}

/* [1732860000.123, "0.5"] */
static double value_of(struct json sample) {
    struct json_iter it = json_iter(json_get(sample, "value"));
    struct json one = {0};
    const char *text;
    char *end = NULL;

    for (int i = 0; i < 2; i++)
        if (!json_next(&it, NULL, &one))
            return NAN;
    text = json_string(one);
    double value = text && *text ? strtod(text, &end) : NAN;
    return end && *end == '\0' && isfinite(value) ? value : NAN;
}

int prometheus_query(const char *where, const char *query,
                     void (*take)(void *arg, struct json labels, double value), void *arg,
                     struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json answer, sample;

    int r = is_url(where) ? get_by_url(where, query, &text, err)
                          : get_by_service(where, query, &text, err);
    if (r == 0)
        r = json_open(buf_str(&text), text.len, &parser, &answer, err);
    if (r != 0)
        return err_wrap(err, "Prometheus %s", where);
    if (!json_is_string(json_get(answer, "status"), "success"))
        return err_set(err, EREMOTEIO, "Prometheus %s: %s", where,
                       json_string_or(json_get(answer, "error"), "it is no answer of one"));
    struct json_iter it = json_iter(JSON_PATH(answer, "data", "result"));
    while (json_next(&it, NULL, &sample)) {
        double value = value_of(sample);
        if (!isnan(value))
            take(arg, json_get(sample, "metric"), value);
    }
    return 0;
}
