/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot gpus`: the cards of the cluster with their allocations (from the GPU objects) and their
 * use (from the agents, through the proxy of the API server). */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/args.h"
#include "cli/cluster/card_rows.h"
#include "cli/cluster/kubectl.h"
#include "cli/table.h"
#include "wire/json.h"

#define AGENTS_MAX 4096

enum column { GPU, NODE, HOLDER, CORE, MEMORY, USED, BUSY, STATE, COLUMNS };

static const char *arg_system = "aliquot-system";
static const char *arg_namespace;

/* The usage page of one agent, kept as long as views of it are used. */
struct agent {
    struct json_parser *parser;
    struct json usage;
};

struct agents {
    struct agent *list;
    size_t n;
};

static void agents_done(struct agents *agents) {
    for (size_t i = 0; i < agents->n; i++)
        json_parser_free(agents->list[i].parser);
    free(agents->list);
}

/* One agent's /usage, through the API server's proxy. */
static int read_agent(const char *pod, struct agent *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    char path[512];
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s:9400/proxy/usage",
                    arg_system, pod);
    int r = KUBECTL(&text, err, "get", "--raw", path);
    if (r < 0)
        return r;
    return json_open(buf_str(&text), text.len, &ret->parser, &ret->usage, err);
}

/* An agent that does not answer costs its node the columns of use, not the whole table. */
static int read_agents(struct agents *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json pods;
    int r = KUBECTL(&text, err, "get", "pods", "-n", arg_system, "-l",
                    "app.kubernetes.io/name=aliquot-agent", "-o", "json");
    if (r < 0)
        return r;
    r = json_open(buf_str(&text), text.len, &parser, &pods, err);
    if (r < 0)
        return r;

    struct json items = json_get(pods, "items");
    size_t n = json_size(items) < AGENTS_MAX ? json_size(items) : AGENTS_MAX;
    ret->list = calloc(n ? n : 1, sizeof(*ret->list));
    if (!ret->list)
        return err_errno(err, ENOMEM, "cannot read the usage of the agents");

    struct json_iter it = json_iter(items);
    struct json pod;
    while (ret->n < n && json_next(&it, NULL, &pod)) {
        struct err trouble;
        const char *name = json_string(JSON_PATH(pod, "metadata", "name"));
        if (!name)
            continue;
        if (read_agent(name, &ret->list[ret->n], &trouble) < 0)
            fprintf(stderr, "aliquot gpus: no usage from agent %s: %s\n", name, trouble.text);
        else
            ret->n++;
    }
    return 0;
}

/* The card, or a MIG instance of one, as its agent sees it; invalid where none does. */
static struct json find_card(const struct agents *agents, const char *uuid) {
    for (size_t i = 0; uuid && i < agents->n; i++) {
        struct json gpus = json_get(agents->list[i].usage, "gpus"), gpu;
        struct json found = json_find(gpus, "uuid", uuid);
        struct json_iter it = json_iter(gpus);

        while (!json_valid(found) && json_next(&it, NULL, &gpu))
            found = json_find(json_get(gpu, "instances"), "uuid", uuid);
        if (json_valid(found))
            return found;
    }
    return (struct json){0};
}

static struct json find_holder(struct json card, const char *uid, const char *container) {
    struct json_iter it = json_iter(json_get(card, "holders"));
    struct json holder;
    while (json_next(&it, NULL, &holder))
        if (json_is_string(json_get(holder, "podUID"), uid) &&
            json_is_string(json_get(holder, "container"), container))
            return holder;
    return (struct json){0};
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
    struct json use = find_holder(*card, h->uid, h->container);
    put_used(t, use, "memoryDriver", "coreUsed");
    put_state(t, use);
}

static void put_card(struct table *t, const struct card *card, const struct agents *agents) {
    static const struct card_columns columns = {HOLDER, CORE, MEMORY};
    struct json use = find_card(agents, card->uuid);
    char taken[24], all[24];

    table_row(t);
    table_set(t, GPU, "%s", card->name);
    table_set(t, NODE, "%s", card->node);
    card_put_model(t, HOLDER, card);
    table_set(t, CORE, "%" PRIu64 " of %" PRIu64 " %%", card_taken(card).core, card->core);
    table_set(t, MEMORY, "%s of %s", num_format_bytes(card_taken(card).memory, taken),
              num_format_bytes(card->memory, all));
    put_used(t, use, "memoryUsed", "utilization");
    table_set(t, STATE, "%s", card->state);
    card_rows(t, &columns, card, put_use, &use);
}

static bool is_shown(const struct card *card) {
    for (size_t i = 0; arg_namespace && i < card->nholders; i++)
        if (strcmp(card->holders[i].namespace, arg_namespace) == 0)
            return true;
    return !arg_namespace;
}

static int show_gpus(struct err *err) {
    _cleanup_(agents_done) struct agents agents = {0};
    _cleanup_(table_done) struct table table = {.columns = COLUMNS};
    _cleanup_(cards_done) struct cards cards = {0};

    int r = cards_fetch(&cards, err);
    if (r < 0)
        return r;
    r = read_agents(&agents, err);
    if (r < 0)
        return r;

    static const char *const titles[COLUMNS] = {"GPU",    "NODE", "MODEL / HOLDER", "CORE",
                                                "MEMORY", "USED", "BUSY",           "STATE"};
    table_titles(&table, titles);
    for (size_t i = 0; i < cards.n; i++)
        if (is_shown(&cards.list[i]))
            put_card(&table, &cards.list[i], &agents);
    r = table_print(&table, stdout);
    return r < 0 ? err_errno(err, -r, "cannot print") : 0;
}

int cmd_gpus(int argc, char **argv) {
    static const struct opt options[] = {
        {"namespace", 'n', "NAME", "only cards with pods of this namespace", opt_string,
         &arg_namespace},
        {"all-namespaces", 'A', NULL, "all cards (the default)", kubectl_all_namespaces,
         &arg_namespace},
        {"system", 0, "NAME", "namespace of Aliquot (default aliquot-system)", opt_string,
         &arg_system},
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot gpus [options]",
        .purpose = "Shows the cards of the cluster, their allocations, and the use of each.\n"
                   "USED and BUSY come from the agents, the other columns from the GPU objects.",
        .epilog =
            "Uses kubectl (or $KUBECTL) with your context. Exit status: 0; 1 when the cluster does "
            "not\n"
            "answer; 2 for wrong arguments.",
    };
    struct err err;

    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    bool understood = r == 0;
    if (understood)
        r = show_gpus(&err);
    return args_exit("gpus", r, understood, &err);
}
