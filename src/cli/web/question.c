/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/question.h"

#include <stdlib.h>
#include <string.h>

struct question *question_free(struct question *q) {
    if (!q)
        return NULL;
    free(q->node);
    free(q->namespace);
    free(q->pod);
    buf_done(&q->text);
    free(q);
    return NULL;
}

struct question *question_new(const char *node, const char *namespace, const char *pod) {
    struct question *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    q->node = strdup(node);
    q->namespace = strdup(namespace);
    q->pod = strdup(pod);
    return q->node && q->namespace && q->pod ? q : question_free(q);
}
