/* SPDX-License-Identifier: Apache-2.0 */

/* What several checks read of objects. */

#include <stdio.h>
#include <string.h>

#include "cli/doctor/doctor.h"

const char *doctor_name(struct json object) {
    return json_string_or(JSON_PATH(object, "metadata", "name"), "");
}

bool doctor_is_of(struct json pod, const char *name) {
    return json_is_string(json_get(JSON_PATH(pod, "metadata", "labels"), "app.kubernetes.io/name"),
                          name);
}

const char *doctor_image(struct json pod, const char *container) {
    struct json of = json_find(JSON_PATH(pod, "spec", "containers"), "name", container);

    return json_string_or(json_get(of, "image"), "");
}

const char *doctor_argument(struct json pod, const char *container, const char *begin) {
    struct json of = json_find(JSON_PATH(pod, "spec", "containers"), "name", container);
    struct json_iter it = json_iter(json_get(of, "args"));
    const char *found = NULL;
    struct json argument;

    while (json_next(&it, NULL, &argument)) {
        const char *text = json_string_or(argument, "");

        if (strncmp(text, begin, strlen(begin)) == 0)
            found = text + strlen(begin);
    }
    return found;
}

bool doctor_read_time(struct json v, time_t *ret) {
    const char *text = json_string_or(v, "");
    struct tm tm = {0};

    if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
        return false;
    *ret = timegm(&tm);
    return true;
}

bool doctor_written_at(struct json object, time_t *ret) {
    struct json_iter it = json_iter(JSON_PATH(object, "metadata", "managedFields"));
    struct json entry;
    time_t last = 0, at;

    while (json_next(&it, NULL, &entry))
        if (doctor_read_time(json_get(entry, "time"), &at) && at > last)
            last = at;
    *ret = last;
    return last != 0;
}

bool doctor_server_time(const struct doctor *d, time_t *ret) {
    return doctor_read_time(JSON_PATH(d->evidence.share.root, "metadata", "creationTimestamp"),
                            ret);
}

bool doctor_is_missing(const struct err *err) {
    return err->code == ENOENT;
}
