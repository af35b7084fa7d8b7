/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/version_skew.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "kube/api/event_writer.h"
#include "kube/objects/scheduler_image.h"
#include "wire/json.h"

#define TIMEOUT_MS 10000
#define PATH_LEN 512

static void end_check(struct version_skew *v, uint64_t after_ms) {
    v->next_ms = v->now_ms + after_ms;
}

static void tell(struct version_skew *v, uint64_t now_ms) {
    const struct event event =
        event_on_pod(v->name_space, v->pod, v->uid, "KubeSchedulerVersionSkew", v->wrong);
    v->told = true;
    event_writer_note(v->events, &event, 0, false, now_ms);
}

static void compare(struct version_skew *v, const char *image) {
    int ahead;
    v->wrong[0] = '\0';
    if (!scheduler_image_ahead(image, v->server, &ahead)) {
        if (!v->unknown)
            log_warn("image %s of kube-scheduler does not name a version like that of the API "
                     "server, %s: whether they suit each other is not known",
                     image, v->server);
        v->unknown = true;
        v->ahead = NAN;
        return;
    }
    v->unknown = false;
    v->ahead = ahead;
    if (scheduler_image_suits(image, v->server, ahead, v->wrong, sizeof(v->wrong)))
        return;
    v->told = false;
    log_warn("%s", v->wrong);
}

static void on_pod(const struct kube_response *response, void *userdata) {
    struct version_skew *v = userdata;
    struct json containers = JSON_PATH(response->body, "spec", "containers");
    const char *uid = json_string(JSON_PATH(response->body, "metadata", "uid"));
    const char *image =
        json_string(json_get(json_find(containers, "name", SCHEDULER_IMAGE_CONTAINER), "image"));
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
