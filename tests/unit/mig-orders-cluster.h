/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A cluster for the scheduler's orders of MIG instances: its objects, and agents that carry the
 * orders out. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "scheduler/mig/orders.h"

#define CARDS 4

static const struct {
    const char *name;
    uint32_t size, most, starts;
} profiles[] = {
    {"1g.10gb", 1, 7, 0x7f}, {"1g.10gb+me", 1, 1, 0x7f}, {"2g.20gb", 2, 3, 0x15},
    {"3g.40gb", 4, 2, 0x11}, {"4g.40gb", 4, 1, 0x01},    {"7g.80gb", 8, 1, 0x01},
};

struct card {
    char name[32], node[32], state[16];
    char order[MIG_ORDER_TEXT_MAX];
    unsigned version;
    struct mig_report report;
};

static struct cluster {
    struct mig_orders *orders;
    struct card cards[CARDS];
    unsigned ncards;
    uint64_t now;
    unsigned writes;
    unsigned searches; /* of one node */
    unsigned notes;
    bool refuse;           /* the API server takes no write */
    bool silent;           /* agents do nothing */
    bool full;             /* nodes have no CPU left */
    const char *full_node; /* nor has this one; "": all others have */
    char said[256], reason[32];
} c;

/* ---- objects ---- */

static inline void show(enum mig_orders_kind kind, const char *text) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    assert_int_equal(mig_orders_seen(c.orders, kind, root, NULL), 0);
}

static inline void show_card(struct card *card) {
    _cleanup_buf_ struct buf out = BUF_INIT(65536);
    struct json_writer w = {.out = &out};

    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "name", card->name);
    json_put_stringf(&w, "resourceVersion", "%u", ++card->version);
    json_object_begin(&w, "annotations");
    if (card->order[0])
        json_put_string(&w, MIG_ORDER_ANNOTATION, card->order);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_string(&w, "nodeName", card->node);
    json_object_end(&w);
    json_object_begin(&w, "status");
    json_put_string(&w, "state", card->state);
    mig_report_encode(&card->report, &w, "mig");
    json_object_end(&w);
    json_object_end(&w);
    show(MIG_ORDERS_CARDS, buf_str(&out));
}

static inline struct card *add_card(const char *name, const char *node) {
    struct card *card = &c.cards[c.ncards++];

    *card = (struct card){.state = "Healthy"};
    text_copy(card->name, sizeof(card->name), name);
    text_copy(card->node, sizeof(card->node), node);
    card->report.card = (struct mig_card){.capable = true, .enabled = true};
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
        struct mig_card_profile *p = &card->report.card.profiles[i];

        *p = (struct mig_card_profile){
            .size = profiles[i].size, .most = profiles[i].most, .starts = profiles[i].starts};
        assert_int_equal(mig_name_parse(profiles[i].name, &p->name, NULL), 0);
        card->report.card.nprofiles++;
    }
    show_card(card);
    return card;
}

/* `more`: members of the spec, each with a comma before it. */
static inline void show_pod(const char *name, const char *node, const char *resource,
                            unsigned count, const char *more) {
    char text[1024];

    (void) snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"team\",\"uid\":\"uid-%s\"},"
        "\"spec\":{\"nodeName\":\"%s\",\"containers\":[{\"name\":\"main\",\"resources\":{"
        "\"limits\":{\"nvidia.com/mig-%s\":\"%u\"}}}]%s},\"status\":{\"conditions\":[{\"type\":"
        "\"PodScheduled\",\"status\":\"False\",\"reason\":\"%s\"}]}}",
        name, name, node, resource, count, more, node[0] ? "" : "Unschedulable");
    show(MIG_ORDERS_PODS, text);
}

/* With the instances that its cards have. */
static inline void show_node(const char *name, const char *taints) {
    _cleanup_buf_ struct buf out = BUF_INIT(65536);
    struct mig_needs have = {0};

    for (unsigned i = 0; i < c.ncards; i++) {
        const struct mig_card *card = &c.cards[i].report.card;

        for (uint32_t k = 0; strcmp(c.cards[i].node, name) == 0 && k < card->ninstances; k++)
            mig_needs_add(&have, &card->profiles[card->instances[k].profile].name, 1);
    }
    buf_printf(&out,
               "{\"metadata\":{\"name\":\"%s\",\"labels\":{\"zone\":\"%s\"}},\"spec\":{\"taints\":"
               "%s},\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"0\"",
               name, name, taints);
    for (uint32_t i = 0; i < have.n; i++) {
        char profile[MIG_PROFILE_NAME_MAX], *plus;

        (void) mig_name_format(&have.v[i].profile, profile);
        if ((plus = strchr(profile, '+')))
            *plus = '.';
        buf_printf(&out, ",\"nvidia.com/mig-%s\":\"%u\"", profile, have.v[i].count);
    }
    buf_puts(&out, "}}}");
    show(MIG_ORDERS_NODES, buf_str(&out));
}

/* ---- the world ---- */

static inline bool has_room(void *self, const struct mig_pod *pod, const char *node) {
    (void) self, (void) pod;
    c.searches++;
    return !c.full && strcmp(node, c.full_node) != 0;
}

static inline void write_order(void *self, struct mig_orders *orders, const char *gpu,
                               const char *version, const char *order) {
    (void) self;
    (void) orders;
    c.writes++;
    for (unsigned i = 0; i < c.ncards; i++) {
        struct card *card = &c.cards[i];
        char now[16];

        if (strcmp(card->name, gpu) != 0)
            continue;
        (void) snprintf(now, sizeof(now), "%u", card->version);
        assert_string_equal(version, now);
        if (!c.refuse)
            text_copy(card->order, sizeof(card->order), order);
    }
}

static inline void note(void *self, const struct mig_pod *pod, bool warning, const char *reason,
                        const char *message) {
    (void) self, (void) pod, (void) warning;
    c.notes++;
    text_copy(c.reason, sizeof(c.reason), reason);
    text_copy(c.said, sizeof(c.said), message);
}

/* An agent: makes and destroys what it is told to. */
static inline void carry_out(struct card *card) {
    struct mig_report *report = &card->report;
    struct mig_order order;
    struct mig_edit edit;
    struct mig_want want;

    assert_int_equal(mig_order_parse(card->order, strlen(card->order), &order, NULL), 0);
    if (mig_order_edit(&order, report, &edit)) {
        struct mig_card now = report->card;

        assert_int_equal(mig_want_edit(&report->card, &edit, &want, NULL), 0);
        now.ninstances = want.n;
        for (uint32_t i = 0; i < want.n; i++) {
            const struct mig_wanted *w = &want.instances[i];
            const struct mig_place place = {now.profiles[w->profile].name, w->start};
            const struct mig_instance *old = mig_edit_find(&report->card, &place);

            now.instances[i] = (struct mig_instance){.profile = w->profile,
                                                     .start = w->start,
                                                     .ncompute = 1,
                                                     .compute = {{.slices = w->compute[0]}},
                                                     .in_use = old && old->in_use};
        }
        report->card = now;
    }
    report->observed = order.serial;
}

/* A pass, what it leads to, and the events of that. */
static inline void turn(void) {
    c.now += 1000;
    mig_orders_run(c.orders, c.now);
    for (unsigned i = 0; i < c.ncards; i++) {
        mig_orders_written(c.orders, c.cards[i].name, !c.refuse);
        show_card(&c.cards[i]);
        if (!c.silent)
            carry_out(&c.cards[i]);
        show_card(&c.cards[i]);
        show_node(c.cards[i].node, "[]");
    }
}

/* Until nothing is written any more: what the agent reports is seen in the next pass. */
static inline void settle(void) {
    for (unsigned before = c.writes, calm = 0; calm < 2; before = c.writes) {
        turn();
        calm = c.writes > before ? 0 : calm + 1;
    }
}

/* "1g.10gb@6 3g.40gb@0*", in the order of the slices; * is in use. */
static inline const char *tell(unsigned i) {
    static char text[256];
    const struct mig_card *card = &c.cards[i].report.card;
    char name[MIG_PROFILE_NAME_MAX];
    size_t n = 0;

    text[0] = 0;
    for (uint32_t start = 0; start < 8; start++)
        for (uint32_t k = 0; k < card->ninstances; k++)
            if (card->instances[k].start == start)
                n += (size_t) snprintf(
                    text + n, sizeof(text) - n, "%s%s@%u%s", n ? " " : "",
                    mig_name_format(&card->profiles[card->instances[k].profile].name, name), start,
                    card->instances[k].in_use ? "*" : "");
    return text;
}

static inline void use(unsigned i, uint32_t start, bool used) {
    struct mig_card *card = &c.cards[i].report.card;

    for (uint32_t k = 0; k < card->ninstances; k++)
        if (card->instances[k].start == start)
            card->instances[k].in_use = used;
    show_card(&c.cards[i]);
}

static struct mig_orders_world world = {.has_room = has_room, .write = write_order, .note = note};

static inline struct mig_orders *new_orders(void) {
    return mig_orders_new(&world);
}

static inline int setup(void **state) {
    (void) state;
    c = (struct cluster){.orders = new_orders(), .now = 1000, .full_node = ""};
    return c.orders ? 0 : -1;
}

static inline int teardown(void **state) {
    (void) state;
    c.orders = mig_orders_free(c.orders);
    return 0;
}
