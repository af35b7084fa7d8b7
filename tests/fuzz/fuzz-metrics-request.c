/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kube/api/field.h"
#include "scheduler/metrics_api/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A path and, after a line end, a selector. What is taken consists of names that an API server can
 * have, and of one path only. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct metrics_request request;
    char *path = strndup((const char *) data, size);
    char *selector = path ? strchr(path, '\n') : NULL;

    if (!path)
        return 0;
    if (selector)
        *selector++ = '\0';
    if (metrics_request_read(path, selector, &request) == 0) {
        if (!request.discovery && (!field_is_name(request.namespace) || !request.metric[0] ||
                                   strchr(request.metric, '/')))
            abort();
        if (!request.discovery && request.api == METRICS_API_CUSTOM &&
            strcmp(request.pod, "*") != 0 && !field_is_name(request.pod))
            abort();
        (void) label_terms_hold(&request.selector, "app=w,team=a,", "pod");
        metrics_request_done(&request);
    }
    free(path);
    return 0;
}
