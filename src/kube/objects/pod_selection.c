/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/pod_selection.h"

const char *annotation_text(const void *annotations, const char *key) {
    return json_string(json_get(*(const struct json *) annotations, key));
}

int selection_read(struct json annotations, struct gpu_selection **ret) {
    return selection_parse(annotation_text, &annotations, ret);
}
