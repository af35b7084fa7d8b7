/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/kubectl_options.h"

struct kubectl_options kubectl_options;

int kubectl_all_namespaces(const char *value, void *target, struct err *err) {
    (void) value;
    (void) err;
    *(const char **) target = NULL;
    return 0;
}
