/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the APIs by which aliquot-scheduler gives figures to HorizontalPodAutoscalers. */

#include <stdio.h>
#include <string.h>

#include "cli/doctor/doctor.h"

#define OPTION "--metrics-api-listen"

static const char remedy[] =
    "while it is so, no namespace of the cluster can be deleted: let API servers reach that port "
    "of aliquot-scheduler's pods, or kubectl delete apiservices v1beta2.custom.metrics.k8s.io "
    "v1beta1.external.metrics.k8s.io; docs/autoscaling.md";

/* Whether a pod of aliquot-scheduler serves them. */
static bool is_served(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod))
        if (doctor_argument(pod, "scheduler", OPTION))
            return true;
    return false;
}

static bool is_ours(const struct doctor *d, struct json api) {
    struct json service = JSON_PATH(api, "spec", "service");

    return json_is_string(json_get(service, "name"), "aliquot-metrics-api") &&
           json_is_string(json_get(service, "namespace"), d->evidence.system);
}

/* True: it is served by Aliquot. */
static bool find_own(struct doctor *d, struct json api) {
    struct json available = json_find(JSON_PATH(api, "status", "conditions"), "type", "Available");

    if (json_is_string(json_get(available, "status"), "True"))
        doctor_find(d, DOCTOR_OK, NULL, "%s is available", doctor_name(api));
    else
        doctor_find(d, DOCTOR_WRONG, remedy, "%s is not available: %s", doctor_name(api),
                    json_string_or(json_get(available, "message"), "its state is not known yet"));
    return true;
}

static bool find_api(struct doctor *d, const char *name, bool served) {
    struct json_iter it = json_iter(json_get(d->evidence.apis.root, "items"));
    struct json api;

    while (json_next(&it, NULL, &api)) {
        struct json service = JSON_PATH(api, "spec", "service");

        if (strcmp(doctor_name(api), name) != 0)
            continue;
        if (is_ours(d, api))
            return find_own(d, api);
        if (served)
            doctor_find(d, DOCTOR_OK, NULL,
                        "%s is of Service %s/%s, and Aliquot stays away from it", name,
                        json_string_or(json_get(service, "namespace"), "-"),
                        json_string_or(json_get(service, "name"), "-"));
        return served;
    }
    return false;
}

void doctor_check_metrics_apis(struct doctor *d) {
    bool served = is_served(d), any;

    if (!json_valid(d->evidence.apis.root)) {
        doctor_find_unread(d, &d->evidence.apis);
        return;
    }
    any = find_api(d, "v1beta2.custom.metrics.k8s.io", served);
    any = find_api(d, "v1beta1.external.metrics.k8s.io", served) || any;
    if (!any)
        doctor_find(d, served ? DOCTOR_WRONG : DOCTOR_OK,
                    served ? "apply deploy/metrics-api, or take the option " OPTION " away" : NULL,
                    served ? "aliquot-scheduler serves them, and there is no APIService"
                           : "not served: HorizontalPodAutoscalers have no figures of Aliquot's");
}
