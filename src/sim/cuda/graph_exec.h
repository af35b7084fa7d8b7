/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/graph.h"
#include "sim/cuda/graph_memory.h"

/* The executable graph's demand on the memory reserved for graphs. */
struct graph_use *graph_exec_use(CUgraphExec exec);
