/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the nodes: agents, what they report, other plugins, clocks. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "cli/cluster/pod_ready.h"
#include "cli/doctor/doctor.h"

#define CLOCK_OFF_S 10 /* between a node's clock and that of the API server */

/* ---- agents ---- */

/* Labels of nodes with GPUs, of NFD, GFD, GKE, EKS and AKS: those of the chart's gpuNodesOnly.
 * NULL: any value. */
static const struct text_pair gpu_labels[] = {
    {"nvidia.com/gpu.present", "true"},
    {"feature.node.kubernetes.io/pci-10de.present", "true"},
    {"feature.node.kubernetes.io/pci-0300_10de.present", "true"},
    {"feature.node.kubernetes.io/pci-0302_10de.present", "true"},
    {"cloud.google.com/gke-accelerator", NULL},
    {"k8s.amazonaws.com/accelerator", NULL},
    {"kubernetes.azure.com/accelerator", "nvidia"},
    {"accelerator", "nvidia"},
};

static bool has_gpus(struct json node) {
    struct json labels = JSON_PATH(node, "metadata", "labels");

    for (size_t i = 0; i < sizeof(gpu_labels) / sizeof(gpu_labels[0]); i++) {
        const char *value = json_string(json_get(labels, gpu_labels[i].key));

        if (value && (!gpu_labels[i].value || strcmp(value, gpu_labels[i].value) == 0))
            return true;
    }
    return false;
}

static bool is_left_out(struct json node) {
    return json_is_string(json_get(JSON_PATH(node, "metadata", "labels"), "nvidia-device-enable"),
                          "disable");
}

/* The agent's pod on the node; invalid: none. */
static struct json find_agent(const struct doctor *d, const char *node) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod))
        if (doctor_is_of(pod, "aliquot-agent") &&
            json_is_string(JSON_PATH(pod, "spec", "nodeName"), node))
            return pod;
    return (struct json){0};
}

/* As while another project has all nodes. */
static bool daemonset_selects_none(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.daemonsets.root, "items"));
    struct json daemonset;
    uint64_t pods;

    while (json_next(&it, NULL, &daemonset))
        if (doctor_is_of(daemonset, "aliquot-agent") &&
            json_is_string(JSON_PATH(daemonset, "metadata", "namespace"), d->evidence.system))
            return json_u64(JSON_PATH(daemonset, "status", "desiredNumberScheduled"), &pods) &&
                   pods == 0;
    return false;
}

void doctor_check_agents(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.nodes.root, "items"));
    unsigned agents = 0, missing = 0;
    struct json node;

    if (!json_valid(d->evidence.nodes.root) || !json_valid(d->evidence.pods.root)) {
        const struct doctor_doc *unread =
            json_valid(d->evidence.nodes.root) ? &d->evidence.pods : &d->evidence.nodes;

        doctor_find_unread(d, unread);
        return;
    }
    while (json_next(&it, NULL, &node)) {
        struct json agent = find_agent(d, doctor_name(node));

        agents += json_valid(agent);
        if (json_valid(agent) ? pod_is_ready(agent) : !has_gpus(node) || is_left_out(node))
            continue;
        missing++;
        doctor_find(d, DOCTOR_WRONG,
                    json_valid(agent) ? "kubectl -n <namespace of Aliquot> logs <its pod>"
                                      : "look at the nodeSelector and the tolerations of the "
                                        "agents' DaemonSet",
                    json_valid(agent) ? "the agent on node %s is not ready"
                                      : "node %s has GPUs and no agent",
                    doctor_name(node));
    }
    if (agents == 0 && missing == 0 && daemonset_selects_none(d))
        doctor_find(d, DOCTOR_UNSURE,
                    "the label nvidia-device-enable: disable, or the nodeSelector or affinity of "
                    "the DaemonSet, keeps it off; docs/coming-from.md",
                    "the DaemonSet of aliquot-agent selects no node");
    else if (agents == 0 && missing == 0)
        doctor_find(d, DOCTOR_WRONG, "install Aliquot: docs/install.md",
                    "there is no agent in namespace %s", d->evidence.system);
    else if (missing == 0)
        doctor_find(d, DOCTOR_OK, NULL, "agents that are ready: %u", agents);
}

/* ---- drivers ---- */

static bool has_card(const struct doctor *d, const char *node) {
    struct json_iter it = json_iter(json_get(d->evidence.gpus.root, "items"));
    struct json gpu;

    while (json_next(&it, NULL, &gpu))
        if (json_is_string(JSON_PATH(gpu, "spec", "nodeName"), node))
            return true;
    return false;
}

/* The condition by which an agent says so; invalid: the driver answers, or there is none. */
static struct json driver_trouble(struct json node) {
    struct json gpus = json_find(JSON_PATH(node, "status", "conditions"), "type", "GPUHealthy");
    bool fails = json_is_string(json_get(gpus, "reason"), "DriverNotAnswering");

    return fails ? gpus : (struct json){0};
}

static unsigned find_driver_troubles(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.nodes.root, "items"));
    unsigned n = 0;
    struct json node;

    while (json_next(&it, NULL, &node)) {
        struct json trouble = driver_trouble(node);

        if (!json_valid(trouble))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG,
                    "look at the driver on that node by `nvidia-smi` and `dmesg`, or upgrade it",
                    "node %s: %s", doctor_name(node),
                    json_string_or(json_get(trouble, "message"), ""));
    }
    return n;
}

/* An agent that is not ready has not looked for it; that is said of the agent. */
static bool lacks_driver(const struct doctor *d, struct json node) {
    return has_gpus(node) && !json_valid(driver_trouble(node)) && !has_card(d, doctor_name(node)) &&
           pod_is_ready(find_agent(d, doctor_name(node)));
}

void doctor_check_drivers(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.nodes.root, "items"));
    const struct doctor_doc *const read[] = {&d->evidence.nodes, &d->evidence.pods,
                                             &d->evidence.gpus};
    unsigned wrong = find_driver_troubles(d), cards = 0;
    struct json node;

    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++)
        if (!json_valid(read[i]->root)) {
            doctor_find_unread(d, read[i]);
            return;
        }
    while (json_next(&it, NULL, &node)) {
        cards += has_card(d, doctor_name(node));
        if (!lacks_driver(d, node))
            continue;
        wrong++;
        doctor_find(d, DOCTOR_WRONG,
                    "install the NVIDIA driver there, or name its directory by --driver-root or "
                    "driver.root; docs/install.md, step 5",
                    "node %s has GPUs by its labels, and its agent finds no driver",
                    doctor_name(node));
    }
    if (wrong == 0 && cards == 0)
        doctor_find(d, DOCTOR_UNSURE, "docs/install.md, step 5, says where an agent looks for it",
                    "no agent has found a driver");
    else if (wrong == 0)
        doctor_find(d, DOCTOR_OK, NULL, "the drivers answer on all nodes with cards: %u", cards);
}

/* ---- what agents report ---- */

/* Of a node as a whole; an Event of a pod is its own matter, but for the runtime's. */
static bool is_of_node(struct json event) {
    const char *by = json_string_or(json_get(event, "reportingComponent"), "");

    return strcmp(by, "aliquot-agent") == 0 &&
           (json_is_string(JSON_PATH(event, "involvedObject", "kind"), "Node") ||
            json_is_string(json_get(event, "reason"), "ContainerRuntimeWithoutCDI"));
}

/* An agent that has got its certificate says so by another Event of the node. */
static bool is_over(const struct doctor *d, struct json event) {
    struct json_iter it = json_iter(json_get(d->evidence.issued.root, "items"));
    const char *node = json_string_or(JSON_PATH(event, "involvedObject", "name"), "");
    struct json issued;
    time_t missed, got;

    if (!json_is_string(json_get(event, "reason"), "NoCertificate") ||
        !doctor_written_at(event, &missed))
        return false;
    while (json_next(&it, NULL, &issued))
        if (json_is_string(JSON_PATH(issued, "involvedObject", "name"), node) &&
            doctor_written_at(issued, &got) && got >= missed)
            return true;
    return false;
}

static unsigned find_events(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.events.root, "items"));
    struct json event;
    unsigned n = 0;

    for (; json_next(&it, NULL, &event);) {
        if (!is_of_node(event) || is_over(d, event))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG, "the message names the remedy; docs/failure-modes.md",
                    "%s %s: %s: %s", json_string_or(JSON_PATH(event, "involvedObject", "kind"), ""),
                    json_string_or(JSON_PATH(event, "involvedObject", "name"), ""),
                    json_string_or(json_get(event, "reason"), ""),
                    json_string_or(json_get(event, "message"), ""));
    }
    return n;
}

/* But for those of the driver, which are a check of their own. */
static unsigned find_conditions(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.nodes.root, "items"));
    struct json node;
    unsigned n = 0;

    while (json_next(&it, NULL, &node)) {
        struct json gpus = json_find(JSON_PATH(node, "status", "conditions"), "type", "GPUHealthy");

        if (!json_valid(gpus) || json_is_string(json_get(gpus, "status"), "True") ||
            json_valid(driver_trouble(node)))
            continue;
        n++;
        doctor_find(d, DOCTOR_WRONG, "kubectl get gpus; docs/failure-modes.md", "node %s: %s",
                    doctor_name(node), json_string_or(json_get(gpus, "message"), ""));
    }
    return n;
}

void doctor_check_nodes(struct doctor *d) {
    unsigned n = find_conditions(d) + find_events(d);

    if (!json_valid(d->evidence.events.root))
        doctor_find_unread(d, &d->evidence.events);
    else if (n == 0)
        doctor_find(d, DOCTOR_OK, NULL, "no card is unhealthy, and no agent has a problem");
}

/* ---- other plugins ---- */

/* Parts of the names of images. */
static const char *const plugins[] = {"k8s-device-plugin", "gpushare-plugin", "gpu-manager",
                                      "projecthami/hami", "vgpu-device-plugin"};

static const char *other_plugin(struct json daemonset) {
    struct json_iter it = json_iter(JSON_PATH(daemonset, "spec", "template", "spec", "containers"));
    struct json container;

    while (json_next(&it, NULL, &container)) {
        const char *image = json_string_or(json_get(container, "image"), "");

        for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++)
            if (strstr(image, plugins[i]))
                return image;
    }
    return NULL;
}

void doctor_check_plugins(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.daemonsets.root, "items"));
    struct json daemonset;
    unsigned n = 0;

    while (json_next(&it, NULL, &daemonset)) {
        const char *image = other_plugin(daemonset);
        uint64_t pods = 0;

        (void) json_u64(JSON_PATH(daemonset, "status", "desiredNumberScheduled"), &pods);
        if (!image || pods == 0)
            continue;
        n++;
        doctor_find(
            d, DOCTOR_UNSURE,
            "keep it off the nodes of Aliquot: both would give the same cards; docs/dialects.md",
            "DaemonSet %s/%s (%s) runs on %u nodes",
            json_string_or(JSON_PATH(daemonset, "metadata", "namespace"), ""),
            doctor_name(daemonset), image, (unsigned) pods);
    }
    if (!json_valid(d->evidence.daemonsets.root))
        doctor_find_unread(d, &d->evidence.daemonsets);
    else if (n == 0)
        doctor_find(d, DOCTOR_OK, NULL, "no DaemonSet of another device plugin for GPUs");
}

/* ---- clocks ---- */

/* Who renews a Lease writes its own time into it, and the API server notes when. */
static unsigned find_clock(struct doctor *d, struct json lease, const char *what,
                           const char *name) {
    time_t server, renewed;

    if (!doctor_written_at(lease, &server) ||
        !doctor_read_time(JSON_PATH(lease, "spec", "renewTime"), &renewed) ||
        labs((long) (renewed - server)) <= CLOCK_OFF_S)
        return 0;
    doctor_find(d, DOCTOR_WRONG, "synchronize the clocks",
                "the clock of %s %s is %ld s %s that of the API server", what, name,
                labs((long) (renewed - server)), renewed > server ? "ahead of" : "behind");
    return 1;
}

void doctor_check_clocks(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.leases.root, "items"));
    struct json lease, own = doctor_own_lease(d);
    unsigned wrong = find_clock(d, own, "the node of",
                                json_string_or(JSON_PATH(own, "spec", "holderIdentity"), ""));

    if (!json_valid(d->evidence.leases.root)) {
        doctor_find_unread(d, &d->evidence.leases);
        return;
    }
    while (json_next(&it, NULL, &lease))
        if (json_valid(find_agent(d, doctor_name(lease))))
            wrong += find_clock(d, lease, "node", doctor_name(lease));
    if (wrong == 0)
        doctor_find(d, DOCTOR_OK, NULL,
                    "the clocks of the agents' nodes agree with the API server's");
}
