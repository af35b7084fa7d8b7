/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot gpus`: the cards of the cluster with their allocations (from the GPU objects) and their
 * use (from the agents, through the proxy of the API server). */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/agents.h"
#include "cli/cluster/card_json.h"
#include "cli/cluster/card_rows.h"
#include "cli/cluster/own_pods.h"
#include "cli/kubectl_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "wire/json.h"

enum column { GPU, NODE, HOLDER, CORE, MEMORY, USED, BUSY, STATE, UUID, REASON, COLUMNS };

static const char *arg_system = "aliquot-system";
static const char *arg_namespace;

static void tell_silent(const char *pod, const char *text) {
    clean_print(stderr, "aliquot gpus: no usage from agent %s: %s\n", pod, text);
}

static void put_used(struct table *t, struct json of, const char *memory, const char *busy) {
    uint64_t value;
    char bytes[24];
    if (json_u64(json_get(of, memory), &value))
        table_set(t, USED, "%s", num_format_bytes(value, bytes));
    if (json_u64(json_get(of, busy), &value))
        table_set(t, BUSY, "%" PRIu64 " %%", value);
}

/* States other than "Fine": "Lowered" (limit below use), "Over" ... */
static void put_state(struct table *t, struct json holder) {
    const char *state = json_string(json_get(holder, "memoryState"));
    if (state && strcmp(state, "Fine") != 0)
        table_set(t, STATE, "%s", state);
}

/* What the container uses of the card, which its agent describes in `userdata`. */
static void put_use(struct table *t, const struct holder *h, void *userdata) {
    const struct json *card = userdata;
    struct json use = agents_holder(*card, h);
    put_used(t, use, "memoryDriver", "coreUsed");
    put_state(t, use);
}

static void put_card(struct table *t, const struct card *card, const struct agents *agents) {
    static const struct card_columns columns = {HOLDER, CORE, MEMORY};
    struct json use = agents_find(agents, card->uuid);
    char taken[24], all[24];

    table_row(t);
    table_set(t, GPU, "%s", card->name);
    table_set(t, NODE, "%s", card->node);
    card_put_model(t, HOLDER, card);
    if (strcmp(card->state, CARD_UNTOLD) != 0) {
        table_set(t, CORE, "%" PRIu64 " of %" PRIu64 " %%", card->taken_core, card->core);
        table_set(t, MEMORY, "%s of %s", num_format_bytes(card->taken_memory, taken),
                  num_format_bytes(card->memory, all));
    }
    put_used(t, use, "memoryUsed", "utilization");
    if (agents_silent(agents, card->node))
        table_set(t, USED, "no answer");
    table_set(t, STATE, "%s", card->state);
    table_set(t, UUID, "%s", card->uuid);
    table_set(t, REASON, "%s", card->unavailable);
    card_rows(t, &columns, card, put_use, &use);
}

/* ---- the command ---- */

struct seen {
    struct cards cards;
    struct agents agents;
};

static void seen_done(struct seen *seen) {
    agents_done(&seen->agents);
    cards_done(&seen->cards);
}

static int show_table(const void *view, bool wide, struct err *err) {
    static const char *const titles[COLUMNS] = {"GPU",  "NODE", "MODEL / HOLDER", "CORE", "MEMORY",
                                                "USED", "BUSY", "STATE",          "UUID", "REASON"};
    const struct seen *seen = view;
    _cleanup_(table_done) struct table table = {.columns = COLUMNS,
                                                .hidden = wide ? 0 : COLUMNS - UUID};
    table_titles(&table, titles);
    for (size_t i = 0; i < seen->cards.n; i++)
        put_card(&table, &seen->cards.list[i], &seen->agents);
    return table_show(&table, err);
}

static void show_document(const void *view, struct json_writer *w) {
    const struct seen *seen = view;
    cards_document(&seen->cards, &seen->agents, w);
}

static void show_names(const void *view, struct buf *out) {
    const struct seen *seen = view;
    cards_names(&seen->cards, out);
}

static int show_gpus(void *arg, struct err *err) {
    static const struct output_view how = {show_table, show_document, show_names};
    _cleanup_(seen_done) struct seen seen = {0};
    (void) arg;
    int r = own_pods_or_cards(arg_namespace, &seen.cards, err);
    if (r == 0)
        r = own_pods_or_agents(arg_system, arg_namespace, &seen.cards, tell_silent, &seen.agents,
                               err);
    if (r < 0)
        return r;
    if (seen.agents.denied[0])
        clean_print(stderr, "aliquot gpus: no figures of use: %s\n", seen.agents.denied);
    return output_print(&how, &seen, err);
}

int cmd_gpus(int argc, char **argv) {
    static const struct opt options[] = {
        NAMESPACE_OPTION(&arg_namespace),
        {"all-namespaces", 'A', NULL, "what all pods have (the default)", kubectl_all_namespaces,
         &arg_namespace},
        SYSTEM_OPTION(&arg_system),
        OUTPUT_OPTIONS,
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot gpus [options]",
        .purpose = "Shows the cards of the cluster, their allocations, and the use of each.\n"
                   "USED and BUSY come from the agents, the other columns from the GPU objects.",
        .epilog = KUBECTL_EPILOG,
    };
    struct err err;

    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    return output_command("gpus", r, show_gpus, NULL, &err);
}
