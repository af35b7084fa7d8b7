/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/replay/trace.h"

/* A file of nodes and one of pods, with a zero byte between. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct trace *t) {
    for (size_t i = 0; i < t->nnodes; i++)
        if (t->nodes[i].gpus > TRACE_GPUS_MAX || t->nodes[i].model >= t->nmodels ||
            !*t->nodes[i].name)
            abort();
    for (size_t i = 0; i < t->npods; i++) {
        const struct trace_pod *pod = &t->pods[i];
        if (pod->gpus > TRACE_GPUS_MAX || pod->milli > 1000 || !*pod->name ||
            (pod->gpus > 0) != (pod->milli > 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    struct trace t = {0};
    struct err nodes_err = {0}, pods_err = {0};
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    size_t nodes = strlen(text);
    int r = trace_read_nodes(&t, text, nodes, &nodes_err);
    if (r < 0 && !nodes_err.text[0])
        abort();
    if (r == 0 && nodes < size) {
        r = trace_read_pods(&t, text + nodes + 1, size - nodes - 1, &pods_err);
        if (r < 0 && !pods_err.text[0])
            abort();
    }
    check(&t);
    trace_done(&t);
    free(text);
    return 0;
}
