/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Traces of clusters as CSV: a first line that names the columns, in any order, then one node or
 * pod a line. Columns of no use here are skipped; fields are not quoted.
 *
 *     nodes: sn,cpu_milli,memory_mib,gpu,model
 *     pods:  name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec,creation_time,deletion_time]
 *
 * gpu_spec: models joined by |, empty: any; times in whole seconds, empty: 0, and never. */

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TRACE_NODES_MAX 65536
#define TRACE_PODS_MAX 10000000
#define TRACE_MODELS_MAX 64 /* different ones */
#define TRACE_GPUS_MAX 64   /* of a node or a pod */
#define TRACE_NEVER UINT64_MAX

struct trace_node {
    const char *name;
    uint64_t cpu, memory; /* milli-CPU, MiB */
    uint32_t gpus;
    uint32_t model; /* index in models */
};

struct trace_pod {
    const char *name;
    uint64_t cpu, memory;
    uint32_t gpus, milli; /* milli: of each of them; 0 without */
    uint64_t models;      /* bit i: models[i] will do; all ones: any */
    uint64_t created, deleted;
};

/* Names point into the texts that were read. Zero at first. */
struct trace {
    const char *models[TRACE_MODELS_MAX];
    uint32_t nmodels;
    struct trace_node *nodes;
    size_t nnodes;
    struct trace_pod *pods;
    size_t npods;
};

void trace_done(struct trace *t);

/* Read a text, which they take apart in place: text[len] is a zero byte. Nodes are read before
 * pods. Errors name the line and the column. */
int trace_read_nodes(struct trace *t, char *text, size_t len, struct err *err);
int trace_read_pods(struct trace *t, char *text, size_t len, struct err *err);
