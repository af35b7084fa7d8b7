/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot replay`: packs the pods of a trace onto the nodes of a trace, without a cluster. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/opt.h"
#include "cli/cli.h"
#include "cli/replay/packing.h"
#include "model/placement_policies.h"
#include "place/policies/policies.h"

#define FILE_BYTES_MAX ((size_t) 1 << 30)
#define PROGRESS_SECONDS 2 /* between two lines */
#define PROGRESS_STEP 256  /* pods between two readings of the clock */

static const char *arg_nodes, *arg_pods, *arg_policy = "esc", *arg_ties = "order", *arg_workload;
static uint32_t arg_seed;
static bool arg_departures;

static const struct opt options[] = {
    {"nodes", 'n', "FILE", "nodes as CSV: sn,cpu_milli,memory_mib,gpu,model", opt_string,
     &arg_nodes},
    {"pods", 'p', "FILE", "pods as CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]",
     opt_string, &arg_pods},
    {"policy", 'P', "NAME", PLACEMENT_POLICY_WORDS " (default esc)", opt_string, &arg_policy},
    {"departures", 0, NULL, "pods arrive at creation_time and leave at deletion_time", opt_flag,
     &arg_departures},
    {"workload", 0, "FILE",
     "pods as CSV from which fgd and esc take the workload, instead of learning it", opt_string,
     &arg_workload},
    {"ties", 0, "HOW", "choice between equal nodes: order (of the file, default) or random",
     opt_string, &arg_ties},
    {"seed", 0, "N", "seed of random ties (default 0)", opt_u32, &arg_seed},
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot replay --nodes N.csv --pods P.csv [options] > placements.csv",
    .purpose = "Places pods on nodes with the scheduler's placement code, in the order of the "
               "file, and\n"
               "prints pod,node,gpus for each: the node is empty where the pod did not fit, gpus "
               "are\n"
               "indexes joined by |. Pods leave only with --departures.",
    .epilog = "gpu_milli counts thousandths of each of the pod's num_gpu GPUs; shares are placed "
              "in percent,\n"
              "rounded up. gpu_spec names the permitted models, joined by |; empty: any.\n"
              "Exit status: 0; 1 when a file cannot be read; 2 for wrong options or a wrong file.",
};

/* ---- files ---- */

struct input {
    struct buf nodes, pods, workload;
    struct trace trace, known;
};

static void input_done(struct input *in) {
    trace_done(&in->trace);
    trace_done(&in->known);
    buf_done(&in->nodes);
    buf_done(&in->pods);
    buf_done(&in->workload);
}

static int load(const char *path, struct buf *text, struct trace *trace,
                int (*take)(struct trace *, char *, size_t, struct err *), struct err *err) {
    *text = BUF_INIT(FILE_BYTES_MAX);
    int r = file_read(path, FILE_BYTES_MAX, text, err);
    if (r < 0)
        return r;
    buf_puts(text, "");
    r = text->data ? take(trace, text->data, text->len, err)
                   : err_set(err, EINVAL, "empty: the first line must name the columns");
    return r < 0 ? err_wrap(err, "%s", path) : 0;
}

static int load_all(struct input *in, struct err *err) {
    int r = load(arg_nodes, &in->nodes, &in->trace, trace_read_nodes, err);
    if (r == 0)
        r = load(arg_pods, &in->pods, &in->trace, trace_read_pods, err);
    if (r < 0 || !arg_workload)
        return r;
    in->known.nmodels = in->trace.nmodels;
    memcpy(in->known.models, in->trace.models, sizeof(in->known.models));
    return load(arg_workload, &in->workload, &in->known, trace_read_pods, err);
}

/* ---- time ---- */

/* Pods that will leave, the first to leave on top of the heap. */
struct leaving {
    const struct trace_pod *pods;
    size_t *heap;
    size_t n;
};

static bool leaves_before(const struct leaving *l, size_t a, size_t b) {
    if (l->pods[a].deleted != l->pods[b].deleted)
        return l->pods[a].deleted < l->pods[b].deleted;
    return a < b;
}

static void leaving_push(struct leaving *l, size_t pod) {
    size_t at = l->n++;
    for (; at > 0 && leaves_before(l, pod, l->heap[(at - 1) / 2]); at = (at - 1) / 2)
        l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = pod;
}

static size_t leaving_pop(struct leaving *l) {
    size_t top = l->heap[0], last = l->heap[--l->n], at = 0;
    for (size_t child; (child = 2 * at + 1) < l->n; at = child) {
        if (child + 1 < l->n && leaves_before(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (!leaves_before(l, l->heap[child], last))
            break;
        l->heap[at] = l->heap[child];
    }
    l->heap[at] = last;
    return top;
}

struct arrival {
    uint64_t time;
    size_t pod;
};

static int by_time(const void *a, const void *b) {
    const struct arrival *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->pod > y->pod) - (x->pod < y->pod);
}

/* ---- the run ---- */

struct run {
    struct packing *packing;
    const struct trace *trace;
    struct arrival *arrivals;
    struct packing_place *places; /* by pod */
    struct leaving leaving;
    size_t placed;
    uint64_t most; /* thousandths of GPUs in use at once */
    time_t reported;
};

static void run_done(struct run *run) {
    packing_free(run->packing);
    free(run->arrivals);
    free(run->places);
    free(run->leaving.heap);
}

static int run_init(struct run *run, const struct trace *trace, const struct packing_options *how,
                    struct err *err) {
    size_t n = trace->npods + 1;
    run->trace = trace;
    run->arrivals = calloc(n, sizeof(*run->arrivals));
    run->places = calloc(n, sizeof(*run->places));
    run->leaving = (struct leaving){trace->pods, calloc(n, sizeof(size_t)), 0};
    run->reported = time(NULL);
    if (!run->arrivals || !run->places || !run->leaving.heap)
        return err_errno(err, ENOMEM, "cannot hold %zu pods", trace->npods);
    for (size_t i = 0; i < trace->npods; i++)
        run->arrivals[i] = (struct arrival){arg_departures ? trace->pods[i].created : 0, i};
    qsort(run->arrivals, trace->npods, sizeof(*run->arrivals), by_time);
    return packing_new(trace, how, &run->packing, err);
}

static void print_progress(struct run *run, size_t done) {
    time_t now;
    if (done % PROGRESS_STEP != 0 || (now = time(NULL)) - run->reported < PROGRESS_SECONDS)
        return;
    run->reported = now;
    (void) fprintf(stderr, "aliquot replay: %zu of %zu pods\n", done, run->trace->npods);
}

static void remove_departed(struct run *run, uint64_t until) {
    struct leaving *l = &run->leaving;
    while (l->n > 0 && l->pods[l->heap[0]].deleted <= until) {
        size_t pod = leaving_pop(l);
        packing_take(run->packing, &run->trace->pods[pod], &run->places[pod]);
    }
}

static int pack_pods(struct run *run, struct err *err) {
    for (size_t i = 0; i < run->trace->npods; i++) {
        size_t pod = run->arrivals[i].pod;
        if (arg_departures)
            remove_departed(run, run->arrivals[i].time);
        int r = packing_put(run->packing, &run->trace->pods[pod], &run->places[pod], err);
        if (r < 0)
            return r;
        if (run->places[pod].node != PACKING_NOWHERE) {
            run->placed++;
            if (arg_departures && run->trace->pods[pod].deleted != TRACE_NEVER)
                leaving_push(&run->leaving, pod);
        }
        if (packing_used(run->packing) > run->most)
            run->most = packing_used(run->packing);
        print_progress(run, i + 1);
    }
    return 0;
}

static int print(const struct run *run, struct err *err) {
    (void) puts("pod,node,gpus");
    for (size_t i = 0; i < run->trace->npods; i++) {
        const struct packing_place *at = &run->places[i];
        bool placed = at->node != PACKING_NOWHERE;
        const char *between = "";
        (void) printf("%s,%s,", run->trace->pods[i].name,
                      placed ? run->trace->nodes[at->node].name : "");
        for (uint32_t c = 0; placed && c < TRACE_GPUS_MAX; c++)
            if (at->cards >> c & 1) {
                (void) printf("%s%u", between, c);
                between = "|";
            }
        (void) puts("");
    }
    (void) fprintf(stderr,
                   "aliquot replay: placed %zu of %zu pods; at most %" PRIu64 ".%03" PRIu64
                   " of %" PRIu64 " GPUs in use\n",
                   run->placed, run->trace->npods, run->most / 1000, run->most % 1000,
                   packing_capacity(run->packing) / 1000);
    if (fflush(stdout) != 0 || ferror(stdout))
        return err_errno(err, errno, "cannot print");
    return 0;
}

static int check_options(struct packing_options *how, struct err *err) {
    how->policy = place_policy_find(arg_policy);
    how->random_ties = strcmp(arg_ties, "random") == 0;
    how->seed = arg_seed;
    if (!arg_nodes || !arg_pods)
        return err_set(err, EINVAL, "--nodes and --pods are needed; see --help");
    if (!how->policy)
        return err_set(err, EINVAL, "--policy '%s': no such policy; see --help", arg_policy);
    if (!how->random_ties && strcmp(arg_ties, "order") != 0)
        return err_set(err, EINVAL, "--ties '%s': order or random", arg_ties);
    return 0;
}

static int replay(int argc, char **argv, struct err *err) {
    struct packing_options how = {0};
    _cleanup_(input_done) struct input in = {0};
    _cleanup_(run_done) struct run run = {0};
    int r = opt_parse(options, &usage, argc, argv, err);

    if (r >= 0 && r < argc)
        r = err_set(err, EINVAL, "unexpected argument '%s'; see --help", argv[r]);
    if (r >= 0)
        r = check_options(&how, err);
    if (r == 0)
        r = load_all(&in, err);
    if (arg_workload)
        how.workload = &in.known;
    if (r == 0)
        r = run_init(&run, &in.trace, &how, err);
    if (r == 0)
        r = pack_pods(&run, err);
    return r == 0 ? print(&run, err) : r;
}

int cmd_replay(int argc, char **argv) {
    struct err err;
    int r = replay(argc, argv, &err);

    if (r >= 0 || r == -ECANCELED)
        return 0;
    (void) fprintf(stderr, "aliquot replay: %s\n", err.text);
    return r == -EINVAL || r == -E2BIG ? EXIT_USAGE : 1;
}
