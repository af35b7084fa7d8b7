/* SPDX-License-Identifier: Apache-2.0 */

/* Claims of pods that request shares by resource names: admission makes of these the name of a
 * template (model/request_code.h), and the terms of the share stay in the pod's annotations. */

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/num.h"
#include "kube/api/object_write.h"
#include "kube/objects/share_config.h"
#include "model/dra.h"
#include "model/quantity.h"
#include "scheduler/dra/dra_internal.h"
#include "wire/json_write.h"

/* Where a user's template of that name gives its claims no annotation, their spec counts. Where it
 * does, they may say no other number of devices (dra_wants.c). */
const struct pod_device_claim *dra_request_of(const struct dra_pod *pod,
                                              const struct dra_claim *claim) {
    const struct resource_claim *object = &claim->object;
    if (!object->code[0] || object->nrequests != 1 || object->requests[0].nchoices != 1 ||
        strcmp(object->owner_pod, pod->object.uid) != 0)
        return NULL;
    for (uint32_t i = 0; i < pod->object.nclaims; i++)
        if (strcmp(pod->object.claims[i].claim, object->name) == 0)
            return strcmp(pod->object.claims[i].code, object->code) == 0 ? &pod->object.claims[i]
                                                                         : NULL;
    return NULL;
}

/* ---- terms ---- */

/* The claim of a container has its name. What ShareConfig does not take has no effect. */
static bool read_number(const struct pod_terms *terms, enum pod_setting setting,
                        const char *container, uint64_t *ret) {
    char value[64];
    return pod_terms_setting(terms, setting, container, value) &&
           num_parse_u64(value, 100, ret) == 0 && *ret > 0;
}

static bool read_policy(const struct pod_terms *terms, const char *container, char ret[static 64]) {
    return pod_terms_setting(terms, SETTING_POLICY, container, ret) &&
           strlen(ret) < SHARE_CONFIG_WORD_MAX && ret[0] &&
           ret[strspn(ret, "abcdefghijklmnopqrstuvwxyz-")] == '\0';
}

/* As the agent reads the annotations (agent/shares/compute_policy.c): a ceiling without a policy
 * means burst up to it, and fixed needs compute. */
void dra_terms_of(const struct dra_pod *pod, const struct pod_device_claim *of,
                  const struct container_request *request, char ret[static DRA_TERMS_MAX]) {
    const struct pod_terms *terms = &pod->object.terms;
    _cleanup_buf_ struct buf out = BUF_INIT(DRA_TERMS_MAX);
    struct json_writer w = {.out = &out};
    char word[64] = "";
    uint64_t weight = 0, ceiling = 0;
    (void) read_number(terms, SETTING_WEIGHT, of->name, &weight);
    (void) read_number(terms, SETTING_CEILING, of->name, &ceiling);
    const bool part = request->core > 0 || request->tflops > 0;
    const char *policy = read_policy(terms, of->name, word) ? word
                         : request->offline && !part        ? "offline"
                         : ceiling > 0 && part              ? "burst"
                                                            : "";
    if (!part && (strcmp(policy, "fixed") == 0 || strcmp(policy, "fixed-share") == 0))
        policy = "";
    ret[0] = '\0';
    if (request->whole || (!policy[0] && weight == 0 && ceiling == 0))
        return;
    json_object_begin(&w, NULL);
    json_put(&w, "apiVersion", SHARE_CONFIG_VERSION, "kind", SHARE_CONFIG_KIND);
    if (policy[0])
        json_put_string(&w, "computePolicy", policy);
    if (weight > 0)
        json_put_u64(&w, "weight", weight);
    if (ceiling > 0)
        json_put_u64(&w, "ceiling", ceiling);
    json_object_end(&w);
    if (buf_error(&out) == 0 && out.len < DRA_TERMS_MAX)
        memcpy(ret, buf_str(&out), out.len + 1);
}

/* ---- templates ---- */

/* What a claim can say of the request. A percentage of memory, TFLOPS and the memory of whole cards
 * it cannot say: the annotation has them. */
static void put_capacity(struct json_writer *w, const struct container_request *request) {
    char text[24];
    if (request->whole)
        return;
    json_object_begin(w, "capacity");
    json_object_begin(w, "requests");
    if (request->tflops == 0)
        json_put_stringf(w, DRA_CORE, "%" PRIu32, request->core);
    if (request->memory > 0)
        json_put_string(w, DRA_MEMORY, quantity_format_bytes(request->memory, text));
    json_object_end(w);
    json_object_end(w);
}

static void put_request(struct json_writer *w, const struct container_request *request) {
    json_array_begin(w, "requests");
    json_object_begin(w, NULL);
    json_put_string(w, "name", "gpu");
    json_object_begin(w, "exactly");
    json_put(w, "deviceClassName", DRA_DRIVER, "count", request->cards ? request->cards : 1u);
    put_capacity(w, request);
    json_object_end(w);
    json_object_end(w);
    json_array_end(w);
}

void dra_encode_template(const struct dra_template *template,
                         const struct container_request *request, struct buf *out) {
    struct json_writer w = {.out = out};
    object_begin(&w, "resource.k8s.io/v1", "ResourceClaimTemplate", template->name,
                 template->namespace->name);
    json_object_begin(&w, "labels");
    json_put_string(&w, DRA_TEMPLATE_LABEL, DRA_TEMPLATE_MAKER);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_object_begin(&w, "metadata");
    json_object_begin(&w, "annotations");
    json_put_string(&w, DRA_REQUEST_ANNOTATION, template->name);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_object_begin(&w, "devices");
    put_request(&w, request);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}
