/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/extender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "place/workload/model.h"
#include "scheduler/extender/explain.h"
#include "scheduler/extender/node_template.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* At nodes, for one pod; some need no thinking, since others have the same cards. */
#define CLOSE_LOOKS (2 * PLACE_MODEL_STATES)
_Static_assert(EXTENDER_LIST > CLOSE_LOOKS, "the node that is best in the end must be on the list");

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

/* ---- what kube-scheduler sends ---- */

static int reserve_candidates(struct extender *e, size_t n) {
    if (n <= e->candidates_size)
        return 0;
    void *more = reallocarray(e->candidates, n, sizeof(*e->candidates));
    if (!more)
        return -ENOMEM;
    e->candidates = more;
    e->candidates_size = n;
    return 0;
}

/* So many nodes are looked up together, each step for all of them: the memory that one step has
 * fetched is there for the next. */
#define TOGETHER 32

static void find_nodes(struct extender *e, struct extender_candidate *to,
                       const struct json_text *names, const struct json *objects, size_t n) {
    uint64_t hash[TOGETHER];
    for (size_t i = 0; i < n; i++)
        hash[i] = state_name_soon(e->state, names[i].data, names[i].len);
    for (size_t i = 0; i < n; i++)
        state_head_soon(e->state, hash[i]);
    for (size_t i = 0; i < n; i++) {
        struct state_head *head = state_head_at(e->state, names[i].data, names[i].len, hash[i]);
        to[i] = (struct extender_candidate){.node = head ? head->node : NULL,
                                            .head = head,
                                            .name = names[i].data,
                                            .object = objects[i]};
        e->what_if |= e->objects && !head;
    }
}

static int read_args(struct extender *e, const char *body, size_t len, struct pod *ret_pod,
                     size_t *ret_n, struct err *err) {
    struct json_text names[TOGETHER];
    struct json objects[TOGETHER];
    struct args args;
    size_t n = 0;
    int r = args_read(e->parser, body, len, &args, err);
    if (r < 0)
        return r;
    if (reserve_candidates(e, args.n) < 0)
        return err_errno(err, ENOMEM, "cannot read the nodes");
    e->objects = args.objects;
    e->what_if = false;
    while ((r = args_next(&args, names, objects, TOGETHER, err)) > 0) {
        find_nodes(e, &e->candidates[n], names, objects, (size_t) r);
        n += (size_t) r;
    }
    if (r < 0)
        return r;
    *ret_n = n;
    return pod_parse(args.pod, ret_pod, err);
}

/* ---- judging nodes ---- */

#define AHEAD 16 /* so many nodes further memory is fetched */

/* How much what is judged next may be thought about. */
static void allow(struct extender *e, uint32_t states) {
    if (e->state->model)
        place_model_allow(e->state->model, states);
}

/* Answers each node for the pod, roughly; the names in the answer are those of the request. Returns
 * how many can take it. */
static size_t judge_nodes(struct extender *e, size_t n, const struct state_pod *self) {
    size_t fitting = 0;
    allow(e, 0);
    for (size_t i = 0; i < n; i++) {
        struct extender_candidate *c = &e->candidates[i];
        if (i + AHEAD < n && e->candidates[i + AHEAD].head)
            state_judge_soon(e->candidates[i + AHEAD].head, &e->plan);
        if (c->head)
            c->reason = state_judge(e->state, &e->plan, c->head, self, &c->score);
        else if (e->objects)
            c->reason = template_judge(&e->plan, self->selection, c->object, &c->score);
        else
            c->reason = PLACE_NO_GPU;
        fitting += c->reason == PLACE_OK;
    }
    allow(e, PLACE_MODEL_STATES);
    return fitting;
}

/* Whether a node would take the pod if promises were not kept. */
static bool promises_in_the_way(struct extender *e, size_t n, const struct state_pod *self) {
    struct place_result result;
    for (size_t i = 0; i < n; i++) {
        struct state_node *node = e->candidates[i].node;
        if (node && node->unsettled > 0 &&
            state_place(e->state, &e->plan, node, self, true, &result) == PLACE_OK)
            return true;
    }
    return false;
}

/* A pod whose Binding may still be carried out can only go where that one sends it. */
static size_t judge_in_doubt(struct extender *e, size_t n, const struct state_pod *self) {
    size_t fitting = 0;
    for (size_t i = 0; i < n; i++) {
        struct extender_candidate *c = &e->candidates[i];
        c->reason = c->node && c->node == self->node ? PLACE_OK : PLACE_ELSEWHERE;
        c->score = 0;
        fitting += c->reason == PLACE_OK;
    }
    return fitting;
}

static struct extender_candidate *best_candidate(const struct extender *e, size_t n) {
    struct extender_candidate *best = NULL;
    for (size_t i = 0; i < n; i++) {
        struct extender_candidate *c = &e->candidates[i];
        if (c->reason == PLACE_OK && (!best || c->score > best->score))
            best = c;
    }
    return best;
}

/* Who is the best of many by a rough look is there by luck: it is looked at closely, and stays the
 * best or makes way for another. */
static void judge_best(struct extender *e, size_t n, const struct state_pod *self) {
    for (uint32_t looks = 0; looks < CLOSE_LOOKS; looks++) {
        struct extender_candidate *best = best_candidate(e, n);
        if (!best || !best->node)
            return;
        int64_t score = best->score;
        best->reason = state_judge(e->state, &e->plan, best->head, self, &best->score);
        if (best->reason == PLACE_OK && best->score == score)
            return;
    }
}

/* Promises the pod its place on the node it will most likely be sent to. Failing is harmless: bind
 * places again. */
static void promise_best(struct extender *e, size_t n, struct state_pod *self, uint64_t now_ms) {
    const struct extender_candidate *best = best_candidate(e, n);
    struct place_result result;
    if (!best || !best->node ||
        state_place(e->state, &e->plan, best->node, self, false, &result) != PLACE_OK)
        return;
    (void) state_promise(e->state, self, best->node, &result, POD_PROMISED, now_ms);
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
static int64_t least_listed(const struct extender *e, size_t n) {
    int64_t heap[EXTENDER_LIST];
    for (size_t i = 0; i < EXTENDER_LIST; i++)
        heap[i] = INT64_MIN;
    for (size_t i = 0; i < n; i++)
        if (e->candidates[i].reason == PLACE_OK)
            put_in_heap(heap, e->candidates[i].score);
    return heap[0];
}

/* Those that can take the pod, the best of them where they are many, or all nodes. */
static void put_names(struct json_writer *w, const struct extender *e, size_t n, bool all) {
    int64_t least = e->what_if || e->all || all ? INT64_MIN : least_listed(e, n);
    args_put_begin(w, e->objects);
    for (size_t i = 0; i < n; i++)
        if (all || (e->candidates[i].reason == PLACE_OK && e->candidates[i].score >= least))
            args_put(w, e->candidates[i].name, e->candidates[i].object);
    args_put_end(w, e->objects);
}

/* Whether room is being made for the pod on that node. */
static bool is_nominated(const struct extender *e, const struct extender_candidate *c) {
    return e->nominated && strcmp(c->name, e->nominated) == 0;
}

static void put_reasons(struct json_writer *w, const struct extender *e, size_t n,
                        const char *common, bool nominated) {
    for (size_t i = 0; i < n; i++) {
        const struct extender_candidate *c = &e->candidates[i];
        if ((common || c->reason != PLACE_OK) && is_nominated(e, c) == nominated)
            json_put_string(w, c->name, common ? common : place_reason_counted(c->reason));
    }
}

/* kube-scheduler's own preemption does not see shares: it would find that the pod fits as things
 * are, and report an error of its own. So a refusal says that preemption cannot help, but for the
 * node where room is being made (evict.h): there kube-scheduler waits as for its own victims, where
 * it would take back the nomination otherwise. */
static void put_failed(struct json_writer *w, const struct extender *e, size_t n,
                       const char *common) {
    json_object_begin(w, "FailedNodes");
    put_reasons(w, e, n, common, true);
    json_object_end(w);
    json_object_begin(w, "FailedAndUnresolvableNodes");
    put_reasons(w, e, n, common, false);
    json_object_end(w);
}

static bool any_fits(const struct extender *e, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (e->candidates[i].reason == PLACE_OK)
            return true;
    return false;
}

/* The reasons of thousands of nodes would be most of the answer, and kube-scheduler looks at them
 * only when no node is left: so they are not said when there is one. */
static void put_filter_answer(struct buf *out, const struct extender *e, size_t n, bool all,
                              const char *common_failure) {
    _cleanup_buf_ struct buf counted = BUF_INIT(0);
    struct json_writer w = {.out = out};
    bool failed = common_failure || n <= EXTENDER_LIST || !any_fits(e, n);
    if (common_failure) {
        buf_printf(&counted, "node(s): %s", common_failure);
        common_failure = buf_error(&counted) < 0 ? common_failure : buf_str(&counted);
    }
    json_object_begin(&w, NULL);
    put_names(&w, e, common_failure ? 0 : n, all);
    put_failed(&w, e, all || !failed ? 0 : n, common_failure);
    json_put_string(&w, "Error", "");
    json_object_end(&w);
}

static int fail_filter(struct buf *out, const char *text) {
    extender_error(out, text);
    return -EAGAIN;
}

/* ---- filter ---- */

static void report_refusal(struct extender *e, size_t n, struct state_pod *pod) {
    static const char reason[] = "NoGPUFits";
    char message[EXPLAIN_MAX] = "";
    if (!e->on_refusal)
        return;
    uint64_t key = explain_key(&e->request, pod->selection, e->candidates, n);
    if (!e->known || !e->known(pod, reason, key, e->userdata))
        explain_no_fit(e->state, &e->request, pod->selection, e->candidates, n, message);
    e->on_refusal(pod, reason, key, message, e->userdata);
}

static int filter_malformed(struct extender *e, size_t n, const struct pod *pod,
                            struct state_pod *self, struct buf *out) {
    char message[EXPLAIN_MAX];
    put_filter_answer(out, e, n, false, request_problem_text(pod->problem));
    explain_malformed(pod, message);
    if (self && e->on_refusal)
        e->on_refusal(self, "GPURequestMalformed", 0, message, e->userdata);
    return 0;
}

/* Nodes that lack room only because of promises may have it in a moment, and nothing in the cluster
 * will change to tell kube-scheduler. An error makes it try again by itself, after a back-off. */
static int filter_none_fits(struct extender *e, size_t n, struct state_pod *self, uint64_t now_ms,
                            struct buf *out) {
    if (promises_in_the_way(e, n, self))
        return fail_filter(out, "the GPU share that would fit is promised to a pod that is being "
                                "bound; trying again in a moment");
    state_refresh_all(e->state); /* so that only later changes count as such */
    self->refused = true;
    self->refused_version = e->state->version;
    put_filter_answer(out, e, n, false, NULL);
    if (e->on_no_room)
        e->on_no_room(self, e->candidates, n, now_ms, e->userdata);
    report_refusal(e, n, self);
    return 0;
}

/* The same sentence for every node, so that kube-scheduler's message is that sentence. */
static int filter_held(struct extender *e, size_t n, struct state_pod *self, const char *why,
                       struct buf *out) {
    self->held = true;
    put_filter_answer(out, e, n, false, why);
    if (e->on_refusal)
        e->on_refusal(self, "GPUHeld", 0, why, e->userdata);
    return 0;
}

static int filter_known(struct extender *e, size_t n, struct state_pod *self, uint64_t now_ms,
                        struct buf *out) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    size_t fitting;
    if (self->stage == POD_BOUND || self->stage == POD_AWAITED)
        return fail_filter(out, "the pod is bound already");
    if (self->stage == POD_BINDING)
        return fail_filter(out, "the pod is being bound");
    if (self->stage == POD_IN_DOUBT) {
        if (judge_in_doubt(e, n, self) == 0)
            return fail_filter(out, "an earlier Binding of the pod may still be carried out");
        put_filter_answer(out, e, n, false, NULL);
        return 0;
    }
    self->held = false;
    if (gates_closed(e->gates, self, now_ms, &why))
        return filter_held(e, n, self, buf_str(&why), out);
    state_plan(e->state, self, &e->request, &e->plan);
    fitting = judge_nodes(e, n, self);
    self->refused = false;
    if (fitting == 0)
        return filter_none_fits(e, n, self, now_ms, out);
    if (fitting == 1)
        promise_best(e, n, self, now_ms); /* prioritize will not be asked */
    e->all = self->shortened;
    self->shortened |= fitting > EXTENDER_LIST;
    put_filter_answer(out, e, n, false, NULL);
    return 0;
}

/* A pod that was only asked about is forgotten again, unless it was known before. */
static void judge_what_if(struct extender *e, size_t n, const struct pod *pod) {
    bool known = state_pod_find(e->state, pod->uid) != NULL;
    struct place_model *model = e->state->model;
    e->state->model = NULL; /* it has not arrived */
    struct state_pod *self = state_pod_learn(e->state, pod);
    e->state->model = model;
    if (!self) {
        for (size_t i = 0; i < n; i++)
            e->candidates[i].reason = PLACE_NO_GPU;
        return;
    }
    state_plan(e->state, self, &e->request, &e->plan);
    (void) judge_nodes(e, n, self);
    if (!known)
        state_pod_gone(e->state, pod->uid);
}

static int filter_pod(struct extender *e, size_t n, const struct pod *pod, uint64_t now_ms,
                      struct buf *out) {
    e->nominated = NULL;
    e->all = false;
    if (pod->problem == REQUEST_OK && pod->request.n == 0) {
        put_filter_answer(out, e, n, true, NULL);
        return 0;
    }
    if (e->what_if) {
        bool sane = pod->problem == REQUEST_OK;
        if (sane)
            judge_what_if(e, n, pod);
        put_filter_answer(out, e, n, false, sane ? NULL : request_problem_text(pod->problem));
        return 0;
    }
    const char *why;
    struct state_pod *self = state_pod_asked(e->state, pod, &why);
    if (pod->problem != REQUEST_OK)
        return filter_malformed(e, n, pod, self, out);
    if (!self)
        return fail_filter(out, why);
    e->nominated = self->nominated;
    return filter_known(e, n, self, now_ms, out);
}

static int filter_not_ready(struct extender *e, struct buf *out) {
    const char *trouble = e->trouble ? e->trouble(e->userdata) : "";
    struct err err;
    if (!*trouble)
        return fail_filter(out, EXTENDER_NOT_READY);
    (void) err_set(&err, EAGAIN, "aliquot-scheduler does not know the state of the cluster: %s",
                   trouble);
    return fail_filter(out, err.text);
}

int extender_filter(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                    struct buf *out) {
    struct pod pod = {0};
    struct err err;
    size_t n = 0;
    int r = read_args(e, body, len, &pod, &n, &err);
    if (r < 0) {
        extender_error(out, err.text);
        return r;
    }
    if (e->ready(e->userdata))
        r = filter_pod(e, n, &pod, now_ms, out);
    else
        r = filter_not_ready(e, out);
    pod_done(&pod);
    return r;
}

/* ---- prioritize ---- */

static void put_scores(struct buf *out, const struct extender *e, size_t n) {
    struct json_writer w = {.out = out};
    json_array_begin(&w, NULL);
    for (size_t i = 0; i < n; i++) {
        json_object_begin(&w, NULL);
        json_put_string(&w, "Host", e->candidates[i].name);
        json_put_i64(&w, "Score", e->candidates[i].score);
        json_object_end(&w);
    }
    json_array_end(&w);
}

static void score_nodes(struct extender *e, size_t n, const struct pod *pod, uint64_t now_ms) {
    struct state_pod *self = NULL;
    bool asks = pod->problem == REQUEST_OK && pod->request.n > 0;
    if (asks && e->what_if) {
        judge_what_if(e, n, pod);
    } else {
        if (asks)
            self = state_pod_asked(e->state, pod, NULL);
        if (!self || self->stage > POD_PROMISED)
            return; /* nothing to choose: all zero */
        state_plan(e->state, self, &e->request, &e->plan);
        (void) judge_nodes(e, n, self);
        judge_best(e, n, self);
    }
    for (size_t i = 0; i < n; i++)
        if (e->candidates[i].reason != PLACE_OK)
            e->candidates[i].score = -PLACE_SCORE_MAX; /* taken since filter */
    if (self)
        promise_best(e, n, self, now_ms);
}

int extender_prioritize(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                        struct buf *out) {
    struct pod pod = {0};
    struct err err;
    size_t n = 0;
    int r = read_args(e, body, len, &pod, &n, &err);
    if (r < 0) {
        extender_error(out, err.text);
        return r;
    }
    if (e->ready(e->userdata))
        score_nodes(e, n, &pod, now_ms);
    put_scores(out, e, n);
    pod_done(&pod);
    return 0;
}
