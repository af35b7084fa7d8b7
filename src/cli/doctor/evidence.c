/* SPDX-License-Identifier: Apache-2.0 */

/* What is read of the cluster. */

#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/doctor/doctor.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/resource_slice.h"
#include "model/dra.h"

#define ANSWERS_MS 60000 /* lists of a large cluster */

/* As a namespace that enforces the Pod Security Standard "restricted" takes it. */
#define POD(limits)                                                                                \
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"aliquot-doctor\"},"          \
    "\"spec\":{\"restartPolicy\":\"Never\",\"securityContext\":{\"runAsNonRoot\":true,"            \
    "\"runAsUser\":65534,\"seccompProfile\":{\"type\":\"RuntimeDefault\"}},\"containers\":["       \
    "{\"name\":\"doctor\",\"image\":\"doctor\",\"securityContext\":"                               \
    "{\"allowPrivilegeEscalation\":false,\"capabilities\":{\"drop\":[\"ALL\"]}},"                  \
    "\"resources\":{\"limits\":{" limits "}}}]}}"

#define MEMBER(name) offsetof(struct doctor_evidence, name)

static const struct reading {
    size_t doc;
    const char *path;      /* up to the namespace of Aliquot, which is followed by: */
    const char *in_system; /* NULL: the path is whole */
    const char *accept;
} readings[] = {
    {MEMBER(nodes), "/api/v1/nodes", NULL, NULL},
    {MEMBER(pods), "/api/v1/namespaces/", "/pods", NULL},
    {MEMBER(daemonsets), "/apis/apps/v1/daemonsets", NULL, NULL},
    {MEMBER(events), "/api/v1/events?fieldSelector=type%3DWarning", NULL, NULL},
    {MEMBER(issued), "/api/v1/events?fieldSelector=reason%3DCertificateIssued", NULL, NULL},
    {MEMBER(leases), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", NULL, NULL},
    {MEMBER(own_leases), "/apis/coordination.k8s.io/v1/namespaces/", "/leases", NULL},
    {MEMBER(gpus), API_GPUS, NULL, NULL},
    {MEMBER(pending), "/api/v1/pods?fieldSelector=status.phase%3DPending", NULL, NULL},
    {MEMBER(apis), "/apis/apiregistration.k8s.io/v1/apiservices", NULL, NULL},
    {MEMBER(classes), DEVICE_CLASSES_PATH, NULL, NULL},
    {MEMBER(claims), RESOURCE_CLAIMS_PATH, NULL, NULL},
    {MEMBER(slices), RESOURCE_SLICES_PATH "?fieldSelector=spec.driver%3D" DRA_DRIVER, NULL, NULL},
    /* Without what is secret. */
    {MEMBER(secret), "/api/v1/namespaces/", "/secrets/aliquot-signing",
     "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
    {MEMBER(public_key), "/api/v1/namespaces/", "/configmaps/aliquot-signing", NULL},
};
#define READINGS (sizeof(readings) / sizeof(readings[0]))

static struct doctor_doc *doc_of(struct doctor_evidence *e, size_t i) {
    return (struct doctor_doc *) ((char *) e + readings[i].doc);
}

static void open_doc(struct doctor_doc *doc, const struct buf *text, int r) {
    if (r == 0)
        r = json_open(buf_str(text), text->len, &doc->parser, &doc->root, &doc->err);
    if (r < 0)
        doc->root = (struct json){0};
}

static char *path_of(const struct doctor_evidence *e, const struct reading *reading) {
    const char *rest = reading->in_system;
    char *path;

    if (asprintf(&path, "%s%s%s", reading->path, rest ? e->system : "", rest ? rest : "") < 0)
        return NULL;
    return path;
}

static int read_all(struct doctor_evidence *e, struct err *err) {
    struct api_get *gets = calloc(READINGS, sizeof(*gets));
    bool whole = gets;

    for (size_t i = 0; whole && i < READINGS; i++) {
        gets[i].path = path_of(e, &readings[i]);
        gets[i].accept = readings[i].accept;
        whole = gets[i].path;
    }
    if (whole)
        api_get_all(gets, READINGS, ANSWERS_MS, ANSWERS_MS);
    for (size_t i = 0; whole && i < READINGS; i++) {
        if (gets[i].result < 0)
            doc_of(e, i)->err = gets[i].err;
        open_doc(doc_of(e, i), &gets[i].text, gets[i].result);
    }
    if (gets)
        api_gets_done(gets, READINGS);
    return whole ? 0 : err_errno(err, ENOMEM, "cannot read the cluster");
}

static void read_doc(struct doctor_doc *doc, const char *path) {
    if (api_read(path, &doc->parser, &doc->root, &doc->err) < 0)
        doc->root = (struct json){0};
}

/* In a namespace like those of tenants, and not the privileged one of Aliquot. Nothing is made. */
static void try_pod(struct doctor_doc *doc, const char *pod) {
    if (api_create("/api/v1/namespaces/default/pods?dryRun=All", pod, &doc->parser, &doc->root,
                   &doc->err) < 0)
        doc->root = (struct json){0};
}

static int read_webhook(struct doctor_evidence *e, struct err *err) {
    static const struct reading service = {0, "/api/v1/namespaces/", "/services/aliquot-webhook",
                                           NULL};
    _cleanup_free_ char *path = path_of(e, &service);

    if (!path)
        return err_errno(err, ENOMEM, "cannot read the webhook's Service");
    read_doc(&e->webhook, path);
    return 0;
}

bool doctor_webhook_fails(const struct doctor_evidence *e) {
    return strstr(e->share.err.text, "failed calling webhook");
}

int doctor_read(struct doctor_evidence *e, const struct port_forward *scheduler, struct err *err) {
    _cleanup_buf_ struct buf status = BUF_INIT(0);
    int r;

    e->system = scheduler->name_space;
    if (!api_is_name(e->system))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", e->system);
    read_doc(&e->version, "/version");
    if (!json_valid(e->version.root))
        return 0; /* the cluster does not answer: all else would only say so again */
    r = read_all(e, err);
    if (r < 0)
        return r;
    try_pod(&e->share, POD("\"elasticgpu.io/gpu-memory\":\"1Gi\""));
    try_pod(&e->refused, POD("\"elasticgpu.io/gpu-core\":\"150\""));
    if (doctor_webhook_fails(e))
        r = read_webhook(e, err);
    open_doc(&e->status, &status, port_forward_get(scheduler, "/status", &status, &e->status.err));
    return r;
}

void doctor_evidence_done(struct doctor_evidence *e) {
    struct doctor_doc *const others[] = {&e->version, &e->share, &e->refused, &e->webhook,
                                         &e->status};

    for (size_t i = 0; i < READINGS; i++)
        json_parser_free(doc_of(e, i)->parser);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        json_parser_free(others[i]->parser);
}
