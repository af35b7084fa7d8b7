/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/version_skew.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "kube/api/event_writer.h"
#include "wire/json.h"

#define TIMEOUT_MS 10000
#define PATH_LEN 512
#define OLDEST (-1.0) /* minor versions */

/* Major and minor version of "v1.33.5-eks-3025e55", with or without the v. */
static bool read_version(const char *text, unsigned *ret_major, unsigned *ret_minor) {
    return sscanf(text + (*text == 'v'), "%4u.%4u", ret_major, ret_minor) == 2;
}

/* Without what a provider appends. */
static int release_len(const char *version) {
    return (int) strcspn(version, "-+");
}

/* The tag of "registry:5000/kube-scheduler:v1.36.3@sha256:..."; "" without one. */
static void read_tag(const char *image, char tag[static 64]) {
    const char *name = strrchr(image, '/');
    name = name ? name + 1 : image;
    const char *colon = strchr(name, ':'), *digest = strchr(name, '@');
    tag[0] = '\0';
    if (colon && (!digest || colon < digest))
        (void) snprintf(tag, 64, "%.*s", (int) strcspn(colon + 1, "@"), colon + 1);
}

static void end_check(struct version_skew *v, uint64_t after_ms) {
    v->next_ms = v->now_ms + after_ms;
}

static void find_wrong(struct version_skew *v, const char *tag) {
    (void) snprintf(v->wrong, sizeof(v->wrong),
                    "kube-scheduler %s is %s the API server, %s, which Kubernetes does not "
                    "support: set the tag of its image to %.*s",
                    tag, v->ahead > 0 ? "newer than" : "more than one minor version older than",
                    v->server, release_len(v->server), v->server);
    v->told = false;
    log_warn("%s", v->wrong);
}

static void tell(struct version_skew *v, uint64_t now_ms) {
    const struct event event =
        event_on_pod(v->name_space, v->pod, v->uid, "KubeSchedulerVersionSkew", v->wrong);
    v->told = true;
    event_writer_note(v->events, &event, 0, false, now_ms);
}

static void compare(struct version_skew *v, const char *image) {
    unsigned major, minor, server_major, server_minor;
    char tag[64];
    read_tag(image, tag);
    v->wrong[0] = '\0';
    if (!read_version(tag, &major, &minor) ||
        !read_version(v->server, &server_major, &server_minor) || major != server_major) {
        if (!v->unknown)
            log_warn("image %s of kube-scheduler does not name a version like that of the API "
                     "server, %s: whether they suit each other is not known",
                     image, v->server);
        v->unknown = true;
        v->ahead = NAN;
        return;
    }
    v->unknown = false;
    v->ahead = (double) minor - (double) server_minor;
    if (v->ahead > 0 || v->ahead < OLDEST)
        find_wrong(v, tag);
}

static void on_pod(const struct kube_response *response, void *userdata) {
    struct version_skew *v = userdata;
    struct json containers = JSON_PATH(response->body, "spec", "containers");
    const char *uid = json_string(JSON_PATH(response->body, "metadata", "uid"));
    const char *image =
        json_string(json_get(json_find(containers, "name", VERSION_SKEW_CONTAINER), "image"));
    bool answered = response->status == 200 && uid;
    if (answered && image) {
        text_copy(v->uid, sizeof(v->uid), uid);
        compare(v, image);
    }
    /* Without such a container, and of a replica that is no pod, nothing is known. */
    end_check(v,
              answered || response->status == 404 ? VERSION_SKEW_CHECK_MS : VERSION_SKEW_RETRY_MS);
}

static void request(struct version_skew *v, const char *path, kube_response_cb callback) {
    if (v->api.request(v->api.context, "GET", path, NULL, NULL, 0, TIMEOUT_MS, callback, v, NULL) <
        0)
        end_check(v, VERSION_SKEW_RETRY_MS);
}

static void on_version(const struct kube_response *response, void *userdata) {
    struct version_skew *v = userdata;
    const char *version = json_string(json_get(response->body, "gitVersion"));
    char path[PATH_LEN];
    if (response->status != 200 || !version) {
        end_check(v, VERSION_SKEW_RETRY_MS);
        return;
    }
    text_copy(v->server, sizeof(v->server), version);
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", v->name_space, v->pod);
    request(v, path, on_pod);
}

void version_skew_init(struct version_skew *v) {
    v->ahead = NAN;
}

void version_skew_run(struct version_skew *v, uint64_t now_ms, bool leads) {
    if (leads && v->wrong[0] && !v->told)
        tell(v, now_ms);
    if (now_ms < v->next_ms)
        return;
    v->now_ms = now_ms;
    v->next_ms = UINT64_MAX;
    request(v, "/version", on_version);
}
