/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/objects/assignment.h"
#include "kube/objects/budget.h"
#include "kube/objects/gang.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota_object.h"
#include "kube/objects/reservation_object.h"
#include "model/quantity.h"
#include "model/selection.h"
#include "wire/json.h"

/* Quantities, assignments and API objects out of any bytes. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_quantity(const char *text, size_t len) {
    uint64_t value, again;
    char out[24];
    if (quantity_parse(text, len, &value) < 0)
        return;
    quantity_format_bytes(value, out);
    if (value > INT64_MAX || quantity_parse(out, strlen(out), &again) < 0 || again != value)
        abort();
}

static void try_assignment(const char *text) {
    struct assignment a, b;
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    if (assignment_parse(text, &a, NULL) < 0)
        return;
    assignment_encode(&a, &out);
    if (assignment_parse(buf_str(&out), &b, NULL) < 0 || b.ncontainers != a.ncontainers)
        abort(); /* what was taken once can be written and taken again */
    assignment_done(&a);
    assignment_done(&b);
}

static void try_limits(struct json root) {
    struct quota_object quota;
    struct reservation_object reservation;
    struct pod_gang gang;
    bool is_quota = quota_object_parse(root, &quota, NULL) == 0;
    for (int r = 0; is_quota && r < QUOTA_RESOURCES; r++)
        if (!quota.counted[r] && (quota.guaranteed[r] != 0 || quota.max[r] != UINT64_MAX))
            abort();
    (void) resource_quota_parse(root, &quota, NULL);
    if (gang_read(json_get(root, "metadata"), &gang) &&
        (gang.size > GANG_SIZE_MAX || gang.timeout_s == 0))
        abort();
    if (reservation_object_parse(root, &reservation, NULL) == 0) {
        (void) reservation_is_for(&reservation, "d", "p", "a=b,elasticgpu.io/queue=q,");
        reservation_object_done(&reservation);
    }
}

static void try_selection(const struct gpu_selection *selection) {
    struct gpu_selection *copy = selection ? selection_copy(selection) : NULL;
    if (!copy)
        return;
    if (selection_hash(copy) != selection_hash(selection) ||
        selection_model(copy, "NVIDIA A100") != selection_model(selection, "NVIDIA A100") ||
        selection_uuid(copy, "GPU-1") != selection_uuid(selection, "GPU-1"))
        abort();
    selection_free(copy);
}

static void try_objects(struct json root) {
    struct pod pod;
    struct node_object node;
    struct gpu_object gpu;
    struct budget budget;
    if (pod_parse(root, &pod, NULL) == 0) {
        if (pod.request.n > GPU_CONTAINERS_MAX ||
            (pod.problem == REQUEST_OK) != !*pod.problem_container)
            abort();
        try_selection(pod.selection);
        pod_done(&pod);
    }
    if (budget_parse(root, &budget, NULL) == 0) {
        (void) budget_counts(&budget, budget.namespace, "app=a,tier=,");
        budget_done(&budget);
    }
    (void) node_object_parse(root, &node, NULL);
    if (gpu_object_parse(root, &gpu, NULL) == 0) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        gpu_object_encode(&gpu, &out);
        gpu_object_encode_status(&gpu, &out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct json_parser *parser;
    struct json root;
    if (!parser && !(parser = json_parser_new()))
        abort();
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    try_quantity(text, size);
    try_assignment(text);
    if (json_parse(parser, text, size, &root, NULL) == 0) {
        try_objects(root);
        try_limits(root);
    }
    free(text);
    return 0;
}
