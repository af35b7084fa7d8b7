/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/objects/pod_devices.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/resource_slice.h"
#include "kube/objects/share_config.h"
#include "wire/json.h"

/* Objects of resource.k8s.io and the parameters of their users out of any bytes. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_claim(struct json root) {
    struct resource_claim claim;
    struct share_config config;
    if (resource_claim_parse(root, &claim, NULL) < 0)
        return;
    if (claim.nrequests > DEVICE_REQUESTS_MAX || claim.nresults > DEVICE_RESULTS_MAX)
        abort();
    for (uint32_t i = 0; i < claim.nresults; i++)
        if (share_config_of(claim.allocated_configs, claim.nallocated_configs,
                            claim.results[i].request, &config, NULL) == 0 &&
            (config.weight > 100 || config.ceiling > 100))
            abort();
    resource_claim_done(&claim);
}

static bool same_devices(const struct resource_slice *a, const struct resource_slice *b) {
    for (uint32_t i = 0; i < b->ndevices; i++)
        if (!slice_device_equal(&a->devices[i], &b->devices[i]))
            return false;
    return b->ndevices ==
           (a->ndevices < SLICE_DEVICES_MAX ? a->ndevices : (uint32_t) SLICE_DEVICES_MAX);
}

/* What was read once can be written and read again. */
static void try_slice(struct json root) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct slice_pool pool = {0};
    struct resource_slice a, b;
    struct json again;
    if (resource_slice_parse(root, &a, NULL) < 0)
        return;
    memcpy(pool.node, a.node, sizeof(pool.node));
    pool.generation = a.generation;
    pool.devices = a.devices;
    pool.ndevices = a.ndevices;
    resource_slice_encode(&pool, 0, NULL, &out);
    if (json_open(buf_str(&out), out.len, &parser, &again, NULL) < 0 ||
        resource_slice_parse(again, &b, NULL) < 0 || !same_devices(&a, &b))
        abort();
    resource_slice_done(&a);
    resource_slice_done(&b);
}

static void try_others(struct json root) {
    struct share_config config = {0};
    struct device_class class;
    struct pod_devices pod;
    (void) share_config_read(root, &config, NULL);
    if (device_class_parse(root, &class, NULL) == 0)
        device_class_done(&class);
    if (pod_devices_parse(root, &pod, NULL) == 1) {
        if (pod.nclaims > POD_DEVICE_CLAIMS_MAX)
            abort();
        (void) pod_devices_may_be_on(&pod, "a=b,zone=5,", "n");
        pod_devices_done(&pod);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    if (json_open((const char *) data, size, &parser, &root, NULL) < 0)
        return 0;
    try_claim(root);
    try_slice(root);
    try_others(root);
    return 0;
}
