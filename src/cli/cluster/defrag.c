/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot defrag --plan`: moves that would empty cards, as place/defrag.h finds them. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/num.h"
#include "cli/args.h"
#include "cli/cluster/api.h"
#include "cli/cluster/card_place.h"
#include "cli/kubectl_options.h"
#include "cli/table.h"
#include "kube/objects/budget.h"
#include "kube/objects/pod.h"
#include "place/defrag.h"
#include "place/policies/policies.h"
#include "wire/json_write.h"

#define OPT_OUT "elasticgpu.io/defrag" /* annotation of a pod: "never" */
#define SYSTEM_PRIORITY 2000000000

static bool arg_plan, arg_json;
static uint32_t arg_moves = 100;
static uint32_t arg_priority = SYSTEM_PRIORITY - 1;

/* ---- the cluster ---- */

struct mover {
    UT_hash_handle hh;
    struct pod pod;
    bool known; /* the pods list has it */
    char uid[KUBE_UID_MAX];
};

struct cluster {
    struct cards cards;
    struct budget *budgets;
    size_t nbudgets;
    struct place_card *place;
    struct place_node *nodes;
    uint32_t *first;
    uint32_t nnodes;
    struct mover *movers, *by_uid;
    struct defrag_pod *pods;
    struct victims_amount *amounts;
    uint32_t npods, namounts;
};

static void cluster_done(struct cluster *c) {
    for (uint32_t i = 0; i < c->npods; i++)
        if (c->movers[i].known)
            pod_done(&c->movers[i].pod);
    for (size_t i = 0; i < c->nbudgets; i++)
        budget_done(&c->budgets[i]);
    cards_done(&c->cards);
    HASH_CLEAR(hh, c->by_uid);
    free(c->budgets);
    free(c->place);
    free(c->nodes);
    free(c->first);
    free(c->movers);
    free(c->pods);
    free(c->amounts);
}

static int make_room(struct cluster *c, struct err *err) {
    size_t n = c->cards.n + 1, holders = 1;
    for (size_t i = 0; i < c->cards.n; i++)
        holders += c->cards.list[i].nholders;
    c->place = calloc(n, sizeof(*c->place));
    c->nodes = calloc(n, sizeof(*c->nodes));
    c->first = calloc(n, sizeof(*c->first));
    c->movers = calloc(holders, sizeof(*c->movers));
    c->pods = calloc(holders, sizeof(*c->pods));
    c->amounts = calloc(holders, sizeof(*c->amounts));
    if (!c->place || !c->nodes || !c->first || !c->movers || !c->pods || !c->amounts)
        return err_errno(err, ENOMEM, "cannot plan");
    return 0;
}

/* ---- cards and holds ---- */

static void add_card(struct cluster *c, uint32_t at) {
    const struct card *card = &c->cards.list[at];
    c->place[at] = card_place(card);
    bool same = c->nnodes > 0 &&
                strcmp(c->cards.list[c->first[c->nnodes - 1]].node, card->node) == 0 &&
                c->nodes[c->nnodes - 1].ncards < PLACE_CARDS_MAX;
    if (!same) {
        c->first[c->nnodes] = at;
        c->nodes[c->nnodes] = (struct place_node){.cards = &c->place[at], .rank = c->nnodes};
        c->nnodes++;
    }
    c->nodes[c->nnodes - 1].ncards++;
}

static struct mover *find_mover(const struct cluster *c, const char *uid) {
    struct mover *mover;
    HASH_FIND_STR(c->by_uid, uid, mover);
    return mover;
}

static void add_mover(struct cluster *c, const char *uid, uint32_t node) {
    struct mover *mover = strlen(uid) < KUBE_UID_MAX ? find_mover(c, uid) : NULL;
    if (mover || strlen(uid) >= KUBE_UID_MAX)
        return;
    mover = &c->movers[c->npods];
    memcpy(mover->uid, uid, strlen(uid) + 1);
    HASH_ADD_STR(c->by_uid, uid, mover);
    if (hash_added(mover))
        c->pods[c->npods++] =
            (struct defrag_pod){.node = node, .stays = true, .request = &mover->pod.request};
}

static enum container_phase phase_of(const struct mover *mover, const char *container) {
    for (uint32_t i = 0; i < mover->pod.request.n; i++)
        if (strcmp(mover->pod.request.containers[i].container, container) == 0)
            return mover->pod.request.containers[i].phase;
    return CONTAINER_APP;
}

/* What the pod holds of the card; false: nothing. */
static bool amount_of(const struct mover *mover, const struct card *card,
                      struct place_amount *ret) {
    struct place_sum sum = {0};
    bool any = false;
    for (size_t i = 0; i < card->nholders; i++) {
        const struct holder *h = &card->holders[i];
        struct place_amount amount = {h->memory, (uint32_t) h->core, h->core == 0};
        if (strcmp(h->uid, mover->uid) != 0)
            continue;
        place_sum_add(&sum, phase_of(mover, h->container), &amount);
        any = true;
    }
    *ret = place_sum_total(&sum);
    return any;
}

/* A pod is on one node: where it was met first. */
static void add_amounts(struct cluster *c, uint32_t at) {
    struct defrag_pod *pod = &c->pods[at];
    pod->amounts = &c->amounts[c->namounts];
    for (uint32_t i = 0; i < c->nodes[pod->node].ncards; i++) {
        struct victims_amount *part = &c->amounts[c->namounts];
        if (!amount_of(&c->movers[at], &c->cards.list[c->first[pod->node] + i], &part->amount))
            continue;
        part->card = i;
        pod->namounts++;
        c->namounts++;
    }
}

static void read_holders(struct cluster *c) {
    for (uint32_t i = 0; i < c->cards.n; i++) {
        add_card(c, i);
        for (size_t h = 0; h < c->cards.list[i].nholders; h++)
            add_mover(c, c->cards.list[i].holders[h].uid, c->nnodes - 1);
    }
}

/* ---- which pods may be moved ---- */

/* Only a controller recreates an evicted pod; a pod of a DaemonSet belongs to its node. */
static bool comes_back(struct json meta) {
    struct json_iter it = json_iter(json_get(meta, "ownerReferences"));
    struct json owner;
    while (json_next(&it, NULL, &owner)) {
        const char *kind = json_string(json_get(owner, "kind"));
        bool controls = false;
        (void) json_bool(json_get(owner, "controller"), &controls);
        if (controls && kind && strcmp(kind, "DaemonSet") != 0 && strcmp(kind, "Node") != 0)
            return true;
    }
    return false;
}

static bool budgets_allow(const struct cluster *c, const struct pod *pod) {
    for (size_t i = 0; i < c->nbudgets; i++)
        if (c->budgets[i].allowed <= 0 &&
            budget_counts(&c->budgets[i], pod->namespace, pod->labels))
            return false;
    return true;
}

static bool is_set(struct json v) {
    return json_valid(v) && json_type(v) != JSON_NULL && json_size(v) > 0;
}

static void read_pod(struct json object, void *userdata) {
    struct cluster *c = userdata;
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    const char *uid = json_string(json_get(meta, "uid"));
    const char *opt_out = json_string(JSON_PATH(meta, "annotations", OPT_OUT));
    struct mover *mover = uid ? find_mover(c, uid) : NULL;
    struct err ignored;
    if (!mover || mover->known || pod_parse(object, &mover->pod, &ignored) < 0)
        return;
    const struct pod *pod = &mover->pod;
    struct defrag_pod *of = &c->pods[mover - c->movers];
    mover->known = true;
    of->stays = pod->deleting || pod->problem != REQUEST_OK || pod->request.n == 0 ||
                pod->claims.n > 0 || pod->selection || (opt_out && strcmp(opt_out, "never") == 0) ||
                pod->priority > (int64_t) arg_priority || !comes_back(meta) ||
                !budgets_allow(c, pod);
    of->at_home = is_set(json_get(spec, "nodeSelector")) || is_set(json_get(spec, "affinity"));
}

/* The cards of a node are consecutive, in the order of the nodes' names. */
static void close_node(struct cluster *c, const char *name) {
    uint32_t from = 0, to = c->nnodes;
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (strcmp(c->cards.list[c->first[mid]].node, name) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    for (; from < c->nnodes && strcmp(c->cards.list[c->first[from]].node, name) == 0; from++)
        for (uint32_t i = 0; i < c->nodes[from].ncards; i++)
            c->place[c->first[from] + i].healthy = false;
}

/* A node that takes no new pods is no place to go to. */
static void read_node(struct json object, void *userdata) {
    struct cluster *c = userdata;
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    struct json_iter it = json_iter(JSON_PATH(object, "spec", "taints"));
    bool closed = false;
    struct json taint;
    (void) json_bool(JSON_PATH(object, "spec", "unschedulable"), &closed);
    while (json_next(&it, NULL, &taint)) {
        const char *effect = json_string(json_get(taint, "effect"));
        closed |= effect && strcmp(effect, "PreferNoSchedule") != 0;
    }
    if (closed && name)
        close_node(c, name);
}

static void read_budget(struct json object, void *userdata) {
    struct cluster *c = userdata;
    struct err ignored;
    void *more = reallocarray(c->budgets, c->nbudgets + 1, sizeof(*c->budgets));
    if (!more)
        return;
    c->budgets = more;
    if (budget_parse(object, &c->budgets[c->nbudgets], &ignored) == 0)
        c->nbudgets++;
}

/* A large cluster takes some seconds: progress on a terminal. */
static void print_progress(const char *doing, const char *what) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "aliquot defrag: %s %s ...\n", doing, what);
}

static int read_list(struct cluster *c, const char *what, const char *path,
                     void (*read)(struct json object, void *userdata), struct err *err) {
    print_progress("reading the", what);
    return api_each(path, read, c, err);
}

static int read_cluster(struct cluster *c, struct err *err) {
    print_progress("reading the", "GPUs");
    int r = cards_fetch(&c->cards, err);
    if (r == 0)
        r = make_room(c, err);
    if (r < 0)
        return r;
    read_holders(c);
    r = read_list(c, "disruption budgets", "/apis/policy/v1/poddisruptionbudgets", read_budget,
                  err);
    if (r == 0)
        r = read_list(c, "pods", "/api/v1/pods", read_pod, err);
    if (r == 0)
        r = read_list(c, "nodes", "/api/v1/nodes", read_node, err);
    for (uint32_t i = 0; r == 0 && i < c->npods; i++)
        add_amounts(c, i);
    return r;
}

/* ---- showing ---- */

static void put_gpus(struct json_writer *w, const struct cluster *c, const char *key, uint32_t node,
                     uint64_t cards) {
    json_object_begin(w, key);
    json_put_string(w, "node", c->cards.list[c->first[node]].node);
    json_array_begin(w, "gpus");
    for (uint32_t i = 0; i < c->nodes[node].ncards; i++)
        if (cards >> i & 1)
            json_put_string(w, NULL, c->cards.list[c->first[node] + i].name);
    json_array_end(w);
    json_object_end(w);
}

static uint64_t cards_from(const struct defrag_pod *pod) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < pod->namounts; i++)
        set |= UINT64_C(1) << pod->amounts[i].card;
    return set;
}

static uint64_t cards_to(const struct defrag_pod *pod, const struct defrag_move *move) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < pod->request->n; i++)
        set |= move->cards[i];
    return set;
}

static int show_json(const struct cluster *c, const struct defrag_plan *plan, struct err *err) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_put_u64(&w, "emptied", plan->emptied);
    json_put_bool(&w, "cutShort", plan->cut_short);
    json_array_begin(&w, "moves");
    for (uint32_t i = 0; i < plan->nmoves; i++) {
        const struct defrag_move *move = &plan->moves[i];
        const struct defrag_pod *pod = &c->pods[move->pod];
        json_object_begin(&w, NULL);
        json_put_string(&w, "namespace", c->movers[move->pod].pod.namespace);
        json_put_string(&w, "pod", c->movers[move->pod].pod.name);
        put_gpus(&w, c, "from", pod->node, cards_from(pod));
        put_gpus(&w, c, "to", move->node, cards_to(pod, move));
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    if (buf_error(&out) < 0)
        return err_errno(err, ENOMEM, "cannot print");
    puts(buf_str(&out));
    return 0;
}

static void set_cards(struct table *t, size_t column, const struct cluster *c, uint32_t node,
                      uint64_t cards) {
    char text[512] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < c->nodes[node].ncards && len < sizeof(text); i++)
        if (cards >> i & 1)
            len += (size_t) snprintf(text + len, sizeof(text) - len, "%s%s", len ? "," : "",
                                     c->cards.list[c->first[node] + i].name);
    table_set(t, column, "%s", text);
}

static int show_table(const struct cluster *c, const struct defrag_plan *plan, struct err *err) {
    enum { STEP, POD, FROM, TO, COLUMNS };
    static const char *const titles[COLUMNS] = {"STEP", "POD", "FROM", "TO"};
    _cleanup_(table_done) struct table table = {.columns = COLUMNS};
    if (plan->cut_short)
        puts("The search was cut short: plan again when these moves are made.");
    if (plan->nmoves == 0) {
        puts("No moves free a card.");
        return 0;
    }
    table_titles(&table, titles);
    for (uint32_t i = 0; i < plan->nmoves; i++) {
        const struct defrag_move *move = &plan->moves[i];
        const struct defrag_pod *pod = &c->pods[move->pod];
        table_row(&table);
        table_set(&table, STEP, "%" PRIu32, i + 1);
        table_set(&table, POD, "%s/%s", c->movers[move->pod].pod.namespace,
                  c->movers[move->pod].pod.name);
        set_cards(&table, FROM, c, pod->node, cards_from(pod));
        set_cards(&table, TO, c, move->node, cards_to(pod, move));
    }
    int r = table_print(&table, stdout);
    printf("Moves: %" PRIu32 ". Cards that become free: %" PRIu32 ".\n", plan->nmoves,
           plan->emptied);
    return r < 0 ? err_errno(err, -r, "cannot print") : 0;
}

/* ---- the command ---- */

static void moves_free(struct defrag_move **moves) {
    free(*moves);
}

static int plan_moves(struct err *err) {
    _cleanup_(cluster_done) struct cluster c = {0};
    _cleanup_(moves_free) struct defrag_move *moves = NULL;
    int r = read_cluster(&c, err);
    if (r < 0)
        return r;
    print_progress("planning", "moves");
    moves = calloc(c.npods + 1, sizeof(*moves));
    const struct defrag_case of = {.policy = &place_binpack,
                                   .nodes = c.nodes,
                                   .cards = c.place,
                                   .first = c.first,
                                   .nnodes = c.nnodes,
                                   .pods = c.pods,
                                   .npods = c.npods};
    struct defrag_plan plan = {.moves = moves, .nmoves = arg_moves < c.npods ? arg_moves : c.npods};
    r = moves ? defrag_choose(&of, &plan) : -ENOMEM;
    if (r < 0)
        return err_errno(err, -r, "cannot plan");
    return arg_json ? show_json(&c, &plan, err) : show_table(&c, &plan, err);
}

int cmd_defrag(int argc, char **argv) {
    static const struct opt options[] = {
        {"plan", 0, NULL, "print the plan (required; no pod is moved)", opt_flag, &arg_plan},
        {"json", 0, NULL, "print JSON", opt_flag, &arg_json},
        {"max-moves", 0, "N", "maximum number of moves (default 100)", opt_u32, &arg_moves},
        {"max-priority", 0, "N", "pods of higher priority are not moved (default 1999999999)",
         opt_u32, &arg_priority},
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot defrag --plan [options]",
        .purpose =
            "Plans moves of pods, in order, that free many whole cards with few moves. Each pod "
            "fits "
            "on\n"
            "its target while it still runs at its source, once the moves before it are made.\n"
            "Not moved are pods without a controller or of a DaemonSet, pods that a disruption "
            "budget\n"
            "protects now, that select their cards or use a claim, and pods with the annotation\n"
            "elasticgpu.io/defrag: never. Pods with a nodeSelector or affinity stay on their node. "
            "CPU\n"
            "and memory of the nodes are not considered.",
        .epilog = KUBECTL_EPILOG,
    };
    struct err err;

    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    if (r == 0 && !arg_plan)
        r = err_set(&err, EINVAL, "--plan is required: defrag only plans; see --help");
    bool understood = r == 0;
    if (understood)
        r = plan_moves(&err);
    return args_exit("defrag", r, understood, &err);
}
