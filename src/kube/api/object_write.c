/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/object_write.h"

#include <time.h>

#include "base/server_time.h"
#include "base/text.h"
#include "wire/json_write.h"

void object_begin(struct json_writer *w, const char *api_version, const char *kind,
                  const char *name, const char *namespace) {
    json_object_begin(w, NULL);
    json_put_string(w, "apiVersion", api_version);
    json_put_string(w, "kind", kind);
    json_object_begin(w, "metadata");
    json_put_string(w, "name", name);
    if (namespace)
        json_put_string(w, "namespace", namespace);
}

void eviction_write(struct json_writer *w, const char *pod, const char *namespace,
                    const char *uid) {
    object_begin(w, "policy/v1", "Eviction", pod, namespace);
    json_object_end(w);
    json_object_begin(w, "deleteOptions");
    json_object_begin(w, "preconditions");
    json_put_string(w, "uid", uid);
    json_object_end(w);
    json_object_end(w);
    json_object_end(w);
}

void object_put_owner(struct json_writer *w, const char *kind, const char *name, const char *uid,
                      bool controller) {
    json_array_begin(w, "ownerReferences");
    json_object_begin(w, NULL);
    json_put_string(w, "apiVersion", "v1");
    json_put_string(w, "kind", kind);
    json_put_string(w, "name", name);
    json_put_string(w, "uid", uid);
    if (controller)
        json_put_bool(w, "controller", true);
    json_object_end(w);
    json_array_end(w);
}

void object_put_node_terms(struct json_writer *w, const char *node) {
    json_array_begin(w, "nodeSelectorTerms");
    json_object_begin(w, NULL);
    json_array_begin(w, "matchFields");
    json_object_begin(w, NULL);
    json_put_string(w, "key", "metadata.name");
    json_put_string(w, "operator", "In");
    json_array_begin(w, "values");
    json_put_string(w, NULL, node);
    json_array_end(w);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
    json_array_end(w);
}

void object_put_condition(struct json_writer *w, const char *type, bool status, const char *reason,
                          const char *message, const char *since, const char *heartbeat) {
    json_object_begin(w, NULL);
    json_put_string(w, "type", type);
    json_put_string(w, "status", status ? "True" : "False");
    json_put_string(w, "reason", reason);
    json_put_string(w, "message", message);
    if (heartbeat)
        json_put_string(w, "lastHeartbeatTime", heartbeat);
    json_put_string(w, "lastTransitionTime", since);
    json_object_end(w);
}

void object_condition_since(struct json condition, bool status, char ret[static OBJECT_TIME_SIZE]) {
    const char *since = json_string(json_get(condition, "lastTransitionTime"));
    bool same = json_is_string(json_get(condition, "status"), status ? "True" : "False");

    text_copy(ret, OBJECT_TIME_SIZE, same && since ? since : "");
}

void object_time(time_t when, char ret[static OBJECT_TIME_SIZE]) {
    struct tm utc;
    (void) gmtime_r(&when, &utc);
    (void) strftime(ret, OBJECT_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void object_now(char ret[static OBJECT_TIME_SIZE]) {
    object_time((time_t) server_time(), ret);
}
