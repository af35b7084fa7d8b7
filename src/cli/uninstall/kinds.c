/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/uninstall/kinds.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define ADMISSION "/apis/admissionregistration.k8s.io/v1"
#define RIGHTS "/apis/rbac.authorization.k8s.io/v1"
#define DEVICES "/apis/resource.k8s.io/v1"
#define OWN "/apis/elasticgpu.io/v1alpha1"
#define MONITORING                                                                                 \
    "/apis/monitoring.coreos.com/v1" /* of prometheus-operator, which may not be there */

static const struct kind {
    const char *name, *group;
    bool everywhere; /* it has no namespace */
} kinds[] = {
    {"namespaces", "/api/v1", true},
    {"nodes", "/api/v1", true},
    {"configmaps", "/api/v1", false},
    {"pods", "/api/v1", false},
    {"secrets", "/api/v1", false},
    {"serviceaccounts", "/api/v1", false},
    {"services", "/api/v1", false},
    {"apiservices", "/apis/apiregistration.k8s.io/v1", true},
    {"certificatesigningrequests", "/apis/certificates.k8s.io/v1", true},
    {"customresourcedefinitions", "/apis/apiextensions.k8s.io/v1", true},
    {"daemonsets", "/apis/apps/v1", false},
    {"deployments", "/apis/apps/v1", false},
    {"jobs", "/apis/batch/v1", false},
    {"leases", "/apis/coordination.k8s.io/v1", false},
    {"poddisruptionbudgets", "/apis/policy/v1", false},
    {"csistoragecapacities", "/apis/storage.k8s.io/v1", false},
    {"deviceclasses", DEVICES, true},
    {"resourceclaims", DEVICES, false},
    {"resourceclaimtemplates", DEVICES, false},
    {"resourceslices", DEVICES, true},
    {"clusterrolebindings", RIGHTS, true},
    {"clusterroles", RIGHTS, true},
    {"rolebindings", RIGHTS, false},
    {"roles", RIGHTS, false},
    {"mutatingadmissionpolicies", ADMISSION, true},
    {"mutatingadmissionpolicybindings", ADMISSION, true},
    {"mutatingwebhookconfigurations", ADMISSION, true},
    {"validatingadmissionpolicies", ADMISSION, true},
    {"validatingadmissionpolicybindings", ADMISSION, true},
    {"validatingwebhookconfigurations", ADMISSION, true},
    {"podmonitors.monitoring.coreos.com", MONITORING, false},
    {"prometheusrules.monitoring.coreos.com", MONITORING, false},
    {"elasticgpuclaims.elasticgpu.io", OWN, false},
    {"elasticgpuclasses.elasticgpu.io", OWN, true},
    {"elasticgpuquotas.elasticgpu.io", OWN, false},
    {"elasticgpureservations.elasticgpu.io", OWN, true},
    {"elasticgpus.elasticgpu.io", OWN, true},
    {"gpus.elasticgpu.io", OWN, true},
};

static const struct kind *find(const char *name) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

void kind_put_path(const char *kind_name, const char *namespace, const char *name,
                   struct buf *path) {
    const struct kind *kind = find(kind_name);

    assert(kind); /* names are those of this program */
    buf_puts(path, kind->group);
    if (!kind->everywhere && namespace)
        buf_printf(path, "/namespaces/%s", namespace);
    buf_printf(path, "/%.*s", (int) strcspn(kind->name, "."), kind->name);
    if (name)
        buf_printf(path, "/%s", name);
}

void kind_put_parameter(struct buf *path, const char *name, const char *value) {
    if (!value)
        return;
    buf_printf(path, "%s%s=", strchr(buf_str(path), '?') ? "&" : "?", name);
    for (; *value; value++) {
        bool plain = (*value >= 'a' && *value <= 'z') || (*value >= 'A' && *value <= 'Z') ||
                     (*value >= '0' && *value <= '9') || strchr("-._", *value);
        buf_printf(path, plain ? "%c" : "%%%02X", (unsigned char) *value);
    }
}
