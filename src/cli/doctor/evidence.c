/* SPDX-License-Identifier: Apache-2.0 */

/* What is read of the cluster, by kubectl. */

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/kubectl.h"
#include "cli/doctor/doctor.h"

/* As a namespace that enforces the Pod Security Standard "restricted" takes it. Only --dry-run sees
 * it. */
#define POD(limits)                                                                                \
    "{\"spec\":{\"securityContext\":{\"runAsNonRoot\":true,\"runAsUser\":65534,"                   \
    "\"seccompProfile\":{\"type\":\"RuntimeDefault\"}},\"containers\":[{\"name\":\"doctor\","      \
    "\"image\":\"doctor\",\"securityContext\":{\"allowPrivilegeEscalation\":false,"                \
    "\"capabilities\":{\"drop\":[\"ALL\"]}},\"resources\":{\"limits\":{" limits "}}}]}}"

static void open_doc(struct doctor_doc *doc, const struct buf *text, int r) {
    if (r == 0)
        r = json_open(buf_str(text), text->len, &doc->parser, &doc->root, &doc->err);
    if (r < 0)
        doc->root = (struct json){0};
}

static void read_doc(struct doctor_doc *doc, const char *const *arguments) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    open_doc(doc, &text, kubectl(&text, &doc->err, arguments));
}

#define READ(doc, ...) read_doc((doc), (const char *const[]){__VA_ARGS__, NULL})

/* Without -o kubectl asks for a table, in which the API server leaves out the key. */
static void look_for_key(struct doctor_evidence *e) {
    _cleanup_buf_ struct buf table = BUF_INIT(0);

    (void) KUBECTL(&table, &e->secret, "get", "secrets", "aliquot-signing", "-n", e->system);
}

static void try_pod(struct doctor_doc *doc, const char *overrides) {
    char option[1024];

    (void) snprintf(option, sizeof(option), "--overrides=%s", overrides);
    READ(doc, "run", "aliquot-doctor", "--image=doctor", "--restart=Never", "--dry-run=server",
         "-o", "json", option);
}

bool doctor_webhook_fails(const struct doctor_evidence *e) {
    return strstr(e->share.err.text, "failed calling webhook");
}

void doctor_read(struct doctor_evidence *e, const struct port_forward *scheduler) {
    _cleanup_buf_ struct buf status = BUF_INIT(0);

    e->system = scheduler->name_space;
    READ(&e->version, "version", "-o", "json");
    if (!json_valid(e->version.root))
        return; /* the cluster does not answer: all else would only say so again */
    READ(&e->nodes, "get", "nodes", "-o", "json");
    READ(&e->pods, "get", "pods", "-n", e->system, "-o", "json");
    READ(&e->daemonsets, "get", "daemonsets", "-A", "-o", "json");
    READ(&e->events, "get", "events", "-A", "--field-selector=type=Warning", "-o", "json");
    READ(&e->leases, "get", "leases", "-n", "kube-node-lease", "-o", "json");
    READ(&e->own_leases, "get", "leases", "-n", e->system, "-o", "json");
    READ(&e->gpus, "get", "gpus.elasticgpu.io", "-o", "json");
    READ(&e->pending, "get", "pods", "-A", "--field-selector=status.phase=Pending", "-o", "json");
    READ(&e->apis, "get", "apiservices", "-o", "json");
    look_for_key(e);
    READ(&e->public_key, "get", "configmaps", "aliquot-signing", "-n", e->system, "-o", "json");
    try_pod(&e->share, POD("\"elasticgpu.io/gpu-memory\":\"1Gi\""));
    try_pod(&e->refused, POD("\"elasticgpu.io/gpu-core\":\"150\""));
    if (doctor_webhook_fails(e))
        READ(&e->webhook, "get", "services", "aliquot-webhook", "-n", e->system, "-o", "json");
    open_doc(&e->status, &status, port_forward_get(scheduler, "/status", &status, &e->status.err));
}

void doctor_evidence_done(struct doctor_evidence *e) {
    struct doctor_doc *const docs[] = {&e->version, &e->nodes,      &e->pods,  &e->daemonsets,
                                       &e->leases,  &e->own_leases, &e->gpus,  &e->pending,
                                       &e->events,  &e->public_key, &e->share, &e->refused,
                                       &e->webhook, &e->apis,       &e->status};

    for (size_t i = 0; i < sizeof(docs) / sizeof(docs[0]); i++)
        json_parser_free(docs[i]->parser);
}
