/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot plan --capacity`: how many cards of which model the waiting pods need. */

#include "cli/cluster/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/wants.h"
#include "cli/kubectl_options.h"
#include "cli/output.h"
#include "cli/table.h"

#define MACHINES_MAX 16

static bool arg_capacity;
static const char *arg_namespace;
static const char *arg_machines[MACHINES_MAX];
static uint32_t arg_nmachines;

/* ---- what is said of a pod ---- */

static bool is_refused(const struct plan *plan, const struct plan_machine *m, uint32_t pod) {
    return m->reasons[plan->pods[pod].need] != PLACE_OK;
}

static bool is_started(const struct plan *plan, uint32_t pod) {
    for (uint32_t i = 0; i < plan->nmachines; i++)
        if (!is_refused(plan, &plan->machines[i], pod))
            return true;
    return false;
}

static const char *refusal(const struct plan *plan, const struct plan_machine *m, uint32_t pod) {
    uint32_t at = plan->pods[pod].need;

    if (m->bars[at])
        return "its node selector, affinity or tolerations admit no such node";
    return place_reason_text(m->reasons[at]);
}

static const char *wants(const struct pod *pod, char ret[static WANTS_SIZE]) {
    ret[0] = '\0';
    return pod->request.n > 0 ? request_wants(&pod->request, ret) : ret;
}

/* Why none of the machines starts it. */
static void put_refusals(struct buf *out, const struct plan *plan, uint32_t pod) {
    for (uint32_t i = 0; i < plan->nmachines; i++) {
        const struct plan_machine *m = &plan->machines[i];
        if (plan->nmachines > 1)
            buf_printf(out, "%s%" PRIu32 " x %s: ", i > 0 ? "; " : "", m->ncards, m->model);
        buf_puts(out, refusal(plan, m, pod));
    }
}

static void put_verdict(struct buf *out, const struct plan *plan, uint32_t i) {
    const struct plan_pod *p = &plan->pods[i];

    if (p->state == PLAN_HELD)
        buf_printf(out, "not counted: %s", p->held);
    else if (p->state == PLAN_ROOM)
        buf_puts(out, "has room on the cards that there are");
    else if (is_started(plan, i))
        buf_puts(out, "starts on new cards");
    else
        put_refusals(out, plan, i);
}

/* ---- table ---- */

enum machine_column {
    M_MACHINE,
    M_MEMORY,
    M_NODES,
    M_CARDS,
    M_STARTS,
    M_IDLE,
    M_CORE,
    M_FREE,
    M_HAVE,
    M_COLUMNS
};

static void put_machine(struct table *t, const struct plan *plan, const struct plan_machine *m) {
    char memory[24], left[24];

    table_row(t);
    table_set(t, M_MACHINE, "%" PRIu32 " x %s", m->ncards, m->model);
    table_set(t, M_MEMORY, "%s", num_format_bytes(m->memory, memory));
    table_set(t, M_NODES, "%" PRIu32 "%s", m->nodes, m->cut_short ? " or fewer" : "");
    table_set(t, M_CARDS, "%" PRIu64, (uint64_t) m->nodes * m->ncards);
    table_set(t, M_STARTS, "%" PRIu32 " of %" PRIu32, m->starts, plan->nneeding);
    table_set(t, M_IDLE, "%" PRIu64, m->left.idle);
    table_set(t, M_CORE, "%" PRIu64 " %%", m->left.core);
    table_set(t, M_FREE, "%s", num_format_bytes(m->left.memory, left));
    table_set(t, M_HAVE, "%" PRIu32, m->existing);
}

static int show_machines(const struct plan *plan, bool wide, struct err *err) {
    static const char *const titles[M_COLUMNS] = {"MACHINE",   "CARD",        "NEW NODES",
                                                  "NEW CARDS", "STARTS",      "LEFT IDLE",
                                                  "LEFT CORE", "LEFT MEMORY", "NODES NOW"};
    _cleanup_(table_done) struct table t = {.columns = M_COLUMNS,
                                            .hidden = wide ? 0 : M_COLUMNS - M_HAVE};

    table_titles(&t, titles);
    for (uint32_t i = 0; i < plan->nmachines; i++)
        put_machine(&t, plan, &plan->machines[i]);
    return table_show(&t, err);
}

static bool is_told(const struct plan *plan, uint32_t pod) {
    const struct plan_pod *p = &plan->pods[pod];
    return p->state == PLAN_HELD || (p->state == PLAN_NEEDS && !is_started(plan, pod));
}

/* Pods that new cards do not start; wide: all. */
static int show_pods(const struct plan *plan, bool wide, struct err *err) {
    static const char *const titles[] = {"POD", "WANTS", "VERDICT"};
    _cleanup_(table_done) struct table t = {.columns = 3};
    bool any = false;

    table_titles(&t, titles);
    for (uint32_t i = 0; i < plan->npods; i++) {
        const struct pod *pod = &plan->pods[i].pod;
        _cleanup_buf_ struct buf verdict = BUF_INIT(0);
        char text[WANTS_SIZE];
        if (!wide && !is_told(plan, i))
            continue;
        put_verdict(&verdict, plan, i);
        table_row(&t);
        table_set(&t, 0, "%s/%s", pod->namespace, pod->name);
        table_set(&t, 1, "%s", wants(pod, text));
        table_set(&t, 2, "%s", buf_str(&verdict));
        any = true;
    }
    if (!any)
        return 0;
    puts("");
    return table_show(&t, err);
}

static uint32_t count(const struct plan *plan, enum plan_state state) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->npods; i++)
        n += plan->pods[i].state == state;
    return n;
}

static int show_table(const void *view, bool wide, struct err *err) {
    const struct plan *plan = view;

    printf("Waiting pods: %" PRIu32 ". Need new cards: %" PRIu32 ". Have room on the cards that "
           "there are: %" PRIu32 ". Not counted: %" PRIu32 ".\n",
           plan->npods, plan->nneeding, count(plan, PLAN_ROOM), count(plan, PLAN_HELD));
    int r = plan->nneeding > 0 ? show_machines(plan, wide, err) : 0;
    return r < 0 ? r : show_pods(plan, wide, err);
}

/* ---- document ---- */

static void write_machine(struct json_writer *w, const struct plan_machine *m) {
    json_object_begin(w, NULL);
    json_put(w, "model", m->model, "cardsPerNode", m->ncards, "memory", m->memory);
    json_put(w, "nodesNow", m->existing, "newNodes", m->nodes, "newCards",
             (uint64_t) m->nodes * m->ncards, "starts", m->starts, "cutShort", m->cut_short);
    json_object_begin(w, "left");
    json_put(w, "idleCards", m->left.idle, "core", m->left.core, "memory", m->left.memory);
    json_object_end(w);
    json_object_end(w);
}

static void write_refusals(struct json_writer *w, const struct plan *plan, uint32_t pod) {
    json_array_begin(w, "refusals");
    for (uint32_t i = 0; i < plan->nmachines; i++) {
        const struct plan_machine *m = &plan->machines[i];
        if (plan->pods[pod].state != PLAN_NEEDS || !is_refused(plan, m, pod))
            continue;
        json_object_begin(w, NULL);
        json_put(w, "model", m->model, "cardsPerNode", m->ncards, "memory", m->memory);
        json_put_string(w, "reason", refusal(plan, m, pod));
        json_object_end(w);
    }
    json_array_end(w);
}

static void write_pod(struct json_writer *w, const struct plan *plan, uint32_t i) {
    static const char *const states[] = {
        [PLAN_NEEDS] = "NeedsCards", [PLAN_ROOM] = "HasRoom", [PLAN_HELD] = "NotCounted"};
    const struct plan_pod *p = &plan->pods[i];
    char text[WANTS_SIZE];

    json_object_begin(w, NULL);
    json_put_string(w, "namespace", p->pod.namespace);
    json_put_string(w, "name", p->pod.name);
    json_put_string(w, "wants", wants(&p->pod, text));
    json_put_string(w, "state", states[p->state]);
    json_put_string(w, "reason", p->held[0] ? p->held : NULL);
    write_refusals(w, plan, i);
    json_object_end(w);
}

static void show_document(const void *view, struct json_writer *w) {
    const struct plan *plan = view;

    json_object_begin(w, NULL);
    json_put_u64(w, "needing", plan->nneeding);
    json_array_begin(w, "machines");
    for (uint32_t i = 0; i < plan->nmachines; i++)
        write_machine(w, &plan->machines[i]);
    json_array_end(w);
    json_array_begin(w, "pods");
    for (uint32_t i = 0; i < plan->npods; i++)
        write_pod(w, plan, i);
    json_array_end(w);
    json_object_end(w);
}

static void show_names(const void *view, struct buf *out) {
    const struct plan *plan = view;

    for (uint32_t i = 0; i < plan->nneeding; i++)
        buf_printf(out, "pod/%s\n", plan->pods[plan->needing[i]].pod.name);
}

/* ---- the command ---- */

static int add_machines(struct plan *plan, struct err *err) {
    if (arg_nmachines == 0)
        return plan_add_kinds(plan, err);
    plan->machines = calloc(arg_nmachines, sizeof(*plan->machines));
    if (!plan->machines)
        return err_errno(err, ENOMEM, "cannot hold the machines");
    for (uint32_t i = 0; i < arg_nmachines; i++) {
        int r = plan_machine_parse(arg_machines[i], &plan->machines[i], err);
        if (r < 0)
            return r;
        plan->nmachines++;
    }
    return 0;
}

static int show_plan(void *arg, struct err *err) {
    static const struct output_view how = {show_table, show_document, show_names};
    _cleanup_(plan_done) struct plan plan = {0};
    (void) arg;
    int r = plan_read(arg_namespace, &plan, err);
    if (r == 0)
        r = add_machines(&plan, err);
    if (r == 0)
        r = plan_make(&plan, err);
    if (r < 0)
        return r;
    if (plan.nmachines == 0 && plan.nneeding > 0)
        return err_set(err, ENODEV,
                       "no node of the cluster has whole cards that could be the pattern of a new "
                       "one; describe a machine with --machine MODEL,CARDS,MEMORY");
    return output_print(&how, &plan, err);
}

/* Wrong ones are refused before the cluster is read. */
static int take_machine(const char *value, void *target, struct err *err) {
    struct plan_machine machine = {0};
    (void) target;
    if (arg_nmachines == MACHINES_MAX)
        return err_set(err, E2BIG, "--machine can be given %d times", MACHINES_MAX);
    int r = plan_machine_parse(value, &machine, err);
    plan_machine_done(&machine);
    if (r == 0)
        arg_machines[arg_nmachines++] = value;
    return r;
}

int cmd_plan(int argc, char **argv) {
    static const struct opt options[] = {
        {"capacity", 0, NULL, "how many cards the waiting pods need (required; nothing is changed)",
         opt_flag, &arg_capacity},
        {"machine", 0, "MODEL,CARDS,MEMORY",
         "a node to plan with, such as 'NVIDIA H100,8,80Gi', in place of those like the cluster's; "
         "can be repeated",
         take_machine, NULL},
        {"namespace", 'n', "NAME", "only for pods of this namespace", opt_string, &arg_namespace},
        {"all-namespaces", 'A', NULL, "for all pods (the default)", kubectl_all_namespaces,
         &arg_namespace},
        OUTPUT_OPTIONS,
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot plan --capacity [options]",
        .purpose =
            "Says how many nodes, and cards, of which kind would let every waiting pod start, by "
            "the\n"
            "scheduler's own search: each pod in its turn gets cards of the nodes that there are, "
            "otherwise\n"
            "of new ones. A line for each kind of node says how many of it alone would do. Pods "
            "that\n"
            "no kind of node can take are listed with the reason. CPU and memory of the nodes, "
            "gangs and\naffinity between pods are not considered.",
        .epilog =
            "Uses kubectl (or $KUBECTL) with your context. Exit status: 0; 1 when the cluster does "
            "not\n"
            "answer, or has no node to take as a pattern; 2 for wrong arguments.",
    };
    struct err err;

    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    if (r == 0 && !arg_capacity)
        r = err_set(&err, EINVAL, "--capacity is required: there is no other plan; see --help");
    return output_command("plan", r, show_plan, NULL, &err);
}
