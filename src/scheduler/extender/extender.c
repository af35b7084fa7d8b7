/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/extender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "place/workload/workload_model.h"
#include "scheduler/extender/explain.h"
#include "scheduler/extender/node_template.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* At nodes, for one pod; some need no thinking, since others have the same cards. */
#define CLOSE_EVALUATIONS (2 * PLACE_MODEL_STATES)
_Static_assert(EXTENDER_LIST > CLOSE_EVALUATIONS,
               "the node that is best in the end must be on the list");

int extender_init(struct extender *e) {
    e->candidates = NULL;
    e->candidates_size = 0;
    e->parser = json_parser_new();
    return e->parser ? 0 : -ENOMEM;
}

void extender_done(struct extender *e) {
    e->parser = json_parser_free(e->parser);
    free(e->candidates);
    e->candidates = NULL;
}

void extender_error(struct buf *out, const char *text) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "Error", text);
    json_object_end(&w);
}

/* One request of kube-scheduler. */
struct filter_call {
    struct extender *extender;
    struct extender_candidate *candidates; /* the nodes that it names; the extender's */
    size_t n;
    const char *nominated; /* where room is being made for the pod in question, or NULL */
    bool objects;          /* nodes were given as objects, and go back so */
    bool all;              /* all nodes that fit are to be named */
    bool what_if;          /* some nodes do not exist: the answer has no consequence */
    struct gpu_request request;
    struct place_plan plan;
};

/* ---- what kube-scheduler sends ---- */

/* Nodes that are looked up together, step by step: each step prefetches memory for the next. */
#define TOGETHER 32

static void find_nodes(struct filter_call *f, const struct json_text *names,
                       const struct json *objects, size_t n) {
    struct state *state = f->extender->state;
    struct extender_candidate *to = &f->candidates[f->n];
    uint64_t hash[TOGETHER];
    for (size_t i = 0; i < n; i++)
        hash[i] = state_name_soon(state, names[i].data, names[i].len);
    for (size_t i = 0; i < n; i++)
        state_head_soon(state, hash[i]);
    for (size_t i = 0; i < n; i++) {
        struct state_head *head = state_head_at(state, names[i].data, names[i].len, hash[i]);
        to[i] = (struct extender_candidate){.node = head ? head->node : NULL,
                                            .head = head,
                                            .name = names[i].data,
                                            .object = objects[i]};
        f->what_if |= f->objects && !head;
    }
    f->n += n;
}

static int read_args(struct filter_call *f, const char *body, size_t len, struct pod *ret_pod,
                     struct err *err) {
    struct extender *e = f->extender;
    struct json_text names[TOGETHER];
    struct json objects[TOGETHER];
    struct args args;
    int r = args_read(e->parser, body, len, &args, err);
    if (r < 0)
        return r;
    if (array_reserve(&e->candidates, &e->candidates_size, args.n, sizeof(*e->candidates)) < 0)
        return err_errno(err, ENOMEM, "cannot read the nodes");
    f->candidates = e->candidates;
    f->objects = args.objects;
    while ((r = args_next(&args, names, objects, TOGETHER, err)) > 0)
        find_nodes(f, names, objects, (size_t) r);
    return r < 0 ? r : pod_parse(args.pod, ret_pod, err);
}

/* Reads a call and answers it by `verb`, or with the error. */
static int
answer(struct extender *e, const char *body, size_t len, uint64_t now_ms, struct buf *out,
       int (*verb)(struct filter_call *f, struct pod *pod, uint64_t now_ms, struct buf *out)) {
    struct filter_call call = {.extender = e};
    struct pod pod = {0};
    struct err err;
    int r = read_args(&call, body, len, &pod, &err);
    if (r < 0) {
        extender_error(out, err.text);
        return r;
    }
    r = verb(&call, &pod, now_ms, out);
    pod_done(&pod);
    return r;
}

/* ---- judging nodes ---- */

#define AHEAD 16 /* prefetch distance, in nodes */

/* How much what is judged next may be thought about. */
static void allow(struct filter_call *f, uint32_t states) {
    if (f->extender->state->model)
        place_model_allow(f->extender->state->model, states);
}

/* Answers each node for the pod, roughly; the names in the answer are those of the request. Returns
 * how many can take it. */
static size_t judge_nodes(struct filter_call *f, const struct state_pod *self) {
    size_t fitting = 0;
    allow(f, 0);
    for (size_t i = 0; i < f->n; i++) {
        struct extender_candidate *c = &f->candidates[i];
        if (i + AHEAD < f->n && f->candidates[i + AHEAD].head)
            state_judge_soon(f->candidates[i + AHEAD].head, &f->plan);
        if (c->head)
            c->reason = state_judge(f->extender->state, &f->plan, c->head, self, &c->score);
        else if (f->objects)
            c->reason = template_judge(&f->plan, self->selection, c->object, &c->score);
        else
            c->reason = PLACE_NO_GPU;
        fitting += c->reason == PLACE_OK;
    }
    allow(f, PLACE_MODEL_STATES);
    return fitting;
}

/* Whether a node would fit the pod without assumed allocations. */
static bool assumed_in_the_way(struct filter_call *f, const struct state_pod *self) {
    struct place_result result;
    for (size_t i = 0; i < f->n; i++) {
        struct state_node *node = f->candidates[i].node;
        if (node && node->unsettled > 0 &&
            state_place(f->extender->state, &f->plan, node, self, true, &result) == PLACE_OK)
            return true;
    }
    return false;
}

/* A pod whose Binding may still be executed can only go to that node. */
static size_t judge_in_doubt(struct filter_call *f, const struct state_pod *self) {
    size_t fitting = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct extender_candidate *c = &f->candidates[i];
        c->reason = c->node && c->node == self->node ? PLACE_OK : PLACE_ELSEWHERE;
        c->score = 0;
        fitting += c->reason == PLACE_OK;
    }
    return fitting;
}

static struct extender_candidate *best_candidate(const struct filter_call *f) {
    struct extender_candidate *best = NULL;
    for (size_t i = 0; i < f->n; i++) {
        struct extender_candidate *c = &f->candidates[i];
        if (c->reason == PLACE_OK && (!best || c->score > best->score))
            best = c;
    }
    return best;
}

/* The best of many rough estimates is biased: it is evaluated fully, and another node may become
 * the best. */
static void judge_best(struct filter_call *f, const struct state_pod *self) {
    for (uint32_t evaluations = 0; evaluations < CLOSE_EVALUATIONS; evaluations++) {
        struct extender_candidate *best = best_candidate(f);
        if (!best || !best->node)
            return;
        int64_t score = best->score;
        best->reason = state_judge(f->extender->state, &f->plan, best->head, self, &best->score);
        if (best->reason == PLACE_OK && best->score == score)
            return;
    }
}

/* Assumes the pod on the node to which it will most likely be sent. Failing is harmless: bind
 * places again. */
static void allocate_best(struct filter_call *f, struct state_pod *self, uint64_t now_ms) {
    const struct extender_candidate *best = best_candidate(f);
    struct place_result result;
    if (!best || !best->node ||
        state_place(f->extender->state, &f->plan, best->node, self, false, &result) != PLACE_OK)
        return;
    (void) state_allocate(f->extender->state, self, best->node, &result, POD_ASSUMED, now_ms);
}

/* ---- answers ---- */

/* Puts a score in the place of the least of them, heap[0], where that is less. */
static void put_in_heap(int64_t heap[static EXTENDER_LIST], int64_t score) {
    size_t at = 0, least;
    if (score <= heap[0])
        return;
    while ((least = 2 * at + 1) < EXTENDER_LIST) {
        if (least + 1 < EXTENDER_LIST && heap[least + 1] < heap[least])
            least++;
        if (heap[least] >= score)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = score;
}

/* The score of the last one on the list of the best; INT64_MIN: there are fewer. */
static int64_t least_listed(const struct filter_call *f) {
    int64_t heap[EXTENDER_LIST];
    for (size_t i = 0; i < EXTENDER_LIST; i++)
        heap[i] = INT64_MIN;
    for (size_t i = 0; i < f->n; i++)
        if (f->candidates[i].reason == PLACE_OK)
            put_in_heap(heap, f->candidates[i].score);
    return heap[0];
}

/* Those that can take the pod, the best of them where they are many, or all nodes. */
static void put_names(struct json_writer *w, const struct filter_call *f, size_t n, bool all) {
    int64_t least = f->what_if || f->all || all ? INT64_MIN : least_listed(f);
    args_put_begin(w, f->objects);
    for (size_t i = 0; i < n; i++)
        if (all || (f->candidates[i].reason == PLACE_OK && f->candidates[i].score >= least))
            args_put(w, f->candidates[i].name, f->candidates[i].object);
    args_put_end(w, f->objects);
}

/* Whether room is being made for the pod on that node. */
static bool is_nominated(const struct filter_call *f, const struct extender_candidate *c) {
    return f->nominated && strcmp(c->name, f->nominated) == 0;
}

static void put_reasons(struct json_writer *w, const struct filter_call *f, size_t n,
                        const char *common, bool nominated) {
    for (size_t i = 0; i < n; i++) {
        const struct extender_candidate *c = &f->candidates[i];
        if ((common || c->reason != PLACE_OK) && is_nominated(f, c) == nominated)
            json_put_string(w, c->name, common ? common : place_reason_counted(c->reason));
    }
}

/* kube-scheduler's own preemption does not see shares: it would find that the pod fits as things
 * are, and report an error of its own. So a refusal is UnschedulableAndUnresolvable, except for the
 * node where preemption is in progress (evict.h): there kube-scheduler waits as for its own
 * victims; otherwise it would clear the nomination. */
static void put_failed(struct json_writer *w, const struct filter_call *f, size_t n,
                       const char *common) {
    json_object_begin(w, "FailedNodes");
    put_reasons(w, f, n, common, true);
    json_object_end(w);
    json_object_begin(w, "FailedAndUnresolvableNodes");
    put_reasons(w, f, n, common, false);
    json_object_end(w);
}

static bool any_fits(const struct filter_call *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->candidates[i].reason == PLACE_OK)
            return true;
    return false;
}

/* The reasons of thousands of nodes would be most of the response, and kube-scheduler reads them
 * only when no node is left: they are omitted when one is. */
static void put_filter_answer(struct buf *out, const struct filter_call *f, bool all,
                              const char *common_failure) {
    _cleanup_buf_ struct buf counted = BUF_INIT(0);
    struct json_writer w = {.out = out};
    bool failed = common_failure || f->n <= EXTENDER_LIST || !any_fits(f);
    if (common_failure) {
        buf_printf(&counted, "node(s): %s", common_failure);
        common_failure = buf_error(&counted) < 0 ? common_failure : buf_str(&counted);
    }
    json_object_begin(&w, NULL);
    put_names(&w, f, common_failure ? 0 : f->n, all);
    put_failed(&w, f, all || !failed ? 0 : f->n, common_failure);
    json_put_string(&w, "Error", "");
    json_object_end(&w);
}

static int fail_filter(struct buf *out, const char *text) {
    extender_error(out, text);
    return -EAGAIN;
}

/* ---- filter ---- */

/* Whether a node could take the pod if it were empty, of those that kube-scheduler asks about. */
static bool is_possible(const struct filter_call *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->candidates[i].node && f->candidates[i].node->ncards > 0 &&
            !place_reason_is_final(f->candidates[i].reason))
            return true;
    return false;
}

/* Of all nodes: kube-scheduler's own filters may have left some out. */
static bool is_possible_elsewhere(struct filter_call *f, const struct state_pod *self) {
    struct state *s = f->extender->state;
    bool possible = false;
    int64_t score;
    allow(f, 0);
    for (const struct state_node *node = s->nodes; node && !possible; node = node->hh.next)
        possible = node->exists && node->ncards > 0 &&
                   !place_reason_is_final(state_judge(s, &f->plan, node->head, self, &score));
    allow(f, PLACE_MODEL_STATES);
    return possible;
}

static void report_refusal(struct filter_call *f, struct state_pod *pod) {
    static const char reason[] = "NoGPUFits";
    char message[EXPLAIN_MAX] = "";
    if (!f->extender->on_refusal)
        return;
    uint64_t key = explain_key(&f->request, pod->selection, f->candidates, f->n);
    if (!f->extender->known || !f->extender->known(pod, reason, key, f->extender->userdata))
        explain_no_fit(f->extender->state, &f->request, pod->selection, f->candidates, f->n,
                       message);
    f->extender->on_refusal(pod, reason, key, message, f->extender->userdata);
}

static int filter_malformed(struct filter_call *f, const struct pod *pod, struct state_pod *self,
                            struct buf *out) {
    char message[EXPLAIN_MAX];
    put_filter_answer(out, f, false, request_problem_text(pod->problem, pod->mixed));
    explain_malformed(pod, message);
    if (self && f->extender->on_refusal)
        f->extender->on_refusal(self, "GPURequestMalformed", 0, message, f->extender->userdata);
    return 0;
}

/* Nodes that lack room only because of assumed allocations may soon have it, and no event of the
 * cluster would requeue the pod. An error makes kube-scheduler retry after a back-off. */
static int filter_none_fits(struct filter_call *f, struct state_pod *self, uint64_t now_ms,
                            struct buf *out) {
    self->requeue.reason = REFUSED_NO_ROOM;
    if (assumed_in_the_way(f, self))
        return fail_filter(out, "the GPU share that would fit is allocated to a pod that is being "
                                "bound; trying again in a moment");
    state_refresh_all(f->extender->state); /* so that only later changes count as such */
    self->requeue.refused = true;
    if (!is_possible(f))
        self->requeue.reason = is_possible_elsewhere(f, self) ? REFUSED_ELSEWHERE : REFUSED_NO_GPU;
    self->requeue.version = f->extender->state->version;
    put_filter_answer(out, f, false, NULL);
    if (f->extender->on_no_room)
        f->extender->on_no_room(self, f->candidates, f->n, now_ms, f->extender->userdata);
    report_refusal(f, self);
    return 0;
}

/* The same sentence for every node, so that kube-scheduler's message is that sentence. */
static int filter_gated(struct filter_call *f, struct state_pod *self, const struct gate *gate,
                        const char *why, struct buf *out) {
    self->requeue.gated = true;
    self->requeue.reason = gate->name;
    put_filter_answer(out, f, false, why);
    if (f->extender->on_refusal)
        f->extender->on_refusal(self, "GPUSchedulingGated", 0, why, f->extender->userdata);
    return 0;
}

static int filter_known(struct filter_call *f, struct state_pod *self, uint64_t now_ms,
                        struct buf *out) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    size_t fitting;
    self->requeue.reason = REFUSED_ELSEWHERE; /* where nothing below says more */
    if (self->stage == POD_BOUND || self->stage == POD_AWAITED)
        return fail_filter(out, "the pod is bound already");
    if (self->stage == POD_BINDING)
        return fail_filter(out, "the pod is being bound");
    if (self->stage == POD_IN_DOUBT) {
        if (judge_in_doubt(f, self) == 0)
            return fail_filter(out, "an earlier Binding of the pod may still be carried out");
        put_filter_answer(out, f, false, NULL);
        return 0;
    }
    self->requeue.gated = false;
    const struct gate *gate = gates_closed(f->extender->gates, self, now_ms, &why);
    if (gate)
        return filter_gated(f, self, gate, buf_str(&why), out);
    state_plan(f->extender->state, self, &f->request, &f->plan);
    fitting = judge_nodes(f, self);
    self->requeue.refused = false;
    if (fitting == 0)
        return filter_none_fits(f, self, now_ms, out);
    if (fitting == 1)
        allocate_best(f, self, now_ms); /* prioritize will not be asked */
    f->all = self->requeue.shortened;
    self->requeue.shortened |= fitting > EXTENDER_LIST;
    put_filter_answer(out, f, false, NULL);
    return 0;
}

/* A pod that was only asked about is forgotten again, unless it was known before. */
static void judge_what_if(struct filter_call *f, const struct pod *pod) {
    bool known = state_pod_find(f->extender->state, pod->uid) != NULL;
    struct state_pod *self = state_pod_suppose(f->extender->state, pod);
    if (!self) {
        for (size_t i = 0; i < f->n; i++)
            f->candidates[i].reason = PLACE_NO_GPU;
        return;
    }
    state_plan(f->extender->state, self, &f->request, &f->plan);
    (void) judge_nodes(f, self);
    if (!known)
        state_pod_gone(f->extender->state, pod->uid);
}

static int filter_pod(struct filter_call *f, const struct pod *pod, uint64_t now_ms,
                      struct buf *out) {
    if (pod->problem == REQUEST_OK && pod->request.n == 0) {
        put_filter_answer(out, f, true, NULL);
        return 0;
    }
    if (f->what_if) {
        bool sane = pod->problem == REQUEST_OK;
        if (sane)
            judge_what_if(f, pod);
        put_filter_answer(out, f, false,
                          sane ? NULL : request_problem_text(pod->problem, pod->mixed));
        return 0;
    }
    const char *why;
    struct state_pod *self = state_pod_asked(f->extender->state, pod, &why);
    if (pod->problem != REQUEST_OK)
        return filter_malformed(f, pod, self, out);
    if (!self)
        return fail_filter(out, why);
    f->nominated = self->nominated;
    return filter_known(f, self, now_ms, out);
}

static int filter_not_ready(const struct extender *e, struct buf *out) {
    const char *trouble = e->trouble ? e->trouble(e->userdata) : "";
    struct err err;
    if (!*trouble)
        return fail_filter(out, EXTENDER_NOT_READY);
    (void) err_set(&err, EAGAIN, "aliquot-scheduler does not know the state of the cluster: %s",
                   trouble);
    return fail_filter(out, err.text);
}

static int filter(struct filter_call *f, struct pod *pod, uint64_t now_ms, struct buf *out) {
    struct extender *e = f->extender;
    return e->ready(e->userdata) ? filter_pod(f, pod, now_ms, out) : filter_not_ready(e, out);
}

int extender_filter(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                    struct buf *out) {
    return answer(e, body, len, now_ms, out, filter);
}

/* ---- prioritize ---- */

static void put_scores(struct buf *out, const struct filter_call *f) {
    struct json_writer w = {.out = out};
    json_array_begin(&w, NULL);
    for (size_t i = 0; i < f->n; i++) {
        json_object_begin(&w, NULL);
        json_put_string(&w, "Host", f->candidates[i].name);
        json_put_i64(&w, "Score", f->candidates[i].score);
        json_object_end(&w);
    }
    json_array_end(&w);
}

static void score_nodes(struct filter_call *f, const struct pod *pod, uint64_t now_ms) {
    struct state_pod *self = NULL;
    bool requested = pod->problem == REQUEST_OK && pod->request.n > 0;
    if (requested && f->what_if) {
        judge_what_if(f, pod);
    } else {
        if (requested)
            self = state_pod_asked(f->extender->state, pod, NULL);
        if (!self || self->stage > POD_ASSUMED)
            return; /* nothing to choose: all zero */
        state_plan(f->extender->state, self, &f->request, &f->plan);
        (void) judge_nodes(f, self);
        judge_best(f, self);
    }
    for (size_t i = 0; i < f->n; i++)
        if (f->candidates[i].reason != PLACE_OK)
            f->candidates[i].score = -PLACE_SCORE_MAX; /* taken since filter */
    if (self)
        allocate_best(f, self, now_ms);
}

static int prioritize(struct filter_call *f, struct pod *pod, uint64_t now_ms, struct buf *out) {
    struct extender *e = f->extender;
    if (e->ready(e->userdata))
        score_nodes(f, pod, now_ms);
    put_scores(out, f);
    return 0;
}

int extender_prioritize(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                        struct buf *out) {
    return answer(e, body, len, now_ms, out, prioritize);
}
