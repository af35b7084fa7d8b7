/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/views.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/server_time.h"
#include "cli/age.h"

/* ---- cells ---- */

static struct top_cell text_cell(const char *text) {
    return (struct top_cell){text, 0, TOP_NO_BAR, NULL};
}

/* Sorted by what it ended with. */
static struct top_cell hour_cell(const struct top_data *data, const char *key) {
    const struct top_hour *hour = top_hour_find(&data->hours, key);
    uint8_t last = hour ? hour->percent[TOP_HOUR_POINTS - 1] : TOP_HOUR_UNKNOWN;

    return (struct top_cell){"", last == TOP_HOUR_UNKNOWN ? -1 : last, TOP_NO_BAR, hour};
}

static struct top_cell number_cell(struct top_data *data, uint64_t n) {
    if (n == TOP_UNKNOWN)
        return (struct top_cell){"-", -1, TOP_NO_BAR, NULL};
    return (struct top_cell){top_text(data, "%" PRIu64, n), (double) n, TOP_NO_BAR, NULL};
}

static struct top_cell bytes_cell(struct top_data *data, uint64_t bytes) {
    char text[24];

    if (bytes == TOP_UNKNOWN)
        return (struct top_cell){"-", -1, TOP_NO_BAR, NULL};
    return (struct top_cell){top_text(data, "%s", num_format_bytes(bytes, text)), (double) bytes,
                             TOP_NO_BAR, NULL};
}

/* A part of a whole; unknown, or of nothing: no bar. */
static struct top_cell part_cell(struct top_data *data, uint64_t part, uint64_t whole) {
    if (part == TOP_UNKNOWN || whole == 0)
        return (struct top_cell){"-", -1, TOP_NO_BAR, NULL};
    double percent = 100.0 * (double) part / (double) whole;
    int shown = percent < 999 ? (int) (percent + 0.5) : 999;
    return (struct top_cell){top_text(data, "%d%%", shown), percent, shown, NULL};
}

/* ---- cards ---- */

static size_t count_cards(const struct top_data *data) {
    return data->ncards;
}

/* Agents remember what shares used of a card, and nothing else of it. */
static struct top_card card_at(const struct top_data *data, struct top_card card) {
    struct top_figures then = top_hours_at(&data->hours, card.uuid, data->at);

    card.used = then.used;
    card.busy = then.busy;
    card.taken_core = card.taken_memory = card.pods = TOP_UNKNOWN;
    card.state = "-";
    return card;
}

static size_t fill_cards(struct top_data *data, struct top_row *rows) {
    for (size_t i = 0; i < data->ncards; i++) {
        const struct top_card then = card_at(data, data->cards[i]);
        const struct top_card *c = data->at > 0 ? &then : &data->cards[i];
        rows[i] = (struct top_row){
            .cells = {text_cell(c->name), part_cell(data, c->taken_core, c->core),
                      part_cell(data, c->taken_memory, c->memory),
                      part_cell(data, c->used, c->memory), part_cell(data, c->busy, 100),
                      hour_cell(data, c->uuid), number_cell(data, c->pods), text_cell(c->state),
                      text_cell(c->model)},
            .view = "card",
            .name = c->name,
            .node = c->node,
        };
    }
    return data->ncards;
}

/* ---- containers ---- */

static size_t count_shares(const struct top_data *data) {
    return data->nshares;
}

static uint64_t unused_of(const struct top_share *s) {
    if (s->used == TOP_UNKNOWN || s->memory == 0)
        return TOP_UNKNOWN;
    return s->memory > s->used ? s->memory - s->used : 0;
}

/* A share of which nothing is known at that time may not have been there. */
static struct top_share share_at(const struct top_data *data, struct top_share share,
                                 const char *hour) {
    struct top_figures then = top_hours_at(&data->hours, hour, data->at);

    share.used = then.used;
    share.busy = then.busy;
    if (then.used == TOP_UNKNOWN && then.busy == TOP_UNKNOWN)
        share.core = share.memory = 0;
    return share;
}

static const char *name_of(struct top_data *data, const struct top_share *s) {
    if (s->claim && s->claim[0])
        return top_text(data, "%s/%s (ResourceClaim of %s)", s->namespace, s->claim, s->users);
    return s->container[0] ? top_text(data, "%s/%s (%s)", s->namespace, s->pod, s->container)
                           : top_text(data, "%s %s", s->namespace, s->pod);
}

/* The key of its history. */
static const char *hour_of(struct top_data *data, const struct top_share *s) {
    if (s->claim && s->claim[0])
        return top_text(data, "%s/%s//%s", s->uuid, s->namespace, s->claim);
    return top_text(data, "%s/%s/%s/%s", s->uuid, s->namespace, s->pod, s->container);
}

static size_t fill_shares(struct top_data *data, struct top_row *rows) {
    for (size_t i = 0; i < data->nshares; i++) {
        const struct top_share *s = &data->shares[i];
        const char *name = name_of(data, s), *hour = hour_of(data, s);
        const struct top_share then = share_at(data, *s, hour);
        if (data->at > 0)
            s = &then;
        rows[i] = (struct top_row){
            .cells = {text_cell(name), part_cell(data, s->core ? s->core : TOP_UNKNOWN, 100),
                      bytes_cell(data, s->memory ? s->memory : TOP_UNKNOWN),
                      part_cell(data, s->used, s->memory), bytes_cell(data, unused_of(s)),
                      part_cell(data, s->busy, 100), hour_cell(data, hour), text_cell(s->card),
                      text_cell(s->node)},
            .pod = s->container[0] || (s->claim && s->claim[0]) ? s->pod : NULL,
            .namespace = s->namespace,
            .node = s->node,
            .key = top_text(data, "%s/%s", hour, s->card),
        };
    }
    return data->nshares;
}

/* ---- nodes ---- */

struct sum {
    uint64_t gpus, ill, pods, core, taken_core, memory, taken_memory;
    uint64_t used, used_of;   /* bytes of the cards that tell their memory */
    uint64_t busy, told_busy; /* percent, and how many cards tell it */
};

static void add_card(struct sum *sum, const struct top_card *c) {
    sum->ill += strcmp(c->state, "Healthy") != 0;
    sum->core += c->core;
    sum->taken_core += c->taken_core;
    sum->memory += c->memory;
    sum->taken_memory += c->taken_memory;
    if (c->used != TOP_UNKNOWN) {
        sum->used += c->used;
        sum->used_of += c->memory;
    }
    if (c->busy != TOP_UNKNOWN) {
        sum->busy += c->busy;
        sum->told_busy++;
    }
}

static struct top_row node_row(struct top_data *data, const char *node, const struct sum *sum) {
    return (struct top_row){
        .cells = {text_cell(node), number_cell(data, sum->gpus),
                  part_cell(data, sum->taken_core, sum->core),
                  part_cell(data, sum->taken_memory, sum->memory),
                  part_cell(data, sum->used, sum->used_of),
                  part_cell(data, sum->busy, 100 * sum->told_busy), number_cell(data, sum->pods),
                  text_cell(data->of_pods   ? "-"
                            : sum->ill == 0 ? "Healthy"
                                            : top_text(data, "%" PRIu64 " not healthy", sum->ill))},
        .view = "node",
        .name = node,
    };
}

/* Pods with a share on the node, whose shares begin at *at and which it leaves behind. */
static uint64_t count_pods(const struct top_data *data, const char *node, size_t *at) {
    const struct top_share *shares = data->shares;
    size_t first = *at;
    uint64_t n = 0;

    for (; *at < data->nshares && strcmp(shares[*at].node, node) == 0; (*at)++) {
        size_t i = first;
        while (i < *at && (strcmp(shares[i].pod, shares[*at].pod) != 0 ||
                           strcmp(shares[i].namespace, shares[*at].namespace) != 0))
            i++;
        n += i == *at ? (shares[i].pods ? shares[i].pods : 1) : 0;
    }
    return n;
}

static size_t fill_nodes(struct top_data *data, struct top_row *rows) {
    size_t n = 0, share = 0;

    for (size_t i = 0; i < data->ncards;) {
        const char *node = data->cards[i].node;
        struct sum sum = {0};
        for (; i < data->ncards && strcmp(data->cards[i].node, node) == 0; i++) {
            sum.gpus += top_is_first(data, i);
            add_card(&sum, &data->cards[i]);
        }
        sum.pods = count_pods(data, node, &share);
        rows[n++] = node_row(data, node, &sum);
    }
    return n;
}

/* ---- pods that wait ---- */

static size_t count_waiting(const struct top_data *data) {
    return data->nwaiting;
}

static size_t fill_waiting(struct top_data *data, struct top_row *rows) {
    time_t now = (time_t) server_time();

    for (size_t i = 0; i < data->nwaiting; i++) {
        const struct top_pod *p = &data->waiting[i];
        time_t waits = p->since ? now - p->since : 0;
        char age[AGE_SIZE];
        rows[i] = (struct top_row){
            .cells = {text_cell(top_text(data, "%s/%s", p->namespace, p->name)),
                      {p->since ? top_text(data, "%s", age_text(waits, age)) : "-",
                       p->since ? (double) waits : -1, TOP_NO_BAR, NULL},
                      text_cell(p->wants),
                      text_cell(p->reason)},
            .pod = p->name,
            .namespace = p->namespace,
        };
    }
    return data->nwaiting;
}

const struct top_view top_views[TOP_VIEWS] = {
    {"cards",
     {{"GPU", false, false, 0, false},
      {"CORE", true, true, 2, false},
      {"MEMORY", true, true, 1, false},
      {"USED", true, true, 3, false},
      {"BUSY", true, true, 4, false},
      {"HOUR", true, false, 5, true},
      {"PODS", true, false, 7, false},
      {"STATE", false, false, 6, false},
      {"MODEL", false, false, 8, false}},
     9,
     2,
     count_cards,
     fill_cards},
    {"containers",
     {{"CONTAINER", false, false, 0, false},
      {"CORE", true, true, 3, false},
      {"MEMORY", true, false, 4, false},
      {"USED", true, true, 1, false},
      {"UNUSED", true, false, 5, false},
      {"BUSY", true, true, 2, false},
      {"HOUR", true, false, 6, true},
      {"GPU", false, false, 7, false},
      {"NODE", false, false, 8, false}},
     9,
     2,
     count_shares,
     fill_shares},
    {"nodes",
     {{"NODE", false, false, 0, false},
      {"GPUS", true, false, 5, false},
      {"CORE", true, true, 2, false},
      {"MEMORY", true, true, 1, false},
      {"USED", true, true, 3, false},
      {"BUSY", true, true, 4, false},
      {"PODS", true, false, 7, false},
      {"STATE", false, false, 6, false}},
     8,
     3,
     count_cards,
     fill_nodes},
    {"waiting",
     {{"POD", false, false, 0, false},
      {"WAITS", true, false, 2, false},
      {"WANTS", false, false, 3, false},
      {"REASON", false, false, 1, false}},
     4,
     1,
     count_waiting,
     fill_waiting},
};

bool top_view_has_past(const struct top_view *view) {
    for (size_t i = 0; i < view->ncolumns; i++)
        if (view->columns[i].has_hour)
            return true;
    return false;
}

/* ---- rows ---- */

const char *top_row_key(const struct top_row *row) {
    return row->key ? row->key : row->cells[0].text;
}

struct order {
    size_t column;
    bool is_number, reversed;
};

static int compare(const void *a, const void *b, void *arg) {
    const struct order *order = arg;
    const struct top_cell *x = &((const struct top_row *) a)->cells[order->column];
    const struct top_cell *y = &((const struct top_row *) b)->cells[order->column];
    int r = order->is_number ? (x->key < y->key) - (x->key > y->key) : strcmp(x->text, y->text);

    if (r == 0)
        return strcmp(top_row_key(a), top_row_key(b));
    return order->reversed ? -r : r;
}

static bool has_text(const struct top_view *view, const struct top_row *row, const char *text) {
    for (size_t i = 0; i < view->ncolumns; i++)
        if (strcasestr(row->cells[i].text, text))
            return true;
    return false;
}

int top_rows_make(const struct top_view *view, struct top_data *data, const char *filter,
                  size_t sorted, bool reversed, struct top_rows *ret) {
    struct order order = {sorted, view->columns[sorted].is_number, reversed};
    struct top_row *rows = calloc(view->count(data) + 1, sizeof(*rows));
    char first[TIMES_CLOCK_SIZE], last[TIMES_CLOCK_SIZE];
    size_t n, kept = 0;

    if (!rows)
        return -ENOMEM;
    n = view->fill(data, rows);
    for (size_t i = 0; i < n; i++)
        if (!filter[0] || has_text(view, &rows[i], filter))
            rows[kept++] = rows[i];
    qsort_r(rows, kept, sizeof(*rows), compare, &order);
    *ret = (struct top_rows){.list = rows, .n = kept};
    if (data->hours.read_at > 0)
        (void) snprintf(ret->hour, sizeof(ret->hour), "%s-%s",
                        times_clock(data->hours.read_at - TOP_HOUR_SECONDS, false, first),
                        times_clock(data->hours.read_at, false, last));
    return 0;
}

void top_rows_done(struct top_rows *rows) {
    free(rows->list);
    *rows = (struct top_rows){0};
}
