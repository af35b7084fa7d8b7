/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of shares by ResourceClaims (docs/dra.md): whether a scheduler allocates each claim that
 * can be made, and its node prepares it. */

#include <string.h>
#include <time.h>

#include "cli/cluster/pod_ready.h"
#include "cli/doctor/doctor.h"
#include "model/dra.h"
#include "model/request_code.h"

#define SHARES_MINOR 36 /* from which on the gate DRAConsumableCapacity is on */
#define TRIED_S 120     /* kubelet repeats a preparation within 75 */
#define AGENT_OPTION "--resource-claims="

static const char apply[] = "apply deploy/dra, or dra.enabled=true with Helm; docs/dra.md";

/* ---- who has which option ---- */

/* Whether a replica of aliquot-scheduler allocates claims. */
static bool has_scheduler(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod))
        if (doctor_argument(pod, "scheduler", "--dra"))
            return true;
    return false;
}

/* Who allocates the cards of an agent; NULL: they are in no claims. */
static const char *allocator_of(struct json pod) {
    const char *value =
        doctor_is_of(pod, "aliquot-agent") ? doctor_argument(pod, "agent", AGENT_OPTION) : NULL;

    return value && strcmp(value, "off") != 0 ? value : NULL;
}

/* Agents whose argument names that allocator; NULL: any. */
static unsigned count_agents(const struct doctor *d, const char *allocator) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;
    unsigned n = 0;

    while (json_next(&it, NULL, &pod)) {
        const char *of = allocator_of(pod);

        n += of && (!allocator || strcmp(of, allocator) == 0);
    }
    return n;
}

/* Whether a card is kube-scheduler's, by the option of its agent or by its node's configuration. */
static bool has_card_of_kube_scheduler(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.gpus.root, "items"));
    struct json gpu;

    while (json_next(&it, NULL, &gpu))
        if (json_is_string(JSON_PATH(gpu, "status", "resourceClaims", "allocator"),
                           DRA_BY_KUBE_SCHEDULER))
            return true;
    return count_agents(d, DRA_BY_KUBE_SCHEDULER) > 0;
}

/* ---- classes ---- */

static struct json find_class(const struct doctor *d, const char *name) {
    struct json_iter it = json_iter(json_get(d->evidence.classes.root, "items"));
    struct json class;

    while (json_next(&it, NULL, &class))
        if (strcmp(doctor_name(class), name) == 0)
            return class;
    return (struct json){0};
}

static bool is_by_aliquot(struct json class) {
    return json_is_string(json_get(JSON_PATH(class, "metadata", "labels"), DRA_CLASS_LABEL),
                          DRA_BY_ALIQUOT);
}

static bool is_allocated(struct json claim) {
    return json_valid(JSON_PATH(claim, "status", "allocation"));
}

/* Claims that wait for a device of the class. */
static unsigned count_waiting(const struct doctor *d, const char *class) {
    struct json_iter it = json_iter(json_get(d->evidence.claims.root, "items"));
    struct json claim, request;
    unsigned n = 0;

    while (json_next(&it, NULL, &claim)) {
        struct json_iter requests = json_iter(JSON_PATH(claim, "spec", "devices", "requests"));
        bool asks = false;

        while (json_next(&requests, NULL, &request))
            asks = asks ||
                   json_is_string(JSON_PATH(request, "exactly", "deviceClassName"), class) ||
                   json_valid(
                       json_find(json_get(request, "firstAvailable"), "deviceClassName", class));
        n += asks && !is_allocated(claim);
    }
    return n;
}

static unsigned find_missing_classes(struct doctor *d) {
    const struct {
        const char *name;
        bool wanted;
    } classes[] = {
        {DRA_DRIVER, has_scheduler(d)},
        {DRA_FIRST_FIT_CLASS, has_card_of_kube_scheduler(d)},
    };
    unsigned n = 0;

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (!classes[i].wanted || json_valid(find_class(d, classes[i].name)))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG, apply, "there is no DeviceClass %s", classes[i].name);
    }
    return n;
}

/* Classes from which kube-scheduler allocates nothing. */
static unsigned find_unserved_classes(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.classes.root, "items"));
    struct json class;
    unsigned n = 0;

    while (!has_scheduler(d) && json_next(&it, NULL, &class)) {
        if (!is_by_aliquot(class))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG,
                    "give aliquot-scheduler the option --dra, as deploy/dra and dra.enabled do, or "
                    "delete the class; docs/dra.md",
                    "DeviceClass %s is allocated by aliquot-scheduler, and no replica has --dra: "
                    "claims that wait: %u",
                    doctor_name(class), count_waiting(d, doctor_name(class)));
    }
    return n;
}

/* ---- slices ---- */

static const char *node_of(struct json slice) {
    return json_string_or(JSON_PATH(slice, "spec", "nodeName"), "");
}

/* Devices of a node, or of all where that is NULL; ret_whole: those that cannot be shared. */
static unsigned count_devices(const struct doctor *d, const char *node, unsigned *ret_whole) {
    struct json_iter it = json_iter(json_get(d->evidence.slices.root, "items"));
    struct json slice, device;
    unsigned n = 0;

    *ret_whole = 0;
    while (json_next(&it, NULL, &slice)) {
        struct json_iter devices = json_iter(JSON_PATH(slice, "spec", "devices"));

        if (node && strcmp(node_of(slice), node) != 0)
            continue;
        for (; json_next(&devices, NULL, &device); n++) {
            bool shared = false;

            (void) json_bool(json_get(device, "allowMultipleAllocations"), &shared);
            *ret_whole += !shared;
        }
    }
    return n;
}

/* Whether the agent of the node has a card to publish. */
static bool has_shared_card(const struct doctor *d, const char *node) {
    struct json_iter it = json_iter(json_get(d->evidence.gpus.root, "items"));
    struct json gpu;

    while (json_next(&it, NULL, &gpu)) {
        struct json spec = json_get(gpu, "spec"), mig = json_get(spec, "mig");
        bool whole = false;

        (void) json_bool(json_get(spec, "wholeOnly"), &whole);
        if (json_is_string(json_get(spec, "nodeName"), node) && !whole &&
            !json_valid(json_get(spec, "replicas")) && !json_valid(json_get(mig, "profile")) &&
            !json_is_string(json_get(mig, "mode"), "Enabled"))
            return true;
    }
    return false;
}

static const char gate_remedy[] =
    "upgrade to Kubernetes 1.36, or switch the feature gate DRAConsumableCapacity on for API "
    "server, kube-scheduler, controllers and kubelet; docs/dra.md";

/* An API server that drops the field of shares says nothing; then the agents publish nothing. */
static bool find_lacking_gate(struct doctor *d) {
    const char *text = json_string_or(json_get(d->evidence.version.root, "gitVersion"), "");
    unsigned major, minor, whole, n = count_devices(d, NULL, &whole);

    if (whole > 0)
        doctor_find(d, DOCTOR_WRONG, gate_remedy,
                    "the API server drops shares of devices: %u cards are published as whole ones",
                    whole);
    else if (n == 0 && doctor_server_version(d, &major, &minor) && major == 1 &&
             minor < SHARES_MINOR)
        doctor_find(d, DOCTOR_WRONG, gate_remedy,
                    "Kubernetes %s has no shares of devices unless its feature gate "
                    "DRAConsumableCapacity is on, and no card is published",
                    text);
    else
        return false;
    return true;
}

/* Why claims get nothing of the cards of the node, as its agent says; "": it does not. */
static const char *message_of(const struct doctor *d, const char *node) {
    struct json_iter it = json_iter(json_get(d->evidence.gpus.root, "items"));
    struct json gpu;

    while (json_next(&it, NULL, &gpu)) {
        const char *text =
            json_string_or(JSON_PATH(gpu, "status", "resourceClaims", "message"), "");

        if (text[0] && json_is_string(JSON_PATH(gpu, "spec", "nodeName"), node))
            return text;
    }
    return "";
}

static unsigned find_missing_slices(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;
    unsigned n = 0, whole;

    while (json_next(&it, NULL, &pod)) {
        const char *node = json_string_or(JSON_PATH(pod, "spec", "nodeName"), "");
        const char *why = message_of(d, node);

        if (!allocator_of(pod) || !pod_is_ready(pod) || !has_shared_card(d, node) ||
            (!why[0] && count_devices(d, node, &whole) > 0))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG,
                    "kubectl -n <namespace of Aliquot> logs <the agent's pod>; docs/dra.md",
                    why[0] ? "ResourceClaims get no card of node %s: %s"
                           : "the cards of node %s are in no ResourceSlice%s",
                    node, why);
    }
    return n;
}

static unsigned find_no_agent(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    if (!has_scheduler(d) || count_agents(d, NULL) > 0)
        return 0;
    while (json_next(&it, NULL, &pod))
        if (doctor_is_of(pod, "aliquot-agent")) {
            doctor_find(d, DOCTOR_WRONG, apply,
                        "aliquot-scheduler allocates claims, and no agent has " AGENT_OPTION
                        "aliquot: no card is published");
            return 1;
        }
    return 0;
}

/* ---- kubelet ---- */

/* What kubelet says of a pod whose driver it does not know. */
static bool says_unregistered(const struct doctor *d, struct json event) {
    const char *text = json_string_or(json_get(event, "message"), "");
    time_t server, written;

    if (!json_is_string(json_get(event, "reason"), "FailedPrepareDynamicResources") ||
        !strstr(text, DRA_DRIVER) || !strstr(text, "not registered"))
        return false;
    return !doctor_server_time(d, &server) || !doctor_written_at(event, &written) ||
           server - written <= TRIED_S;
}

static unsigned find_unregistered(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.events.root, "items"));
    struct json event;
    unsigned n = 0;

    while (json_next(&it, NULL, &event)) {
        struct json pod = json_get(event, "involvedObject");

        if (!says_unregistered(d, event))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG,
                    "look at the agent of that node: kubelet.dir or --kubelet-dir is kubelet's "
                    "directory, and it has " AGENT_OPTION "; docs/dra.md",
                    "kubelet has not registered the driver for pod %s/%s: %s",
                    json_string_or(json_get(pod, "namespace"), ""),
                    json_string_or(json_get(pod, "name"), ""),
                    json_string_or(json_get(event, "message"), ""));
    }
    return n;
}

/* ---- gates ---- */

static struct json find_claim(const struct doctor *d, struct json namespace, const char *name) {
    struct json_iter it = json_iter(json_get(d->evidence.claims.root, "items"));
    struct json claim;

    while (json_next(&it, NULL, &claim))
        if (strcmp(doctor_name(claim), name) == 0 &&
            json_is_string(JSON_PATH(claim, "metadata", "namespace"),
                           json_string_or(namespace, "")))
            return claim;
    return (struct json){0};
}

static bool has_all_claims(const struct doctor *d, struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "spec", "resourceClaims"));
    struct json made = JSON_PATH(pod, "status", "resourceClaimStatuses"), use;

    while (json_next(&it, NULL, &use)) {
        struct json of_template =
            json_find(made, "name", json_string_or(json_get(use, "name"), ""));
        const char *name = json_string(json_get(use, "resourceClaimName"));

        name = name ? name : json_string_or(json_get(of_template, "resourceClaimName"), "");
        if (!is_allocated(find_claim(d, JSON_PATH(pod, "metadata", "namespace"), name)))
            return false;
    }
    return true;
}

/* With another gate, or on its way out, a pod is none of the scheduler's. */
static bool is_gated(struct json pod) {
    struct json gates = JSON_PATH(pod, "spec", "schedulingGates");

    return json_size(gates) == 1 && json_valid(json_find(gates, "name", DRA_GATE)) &&
           !json_valid(JSON_PATH(pod, "metadata", "deletionTimestamp"));
}

static unsigned find_gates(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pending.root, "items"));
    bool taken_off = has_scheduler(d);
    struct json pod, first = {0};
    unsigned n = 0;

    while (json_next(&it, NULL, &pod)) {
        if (!is_gated(pod) || (taken_off && (!doctor_is_old(d, pod) || !has_all_claims(d, pod))))
            continue;
        first = n++ == 0 ? pod : first;
    }
    if (n > 0)
        doctor_find(
            d, DOCTOR_WRONG,
            taken_off ? "kubectl -n <namespace of Aliquot> logs -l "
                        "app.kubernetes.io/name=aliquot-scheduler; docs/dra.md"
                      : apply,
            "%s/%s has the gate " DRA_GATE "%s: %u pods",
            json_string_or(JSON_PATH(first, "metadata", "namespace"), ""), doctor_name(first),
            taken_off ? " although its claims are allocated" : ", which nothing takes off", n);
    return n;
}

/* ---- templates ---- */

/* Whether a claim of the pod is not there, whose template aliquot-scheduler makes. */
static bool lacks_template(struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "spec", "resourceClaims"));
    struct json made = JSON_PATH(pod, "status", "resourceClaimStatuses"), use;
    struct container_request request = {0};

    while (json_next(&it, NULL, &use)) {
        const char *name = json_string_or(json_get(use, "resourceClaimTemplateName"), "");

        if (!json_valid(json_find(made, "name", json_string_or(json_get(use, "name"), ""))) &&
            request_code_read(name, &request) == REQUEST_OK)
            return true;
    }
    return false;
}

static unsigned find_templates(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pending.root, "items"));
    struct json pod, first = {0};
    unsigned n = 0;

    while (has_scheduler(d) && json_next(&it, NULL, &pod))
        if (is_gated(pod) && doctor_is_old(d, pod) && lacks_template(pod))
            first = n++ == 0 ? pod : first;
    if (n > 0)
        doctor_find(d, DOCTOR_WRONG,
                    "kubectl describe pod: its Event GPUClaimWaits says why; deploy/dra lets "
                    "aliquot-scheduler make templates; docs/dra.md",
                    "%s/%s waits for a ResourceClaimTemplate that was not made: %u pods",
                    json_string_or(JSON_PATH(first, "metadata", "namespace"), ""),
                    doctor_name(first), n);
    return n;
}

/* ---- the check ---- */

static bool any_class(const struct doctor *d) {
    return json_valid(find_class(d, DRA_DRIVER)) || json_valid(find_class(d, DRA_FIRST_FIT_CLASS));
}

static unsigned find_problems(struct doctor *d) {
    unsigned n = find_missing_classes(d) + find_unserved_classes(d) + find_no_agent(d);

    if (count_agents(d, NULL) > 0)
        n += find_lacking_gate(d) ? 1 : find_missing_slices(d);
    return n + find_unregistered(d) + find_gates(d) + find_templates(d);
}

void doctor_check_claims(struct doctor *d) {
    const struct doctor_doc *const read[] = {&d->evidence.pods, &d->evidence.classes,
                                             &d->evidence.slices, &d->evidence.claims};
    bool wanted = has_scheduler(d) || count_agents(d, NULL) > 0;
    unsigned whole;

    if (doctor_is_missing(&d->evidence.classes.err) && wanted) {
        doctor_find(d, DOCTOR_WRONG,
                    "upgrade to Kubernetes 1.36, or take deploy/dra away; docs/dra.md",
                    "the API server has no resource.k8s.io/v1, and Aliquot is to serve claims");
        return;
    }
    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++)
        if (!json_valid(read[i]->root) && !doctor_is_missing(&read[i]->err)) {
            doctor_find_unread(d, read[i]);
            return;
        }
    if (find_problems(d) > 0)
        return;
    if (wanted || any_class(d))
        doctor_find(d, DOCTOR_OK, NULL, "cards in ResourceSlices: %u",
                    count_devices(d, NULL, &whole));
    else
        doctor_find(d, DOCTOR_OK, NULL, "not served: shares are requested by resource names only");
}
