/* SPDX-License-Identifier: Apache-2.0 */

/* Memory by node and card, in the form that users of gpushare know from its kubectl plugin. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/clean.h"
#include "cli/cluster/api.h"
#include "cli/cluster/inspect.h"
#include "cli/table.h"
#include "kube/objects/node.h"

#define CARDS_MAX 64 /* columns */
#define RULE "------------------------------------------------------------------"

/* One node: its cards, neighbours in the list. */
struct host {
    const char *name;
    char address[64];
    const struct card *first, *end;
};

/* "12" or "12.5" */
static const char *format_gib(uint64_t bytes, char out[static 24]) {
    uint64_t tenths = bytes / GIB * 10 + (bytes % GIB * 10 + GIB / 2) / GIB;
    if (tenths % 10 == 0)
        (void) snprintf(out, 24, "%" PRIu64, tenths / 10);
    else
        (void) snprintf(out, 24, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
    return out;
}

static unsigned percent(uint64_t part, uint64_t all) {
    return all ? (unsigned) ((double) part / (double) all * 100) : 0;
}

static size_t next_host(const struct cards *cards, size_t at, struct host *ret) {
    *ret = (struct host){.name = cards->list[at].node, .first = &cards->list[at]};
    while (at < cards->n && strcmp(cards->list[at].node, ret->name) == 0)
        at++;
    ret->end = cards->list + at;
    return at;
}

/* The node's address; "" when nodes may not be read, which spoils nothing else. */
static void find_address(struct json nodes, struct host *host) {
    struct json_iter it = json_iter(json_get(nodes, "items"));
    struct json node;
    while (json_next(&it, NULL, &node)) {
        struct node_object found;
        if (node_object_parse(node, &found, NULL) == 0 && strcmp(found.name, host->name) == 0)
            memcpy(host->address, found.internal_ip, sizeof(host->address));
    }
}

static void put_host(struct table *t, size_t columns, const struct host *host, uint64_t *all_taken,
                     uint64_t *all) {
    uint64_t taken = 0, capacity = 0;
    char one[24], other[24];
    size_t column = 2;
    table_row(t);
    table_set(t, 0, "%s", host->name);
    table_set(t, 1, "%s", host->address);
    for (const struct card *card = host->first; card < host->end; card++) {
        taken += card->taken_memory;
        capacity += card->memory;
        if (column < columns - 1)
            table_set(t, column++, "%s/%s", format_gib(card->taken_memory, one),
                      format_gib(card->memory, other));
    }
    table_set(t, columns - 1, "%s/%s", format_gib(taken, one), format_gib(capacity, other));
    *all_taken += taken;
    *all += capacity;
}

/* ---- the pods of a node ---- */

static uint64_t allocated_on(const struct card *card, const char *uid) {
    uint64_t memory = 0;
    for (size_t i = 0; i < card->nholders; i++)
        if (strcmp(card->holders[i].uid, uid) == 0)
            memory += card->holders[i].memory;
    return memory;
}

static bool was_shown(const struct host *host, const struct card *card, size_t holder) {
    const char *uid = card->holders[holder].uid;
    for (size_t i = 0; i < holder; i++)
        if (strcmp(card->holders[i].uid, uid) == 0)
            return true;
    for (const struct card *c = host->first; c < card; c++)
        for (size_t i = 0; i < c->nholders; i++)
            if (strcmp(c->holders[i].uid, uid) == 0)
                return true;
    return false;
}

static void put_pod(struct table *t, const struct host *host, const struct holder *h) {
    size_t column = 2;
    char text[24];
    table_row(t);
    table_set(t, 0, "%s", h->claim[0] ? h->claim : h->pod);
    table_set(t, 1, "%s", h->namespace);
    for (const struct card *card = host->first; card < host->end && column < t->columns; card++)
        table_set(t, column++, "%s", format_gib(allocated_on(card, h->uid), text));
}

/* `last` NULL: the last column is that of a card. */
static void put_titles(struct table *t, const char *second, const char *suffix, size_t ncards,
                       const char *last) {
    if (table_no_titles)
        return;
    table_row(t);
    table_set(t, 0, "NAME");
    table_set(t, 1, "%s", second);
    for (size_t i = 0; i < ncards; i++)
        table_set(t, 2 + i, "GPU%zu(%s)", i, suffix);
    if (last)
        table_set(t, 2 + ncards, "%s", last);
}

static int print_pods(const struct host *host) {
    size_t ncards = (size_t) (host->end - host->first);
    ncards = ncards < CARDS_MAX ? ncards : CARDS_MAX;
    _cleanup_(table_done) struct table t = {.columns = 2 + ncards};
    uint64_t taken = 0, capacity = 0;
    char text[24];
    put_titles(&t, "NAMESPACE", "Allocated", ncards, NULL);
    for (const struct card *card = host->first; card < host->end; card++) {
        taken += card->taken_memory;
        capacity += card->memory;
        for (size_t i = 0; i < card->nholders; i++)
            if (!was_shown(host, card, i))
                put_pod(&t, host, &card->holders[i]);
    }
    printf("NAME:       %s\nIPADDRESS:  %s\n\n", host->name, host->address);
    int r = table_print(&t, stdout);
    printf("Allocated : %s (%u%%)\n", format_gib(taken, text), percent(taken, capacity));
    printf("Total :     %s\n" RULE "\n", format_gib(capacity, text));
    return r;
}

/* ---- all nodes ---- */

static size_t most_cards(const struct cards *cards) {
    size_t most = 0;
    struct host host;
    for (size_t at = 0; at < cards->n;) {
        at = next_host(cards, at, &host);
        size_t n = (size_t) (host.end - host.first);
        most = n > most ? n : most;
    }
    return most < CARDS_MAX ? most : CARDS_MAX;
}

static int print_hosts(const struct cards *cards, struct json nodes, bool details,
                       struct err *err) {
    size_t ncards = most_cards(cards), columns = ncards + 3;
    _cleanup_(table_done) struct table t = {.columns = columns};
    uint64_t taken = 0, capacity = 0;
    char one[24], other[24];
    struct host host;
    int r = 0;
    put_titles(&t, "IPADDRESS", "Allocated/Total", ncards, "GPU Memory(GiB)");
    for (size_t at = 0; at < cards->n;) {
        at = next_host(cards, at, &host);
        find_address(nodes, &host);
        put_host(&t, columns, &host, &taken, &capacity);
        if (details && r == 0)
            r = print_pods(&host);
    }
    if (r == 0 && !details)
        r = table_print(&t, stdout);
    if (r < 0)
        return err_errno(err, -r, "cannot print");
    printf("%sAllocated/Total GPU Memory In Cluster:\n%s/%s (%u%%)\n", details ? "" : RULE "\n",
           format_gib(taken, one), format_gib(capacity, other), percent(taken, capacity));
    return 0;
}

int inspect_memory(const struct cards *cards, bool details, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json nodes = {0};
    struct err trouble;
    if (api_read("/api/v1/nodes", &parser, &nodes, &trouble) < 0)
        clean_print(stderr, "aliquot inspect: no addresses of nodes: %s\n", trouble.text);
    return print_hosts(cards, nodes, details, err);
}
