/* SPDX-License-Identifier: Apache-2.0 */

/* The health of the devices as JSON: what a restarted agent needs to go on. Times are of this boot,
 * so that a file of an earlier boot is of no use: with the machine, the cards were reset. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/health/cards.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/step.h"
#include "base/text.h"
#include "wire/json_fields.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* The numbers of struct health and of a problem in the file. */
#define NUMBER(name, member) JSON_NUMBER(struct health, name, member)

static const struct json_field numbers[] = {
    NUMBER("since", since),
    NUMBER("lastXid", last_xid),
    NUMBER("seen", seen),
    NUMBER("xid", xid),
    NUMBER("evaluated", evaluated),
    NUMBER("evaluateTo", evaluate_to),
    NUMBER("recovery", recovery),
    NUMBER("memoryReset", memory_reset),
    NUMBER("nvlinks", nvlinks),
    NUMBER("noReset", no_reset),
    NUMBER("needsReset", needs_reset),
    NUMBER("ofDriver", of_driver),
    NUMBER("holders", holders),
    NUMBER("processes", processes),
    NUMBER("cordoned", cordoned),
    NUMBER("draining", draining),
    NUMBER("released", released),
    NUMBER("resetOrdered", reset_ordered),
    NUMBER("ordered", ordered),
    NUMBER("forReset", for_reset),
    NUMBER("afterReset", after_reset),
    NUMBER("proved", proved),
    NUMBER("held", held),
    NUMBER("tries", tries),
    NUMBER("resets", resets),
    NUMBER("retryAt", retry_at),
};

static const struct json_field problem_numbers[] = {
    JSON_NUMBER(struct health_problem, "there", there),
    JSON_NUMBER(struct health_problem, "certain", certain),
    JSON_NUMBER(struct health_problem, "over", over),
    JSON_NUMBER(struct health_problem, "since", since),
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* In the order of the file. The agent of 0.1.0 knows a cause by its place alone, and writes no
 * names: new causes are added at the end. */
static const struct {
    const char *name;
    enum health_cause cause;
} causes[HEALTH_CAUSES] = {
    {"xid", HEALTH_XID},
    {"noAnswer", HEALTH_NO_ANSWER},
    {"recovery", HEALTH_RECOVERY},
    {"memory", HEALTH_MEMORY},
    {"mps", HEALTH_MPS},
    {"links", HEALTH_LINKS},
    {"temperature", HEALTH_TEMPERATURE},
    {"offer", HEALTH_OFFER},
};

static void put_health(struct json_writer *w, const struct health *h) {
    json_put_string(w, "state", health_state_name(h->state));
    json_put_string(w, "reason", h->reason);
    json_put_string(w, "failure", h->failure);
    json_put_string(w, "orderedFailure", h->ordered_failure);
    json_put_string(w, "origin", h->origin);
    JSON_PUT_FIELDS(w, numbers, h);
    json_array_begin(w, "problems");
    for (size_t i = 0; i < N(causes); i++) {
        const struct health_problem *p = &h->problems[causes[i].cause];

        json_object_begin(w, NULL);
        json_put_string(w, "cause", causes[i].name);
        json_put_string(w, "text", p->text);
        JSON_PUT_FIELDS(w, problem_numbers, p);
        json_object_end(w);
    }
    json_array_end(w);
    json_array_begin(w, "left");
    for (uint32_t i = 0; i < h->nleft; i++)
        json_put_u64(w, NULL, h->left[i]);
    json_array_end(w);
}

/* What this agent does not know of is left out: the next reading decides. */
static void read_problems(struct json list, struct health *h) {
    struct json_iter it = json_iter(list);
    struct json item;

    for (size_t at = 0; json_next(&it, NULL, &item); at++) {
        const char *name = json_string(json_get(item, "cause"));
        size_t i = name ? 0 : at;

        while (name && i < N(causes) && strcmp(causes[i].name, name) != 0)
            i++;
        if (i >= N(causes))
            continue;
        text_copy(h->problems[causes[i].cause].text, HEALTH_TEXT_MAX,
                  json_string_or(json_get(item, "text"), ""));
        (void) JSON_READ_FIELDS(item, problem_numbers, &h->problems[causes[i].cause]);
    }
}

static int read_health(struct json v, struct health *h) {
    const char *state = json_string(json_get(v, "state"));
    struct json_iter it;
    struct json item;

    if (!state || health_state_parse(state) == HEALTH_STATES)
        return -EINVAL;
    h->state = health_state_parse(state);
    text_copy(h->reason, sizeof(h->reason), json_string_or(json_get(v, "reason"), ""));
    text_copy(h->failure, sizeof(h->failure), json_string_or(json_get(v, "failure"), ""));
    text_copy(h->ordered_failure, sizeof(h->ordered_failure),
              json_string_or(json_get(v, "orderedFailure"), ""));
    text_copy(h->origin, sizeof(h->origin), json_string_or(json_get(v, "origin"), ""));
    (void) JSON_READ_FIELDS(v, numbers, h);
    read_problems(json_get(v, "problems"), h);
    it = json_iter(json_get(v, "left"));
    while (h->nleft < HEALTH_FLAPPING_MAX && json_next(&it, NULL, &item) &&
           json_u64(item, &h->left[h->nleft]))
        h->nleft++;
    return 0;
}

static void read_boot(char ret[static 64]) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 16);

    ret[0] = 0;
    if (file_read(BOOT_ID, 63, &text, NULL) == 0)
        text_copy(ret, 64, buf_str(&text));
    ret[strcspn(ret, "\n")] = 0;
}

static void put_order(struct json_writer *w, const char *name, const struct health_order_text *o) {
    if (o->known)
        json_put_string(w, name, o->text);
}

static void read_order(struct json v, struct health_order_text *ret) {
    text_copy(ret->text, sizeof(ret->text), json_string_or(v, ""));
    ret->known = json_string(v);
}

void health_cards_encode(const struct health_cards *c, struct buf *out) {
    struct json_writer w = {.out = out};
    char boot[64];

    read_boot(boot);
    json_object_begin(&w, NULL);
    json_put_string(&w, "boot", boot);
    json_put_u64(&w, "logSequence", c->log_sequence);
    json_array_begin(&w, "devices");
    for (uint32_t i = 0; i < c->ncards; i++) {
        step_end();
        json_object_begin(&w, NULL);
        json_put_string(&w, "uuid", c->cards[i].uuid);
        json_put_string(&w, "parent", c->cards[i].parent);
        json_put_string(&w, "pci", c->cards[i].pci);
        json_put_u64(&w, "index", c->cards[i].index);
        json_put_i64(&w, "sinceTime", c->cards[i].since);
        json_put_bool(&w, "repairPending", c->cards[i].repair_pending);
        json_put_bool(&w, "banksExhausted", c->cards[i].banks_exhausted);
        json_put_bool(&w, "sramExceeded", c->cards[i].sram_exceeded);
        json_put_bool(&w, "unlicensed", c->cards[i].unlicensed);
        put_order(&w, "order", &c->cards[i].set_healthy);
        put_order(&w, "resetOrder", &c->cards[i].reset);
        json_put_u64(&w, "persistent", c->cards[i].persistent);
        put_health(&w, &c->cards[i].health);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
}

static int read_card(struct json v, struct health_card *card) {
    uint64_t index = 0, persistent;

    text_copy(card->uuid, sizeof(card->uuid), json_string_or(json_get(v, "uuid"), ""));
    text_copy(card->parent, sizeof(card->parent), json_string_or(json_get(v, "parent"), ""));
    text_copy(card->pci, sizeof(card->pci), json_string_or(json_get(v, "pci"), ""));
    card->kind = card->parent[0] ? GPU_MIG_INSTANCE : GPU_CARD;
    if (json_u64(json_get(v, "index"), &index) && index < GPU_MAX)
        card->index = (uint32_t) index;
    if (!json_i64(json_get(v, "sinceTime"), &card->since))
        card->since = 0;
    (void) json_bool(json_get(v, "repairPending"), &card->repair_pending);
    (void) json_bool(json_get(v, "banksExhausted"), &card->banks_exhausted);
    (void) json_bool(json_get(v, "sramExceeded"), &card->sram_exceeded);
    (void) json_bool(json_get(v, "unlicensed"), &card->unlicensed);
    read_order(json_get(v, "order"), &card->set_healthy);
    read_order(json_get(v, "resetOrder"), &card->reset);
    card->persistent = json_u64(json_get(v, "persistent"), &persistent) && persistent == 1;
    if (!card->uuid[0] || read_health(v, &card->health) < 0)
        return -EINVAL;
    card->shown_xid = card->health.last_xid;
    return 0;
}

int health_cards_decode(const char *text, size_t len, struct health_cards *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root, item;
    struct json_iter it;
    char boot[64];
    int r = json_open(text, len, &parser, &root, err);

    if (r < 0)
        return r;
    read_boot(boot);
    if (!boot[0] || !json_is_string(json_get(root, "boot"), boot))
        return err_set(err, ESTALE, "it is of another boot");
    (void) json_u64(json_get(root, "logSequence"), &ret->log_sequence);
    it = json_iter(json_get(root, "devices"));
    while (ret->ncards < GPU_MAX && json_next(&it, NULL, &item)) {
        struct health_card *card = &ret->cards[ret->ncards];

        *card = (struct health_card){0};
        if (read_card(item, card) < 0) {
            ret->ncards = 0;
            return err_set(err, EINVAL, "a device has no UUID or an unknown state");
        }
        ret->ncards++;
    }
    return 0;
}
