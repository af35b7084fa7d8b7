/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/in_pod/kinds.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ADMISSION "/apis/admissionregistration.k8s.io/v1"
#define RIGHTS "/apis/rbac.authorization.k8s.io/v1"
#define OWN "/apis/elasticgpu.io/v1alpha1"

struct kind {
    const char *name, *group;
    bool everywhere; /* it has no namespace */
};

static const struct kind kinds[] = {
    {"nodes", "/api/v1", true},
    {"configmaps", "/api/v1", false},
    {"events", "/api/v1", false},
    {"pods", "/api/v1", false},
    {"secrets", "/api/v1", false},
    {"serviceaccounts", "/api/v1", false},
    {"services", "/api/v1", false},
    {"apiservices", "/apis/apiregistration.k8s.io/v1", true},
    {"certificatesigningrequests", "/apis/certificates.k8s.io/v1", true},
    {"daemonsets", "/apis/apps/v1", false},
    {"deployments", "/apis/apps/v1", false},
    {"jobs", "/apis/batch/v1", false},
    {"leases", "/apis/coordination.k8s.io/v1", false},
    {"poddisruptionbudgets", "/apis/policy/v1", false},
    {"csistoragecapacities", "/apis/storage.k8s.io/v1", false},
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
    {"elasticgpuclaims.elasticgpu.io", OWN, false},
    {"elasticgpuclasses.elasticgpu.io", OWN, true},
    {"elasticgpuquotas.elasticgpu.io", OWN, false},
    {"elasticgpureservations.elasticgpu.io", OWN, true},
    {"elasticgpus.elasticgpu.io", OWN, true},
    {"gpus.elasticgpu.io", OWN, true},
};

int kind_find(const char *name, size_t len, const struct kind **ret, struct err *err) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(kinds[i].name, name, len) == 0 && kinds[i].name[len] == '\0') {
            *ret = &kinds[i];
            return 0;
        }
    return err_set(err, EINVAL, "no kind %.*s is known to aliquot-kubectl", (int) len, name);
}

const char *kind_name(const struct kind *kind) {
    return kind->name;
}

void kind_put_path(const struct kind *kind, const char *namespace, const char *name,
                   struct buf *path) {
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
