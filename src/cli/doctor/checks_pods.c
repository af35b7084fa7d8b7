/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of Aliquot's own pods: what keeps a container of them from running. */

#include <string.h>

#include "cli/doctor/doctor.h"

/* What kubelet says of a container that waits and does not only start. */
static const struct {
    const char *reason; /* how it begins */
    const char *remedy;
} waits[] = {
    {"ErrImage", "load or push that image, or name another one; docs/install.md, step 1"},
    {"ImagePull", "load or push that image, or name another one; docs/install.md, step 1"},
    {"InvalidImageName", "correct the image's name in the manifest or the chart's values"},
    {"CrashLoopBackOff", "kubectl -n <namespace of Aliquot> logs --previous <the pod>"},
    {"Create", "kubectl -n <namespace of Aliquot> describe pod <the pod>"},
    {"RunContainerError", "kubectl -n <namespace of Aliquot> describe pod <the pod>"},
};

static const char *remedy_of(const char *reason) {
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (strncmp(reason, waits[i].reason, strlen(waits[i].reason)) == 0)
            return waits[i].remedy;
    return NULL;
}

static unsigned find_waiting(struct doctor *d, struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "status", "containerStatuses"));
    struct json container;
    unsigned n = 0;

    while (json_next(&it, NULL, &container)) {
        struct json waiting = JSON_PATH(container, "state", "waiting");
        const char *reason = json_string_or(json_get(waiting, "reason"), "");
        const char *remedy = remedy_of(reason);

        if (!remedy)
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG, remedy, "container %s of pod %s, image %s: %s: %s",
                    json_string_or(json_get(container, "name"), ""),
                    json_string_or(JSON_PATH(pod, "metadata", "name"), ""),
                    json_string_or(json_get(container, "image"), ""), reason,
                    json_string_or(json_get(waiting, "message"), ""));
    }
    return n;
}

void doctor_check_pods(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    unsigned n = 0, pods = 0;
    struct json pod;

    for (; json_next(&it, NULL, &pod); pods++)
        n += find_waiting(d, pod);
    if (!json_valid(d->evidence.pods.root))
        doctor_find_unread(d, &d->evidence.pods);
    else if (n == 0)
        doctor_find(d, DOCTOR_OK, NULL, "no container of %u pods in namespace %s fails to start",
                    pods, d->evidence.system);
}
