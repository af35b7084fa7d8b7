/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot inspect`: the allocations of the cluster, a node, a card or a pod, from the GPU objects.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/args.h"
#include "cli/cluster/card_json.h"
#include "cli/cluster/card_rows.h"
#include "cli/cluster/inspect.h"
#include "cli/kubectl_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "wire/json_write.h"

static const char *arg_namespace;
static bool arg_details;

/* ---- sums ---- */

struct sum {
    uint64_t nodes, cards, healthy, pods;
    uint64_t core, taken_core, memory, taken_memory;
    uint64_t widest_core, widest_memory; /* of the card with most free memory */
};

/* Whether none of the cards before this one has a share of the same pod, or of the same claim. */
static bool is_first_share(const struct card *from, const struct card *card, size_t holder) {
    const char *uid = card->holders[holder].uid;
    for (size_t i = 0; i < holder; i++)
        if (strcmp(card->holders[i].uid, uid) == 0)
            return false;
    for (const struct card *c = from; c < card; c++)
        for (size_t i = 0; i < c->nholders; i++)
            if (strcmp(c->holders[i].uid, uid) == 0)
                return false;
    return true;
}

static void add_sum(struct sum *all, const struct sum *part) {
    all->nodes += part->nodes;
    all->cards += part->cards;
    all->healthy += part->healthy;
    all->pods += part->pods;
    all->core += part->core;
    all->taken_core += part->taken_core;
    all->memory += part->memory;
    all->taken_memory += part->taken_memory;
    if (part->widest_memory > all->widest_memory) {
        all->widest_memory = part->widest_memory;
        all->widest_core = part->widest_core;
    }
}

/* Adds the cards of one node, which are neighbours in the list; returns the first behind them. */
static const struct card *add_node(struct sum *sum, const struct card *card,
                                   const struct card *end) {
    const struct card *first = card;
    sum->nodes++;
    for (; card < end && strcmp(card->node, first->node) == 0; card++) {
        struct sum one = {
            .cards = !card->parent[0],
            .healthy = !card->parent[0] && strcmp(card->state, "Healthy") == 0,
            .core = card->core,
            .memory = card->memory,
            .taken_core = card->taken_core,
            .taken_memory = card->taken_memory,
            .widest_core = card->free_core,
            .widest_memory = card->free_memory,
        };
        for (size_t i = 0; i < card->nholders; i++)
            one.pods += is_first_share(first, card, i) ? holder_pods(&card->holders[i]) : 0;
        add_sum(sum, &one);
    }
    return card;
}

/* ---- tables ---- */

enum node_column {
    N_NODE,
    N_GPUS,
    N_HEALTHY,
    N_PODS,
    N_CORE,
    N_MEMORY,
    N_WIDEST,
    N_MODEL, /* of the first card; this and what follows with -o wide */
    N_COLUMNS
};

/* With all columns, or those before `narrow` if that is not 0. */
static struct table view_table(const char *const *titles, size_t columns, size_t narrow) {
    struct table t = {.columns = columns, .hidden = narrow ? columns - narrow : 0};

    table_titles(&t, titles);
    return t;
}

static void put_parts(struct table *t, size_t core_column, size_t memory_column, uint64_t core,
                      uint64_t all_core, uint64_t memory, uint64_t all_memory) {
    char part[24], all[24];
    table_set(t, core_column, "%" PRIu64 " of %" PRIu64 " %%", core, all_core);
    table_set(t, memory_column, "%s of %s", num_format_bytes(memory, part),
              num_format_bytes(all_memory, all));
}

static void put_sum(struct table *t, const char *name, const char *model, const struct sum *sum) {
    char widest[24];
    table_row(t);
    table_set(t, N_NODE, "%s", name);
    table_set(t, N_GPUS, "%" PRIu64, sum->cards);
    table_set(t, N_HEALTHY, "%" PRIu64, sum->healthy);
    table_set(t, N_PODS, "%" PRIu64, sum->pods);
    put_parts(t, N_CORE, N_MEMORY, sum->taken_core, sum->core, sum->taken_memory, sum->memory);
    table_set(t, N_WIDEST, "%" PRIu64 " %% %s", sum->widest_core,
              num_format_bytes(sum->widest_memory, widest));
    table_set(t, N_MODEL, "%s", model);
}

static int view_cluster(const struct cards *cards, bool wide, struct err *err) {
    static const char *const titles[N_COLUMNS] = {
        "NODE", "GPUS", "HEALTHY", "PODS", "CORE", "MEMORY", "MOST FREE ON A CARD", "MODEL"};
    _cleanup_(table_done) struct table t = view_table(titles, N_COLUMNS, wide ? 0 : N_MODEL);
    const struct card *end = cards->list + cards->n;
    struct sum all = {0};
    for (const struct card *card = cards->list; card < end;) {
        struct sum sum = {0};
        const struct card *first = card;
        card = add_node(&sum, card, end);
        put_sum(&t, first->node, first->model, &sum);
        add_sum(&all, &sum);
    }
    put_sum(&t, "all", "", &all);
    return table_show(&t, err);
}

enum card_column {
    C_NODE,
    C_GPU,
    C_NAME,
    C_HOLDER,
    C_CORE,
    C_MEMORY,
    C_STATE,
    C_UUID,
    C_REASON,
    C_COLUMNS
};

static void put_card(struct table *t, const struct card *card) {
    static const struct card_columns columns = {C_HOLDER, C_CORE, C_MEMORY};
    table_row(t);
    table_set(t, C_NODE, "%s", card->node);
    table_set(t, C_GPU, "%" PRIu64, card->index);
    table_set(t, C_NAME, "%s", card->name);
    card_put_model(t, C_HOLDER, card);
    put_parts(t, C_CORE, C_MEMORY, card->taken_core, card->core, card->taken_memory, card->memory);
    table_set(t, C_STATE, "%s", card->state);
    table_set(t, C_UUID, "%s", card->uuid);
    table_set(t, C_REASON, "%s", card->unavailable);
    card_rows(t, &columns, card, NULL, NULL);
}

static int view_cards(const struct cards *cards, bool wide, struct err *err) {
    static const char *const titles[C_COLUMNS] = {
        "NODE", "GPU", "NAME", "MODEL / HOLDER", "CORE", "MEMORY", "STATE", "UUID", "REASON"};
    _cleanup_(table_done) struct table t = view_table(titles, C_COLUMNS, wide ? 0 : C_UUID);
    for (size_t i = 0; i < cards->n; i++)
        put_card(&t, &cards->list[i]);
    return table_show(&t, err);
}

enum pod_column {
    P_NAMESPACE,
    P_POD,
    P_CONTAINER,
    P_NODE,
    P_GPU,
    P_CORE,
    P_MEMORY,
    P_CLAIM,
    P_UID,
    P_UUID,
    P_COLUMNS
};

static void put_pod(struct table *t, const struct card *card, const struct holder *h,
                    const char *pod, const char *container) {
    char memory[24];
    table_row(t);
    table_set(t, P_NAMESPACE, "%s", h->namespace);
    table_set(t, P_POD, "%s", pod);
    table_set(t, P_CONTAINER, "%s", container);
    table_set(t, P_NODE, "%s", card->node);
    table_set(t, P_GPU, "%" PRIu64 " (%s)", card->index, card->name);
    table_set(t, P_CORE, "%" PRIu64 " %%", h->core);
    table_set(t, P_MEMORY, "%s", num_format_bytes(h->memory, memory));
    table_set(t, P_CLAIM, "%s", h->claim);
    table_set(t, P_UID, "%s", h->uid);
    table_set(t, P_UUID, "%s", card->uuid);
}

/* A share of a claim has a row for each container that uses it. */
static void put_share(struct table *t, const struct card *card, const struct holder *h) {
    if (h->nusers == 0)
        put_pod(t, card, h, h->pod, h->container);
    for (size_t i = 0; i < h->nusers; i++)
        put_pod(t, card, h, h->users[i].pod, h->users[i].container);
}

static int view_pod(const struct cards *cards, bool wide, struct err *err) {
    static const char *const titles[P_COLUMNS] = {"NAMESPACE", "POD",     "CONTAINER", "NODE",
                                                  "GPU",       "CORE",    "MEMORY",    "CLAIM",
                                                  "UID",       "GPU UUID"};
    _cleanup_(table_done) struct table t = view_table(titles, P_COLUMNS, wide ? 0 : P_UID);
    for (size_t i = 0; i < cards->n; i++)
        for (size_t j = 0; j < cards->list[i].nholders; j++)
            put_share(&t, &cards->list[i], &cards->list[i].holders[j]);
    return table_show(&t, err);
}

/* ---- by namespace ---- */

enum space_column {
    S_NAMESPACE,
    S_PODS,
    S_CARDS,
    S_CORE,
    S_MEMORY,
    S_KEPT_CORE,
    S_KEPT_MEMORY,
    S_COLUMNS
};

struct space {
    const char *name;
    uint64_t pods, cards, core, memory;
    uint64_t kept_core, kept_memory; /* for claims, used by no pod */
};

static struct space *find_space(struct space *spaces, size_t *n, const char *name) {
    for (size_t i = 0; i < *n; i++)
        if (strcmp(spaces[i].name, name) == 0)
            return &spaces[i];
    spaces[*n] = (struct space){.name = name};
    return &spaces[(*n)++];
}

static int by_space(const void *a, const void *b) {
    const struct space *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static size_t most_spaces(const struct cards *cards) {
    size_t n = 0;
    for (size_t i = 0; i < cards->n; i++)
        n += cards->list[i].nholders + cards->list[i].nkept;
    return n;
}

/* A card counts once for each container that has a part of it, as in a quota. */
static size_t add_spaces(const struct cards *cards, struct space *spaces) {
    size_t n = 0;
    for (const struct card *card = cards->list; card < cards->list + cards->n; card++)
        for (size_t i = 0; i < card->nholders; i++) {
            const struct holder *h = &card->holders[i];
            struct space *space = find_space(spaces, &n, h->namespace);
            space->pods += is_first_share(cards->list, card, i) ? holder_pods(h) : 0;
            space->cards++;
            space->core += h->core;
            space->memory += h->memory;
        }
    for (const struct card *card = cards->list; card < cards->list + cards->n; card++)
        for (size_t i = 0; i < card->nkept; i++) {
            const struct kept *kept = &card->kept[i];
            struct space *space =
                kept->namespace[0] ? find_space(spaces, &n, kept->namespace) : NULL;
            if (!space)
                continue;
            space->kept_core += kept->core;
            space->kept_memory += kept->memory;
        }
    return n;
}

static int view_namespaces(const struct cards *cards, bool wide, struct err *err) {
    static const char *const titles[S_COLUMNS] = {"NAMESPACE", "PODS",      "GPUS",       "CORE",
                                                  "MEMORY",    "KEPT CORE", "KEPT MEMORY"};
    _cleanup_(table_done) struct table t = view_table(titles, S_COLUMNS, wide ? 0 : S_KEPT_CORE);
    _cleanup_free_ struct space *spaces = calloc(most_spaces(cards) + 1, sizeof(*spaces));
    char memory[24];
    if (!spaces)
        return err_errno(err, ENOMEM, "cannot sum up");
    size_t n = add_spaces(cards, spaces);
    qsort(spaces, n, sizeof(*spaces), by_space);
    for (const struct space *space = spaces; space < spaces + n; space++) {
        table_row(&t);
        table_set(&t, S_NAMESPACE, "%s", space->name);
        table_set(&t, S_PODS, "%" PRIu64, space->pods);
        table_set(&t, S_CARDS, "%" PRIu64, space->cards);
        table_set(&t, S_CORE, "%" PRIu64 " %%", space->core);
        table_set(&t, S_MEMORY, "%s", num_format_bytes(space->memory, memory));
        table_set(&t, S_KEPT_CORE, "%" PRIu64 " %%", space->kept_core);
        table_set(&t, S_KEPT_MEMORY, "%s", num_format_bytes(space->kept_memory, memory));
    }
    return table_show(&t, err);
}

static int view_memory(const struct cards *cards, bool wide, struct err *err) {
    (void) wide;
    return inspect_memory(cards, arg_details, err);
}

/* ---- names ---- */

static void name_users(const struct holder *h, struct buf *out) {
    if (h->nusers == 0)
        buf_printf(out, "pod/%s\n", h->pod);
    for (size_t i = 0; i < h->nusers; i++)
        if (i == 0 || strcmp(h->users[i].pod, h->users[i - 1].pod) != 0)
            buf_printf(out, "pod/%s\n", h->users[i].pod);
}

static void name_pods(const struct cards *cards, struct buf *out) {
    for (size_t i = 0; i < cards->n; i++)
        for (size_t j = 0; j < cards->list[i].nholders; j++)
            if (is_first_share(cards->list, &cards->list[i], j))
                name_users(&cards->list[i].holders[j], out);
}

static void name_namespaces(const struct cards *cards, struct buf *out) {
    _cleanup_free_ struct space *spaces = calloc(most_spaces(cards) + 1, sizeof(*spaces));
    size_t n = spaces ? add_spaces(cards, spaces) : 0;
    if (n > 0)
        qsort(spaces, n, sizeof(*spaces), by_space);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "namespace/%s\n", spaces[i].name);
}

/* ---- the command ---- */

/* Whether the view shows the card, or the holder, by the given name. */
static bool is_node(const struct card *card, const char *name) {
    return strcmp(card->node, name) == 0;
}

static bool is_card(const struct card *card, const char *name) {
    return strcmp(card->name, name) == 0;
}

static bool is_pod(const struct holder *h, const char *name) {
    return !name || holder_has_pod(h, name);
}

static bool is_namespace(const struct holder *h, const char *name) {
    return !name || strcmp(h->namespace, name) == 0;
}

static const struct view {
    struct opt_word word;
    int (*show)(const struct cards *cards, bool wide, struct err *err);
    void (*names)(const struct cards *cards, struct buf *out);
    bool (*wants_card)(const struct card *card, const char *name);
    bool (*wants_holder)(const struct holder *h, const char *name);
} views[] = {
    {{"cluster", NULL, "a line for each node with GPUs, and the sum (the default)", false},
     view_cluster,
     cards_node_names,
     NULL,
     NULL},
    {{"node", "[NAME]", "the cards of the nodes, or of one node, and their allocations", false},
     view_cards,
     cards_names,
     is_node,
     NULL},
    {{"card", "[NAME]", "the same by the name of a GPU object", false},
     view_cards,
     cards_names,
     is_card,
     NULL},
    {{"pod", "[NAME]", "the shares of pods, with node and card", false},
     view_pod,
     name_pods,
     NULL,
     is_pod},
    {{"namespace", "[NAME]", "the sum of each namespace", false},
     view_namespaces,
     name_namespaces,
     NULL,
     is_namespace},
    {{"memory", "[NAME]", "memory by node and card, as `kubectl inspect gpushare` prints it",
      false},
     view_memory,
     cards_node_names,
     is_node,
     NULL},
    {OPT_END, NULL, NULL, NULL, NULL},
};

/* Of a claim, the containers of the pod of that name. */
static void keep_users(struct holder *h, const char *name) {
    size_t kept = 0;
    for (size_t i = 0; name && i < h->nusers; i++)
        if (strcmp(h->users[i].pod, name) == 0)
            h->users[kept++] = h->users[i];
    h->nusers = name ? kept : h->nusers;
}

static bool keep_holders(const struct view *view, struct card *card, const char *name) {
    if (view->wants_holder == is_namespace)
        return card_keep_namespace(card, name);
    size_t kept = 0;
    for (size_t i = 0; i < card->nholders; i++) {
        if (!view->wants_holder(&card->holders[i], name)) {
            holder_done(&card->holders[i]);
            continue;
        }
        keep_users(&card->holders[i], name);
        card->holders[kept++] = card->holders[i];
    }
    card->nholders = kept;
    return kept > 0;
}

/* Keeps the cards of the view. */
static void select_cards(const struct view *view, const char *name, struct cards *cards) {
    size_t kept = 0;
    for (size_t i = 0; i < cards->n; i++) {
        struct card *card = &cards->list[i];
        bool wanted = !view->wants_card || !name || view->wants_card(card, name);
        if (view->show == view_memory && card->core == 0 && (card->divided || card->parent[0]))
            wanted = false; /* it has no shares, and no column */
        if (wanted && view->wants_holder)
            wanted = keep_holders(view, card, name);
        if (wanted)
            cards->list[kept++] = *card;
        else
            card_done(card);
    }
    cards->n = kept;
}

static int report_not_found(const struct view *view, const char *name, struct err *err) {
    if (view->wants_holder == is_namespace)
        return err_set(err, ENOENT, "no pod or claim of namespace '%s' holds a share", name);
    if (view->wants_holder)
        return err_set(
            err, ENOENT,
            "no pod '%s' holds a share%s%s; `aliquot explain %s` tells why it is pending", name,
            arg_namespace ? " in namespace " : "", arg_namespace ? arg_namespace : "", name);
    return err_set(err, ENOENT, "no %s '%s'; `aliquot inspect` lists the nodes",
                   view->wants_card == is_card ? "GPU object" : "node with a GPU", name);
}

static const struct opt options[] = {
    NAMESPACE_OPTION(&arg_namespace),
    {"all-namespaces", 'A', NULL, "what all pods have (the default)", kubectl_all_namespaces,
     &arg_namespace},
    OUTPUT_OPTIONS,
    {"details", 'd', NULL, "list the pods of each node too (view memory)", opt_flag, &arg_details},
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot inspect [VIEW [NAME]] [options]",
    .purpose = "Shows the allocations of the cluster's GPUs.",
    .epilog = "`aliquot gpus` shows the use. Uses kubectl (or $KUBECTL) with your context, which "
              "needs the\n"
              "right to list gpus.elasticgpu.io. Exit status: 0; 1 when the cluster does not "
              "answer or has\n"
              "no object of that name; 2 for wrong arguments.",
    .title = "Views",
    .words = &views[0].word,
    .stride = sizeof(views[0]),
};

/* What is asked for, and what is there of it. */
struct asked {
    const struct view *view;
    const char *name;
};

struct shown {
    const struct view *view;
    struct cards cards;
};

static void shown_done(struct shown *shown) {
    cards_done(&shown->cards);
}

static int show_table(const void *of, bool wide, struct err *err) {
    const struct shown *shown = of;
    return shown->view->show(&shown->cards, wide, err);
}

static void show_document(const void *of, struct json_writer *w) {
    const struct shown *shown = of;
    cards_document(&shown->cards, NULL, w);
}

static void show_names(const void *of, struct buf *out) {
    const struct shown *shown = of;
    shown->view->names(&shown->cards, out);
}

static int show(void *arg, struct err *err) {
    static const struct output_view how = {show_table, show_document, show_names};
    const struct asked *asked = arg;
    _cleanup_(shown_done) struct shown shown = {.view = asked->view};
    int r = cards_fetch(&shown.cards, err);
    if (r < 0)
        return r;
    if (shown.cards.n == 0)
        fprintf(stderr, "aliquot inspect: there are no GPU objects: no agent has found a GPU yet "
                        "(`kubectl get pods -n aliquot-system -o wide`)\n");
    cards_keep_namespace(&shown.cards, arg_namespace);
    select_cards(asked->view, asked->name, &shown.cards);
    if (asked->name && shown.cards.n == 0)
        return report_not_found(asked->view, asked->name, err);
    return output_print(&how, &shown, err);
}

static int inspect(int argc, char **argv, struct err *err) {
    const char *words[2] = {"cluster", NULL};
    int r = args_parse(options, &usage, argc, argv, words, 2, err);
    if (r < 0)
        return r;
    struct asked asked = {opt_word_find(&usage, words[0]), words[1]};
    char meant[OPT_MEANT_SIZE];

    if (!asked.view)
        return err_set(err, EINVAL, "no view '%s'; %s", words[0],
                       opt_meant(&usage, words[0], meant));
    if (words[1] && !asked.view->wants_card && !asked.view->wants_holder)
        return err_set(err, EINVAL, "view %s takes no name; see --help", asked.view->word.name);
    return output_run("inspect", show, &asked, err);
}

int cmd_inspect(int argc, char **argv) {
    struct err err;
    int r = inspect(argc, argv, &err);
    return args_exit("inspect", r, r != -EINVAL, &err);
}
