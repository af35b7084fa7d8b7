/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/order.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* ---- the order ---- */

static int read_name(struct json value, struct mig_name *ret) {
    const char *text = json_string(value);

    return text && mig_name_parse(text, ret, NULL) == 0 && ret->compute == ret->slices ? 0
                                                                                       : -EINVAL;
}

static int read_u32(struct json value, uint64_t below, uint32_t *ret) {
    uint64_t number;

    if (!json_u64(value, &number) || number >= below)
        return -EINVAL;
    *ret = (uint32_t) number;
    return 0;
}

static int read_place(struct json value, struct mig_place *ret) {
    int r = read_name(json_get(value, "profile"), &ret->name);

    return r < 0 ? r : read_u32(json_get(value, "start"), MIG_SLICES_MAX, &ret->start);
}

static int read_ordered(struct json value, struct mig_ordered *ret) {
    const char *owner = json_string_or(json_get(value, "for"), "");

    *ret = (struct mig_ordered){0};
    if (read_place(value, &ret->place) < 0 || strlen(owner) >= sizeof(ret->owner))
        return -EINVAL;
    text_copy(ret->owner, sizeof(ret->owner), owner);
    (void) json_bool(json_get(value, "withdrawn"), &ret->withdrawn);
    return 0;
}

int mig_order_parse(const char *text, size_t len, struct mig_order *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct mig_order order = {0};
    struct json root, item;
    int r = len == 0 ? 0 : json_open(text, len, &parser, &root, err);

    if (r < 0)
        return err_wrap(err, MIG_ORDER_ANNOTATION);
    if (len > 0 && !json_u64(json_get(root, "serial"), &order.serial))
        return err_set(err, EINVAL, MIG_ORDER_ANNOTATION ": no serial");
    if (len > 0)
        (void) json_bool(json_get(root, "mps"), &order.mps);
    struct json_iter it = json_iter(len > 0 ? json_get(root, "instances") : (struct json){0});
    while (json_next(&it, NULL, &item)) {
        struct mig_ordered o;

        if (order.n == MIG_ORDER_MAX || read_ordered(item, &o) < 0 ||
            mig_order_find(&order, &o.place))
            return err_set(err, EINVAL, MIG_ORDER_ANNOTATION ": bad instance %u", order.n);
        order.list[order.n++] = o;
    }
    *ret = order;
    return 0;
}

static void put_place(struct json_writer *w, const struct mig_place *place) {
    char text[MIG_PROFILE_NAME_MAX];

    json_put_string(w, "profile", mig_name_format(&place->name, text));
    json_put_u64(w, "start", place->start);
}

void mig_order_encode(const struct mig_order *order, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_put_u64(&w, "serial", order->serial);
    if (order->mps)
        json_put_bool(&w, "mps", true);
    json_array_begin(&w, "instances");
    for (uint32_t i = 0; i < order->n; i++) {
        const struct mig_ordered *o = &order->list[i];

        json_object_begin(&w, NULL);
        put_place(&w, &o->place);
        if (o->owner[0])
            json_put_string(&w, "for", o->owner);
        if (o->withdrawn)
            json_put_bool(&w, "withdrawn", true);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
}

void mig_order_patch(const char *version, const char *order, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "resourceVersion", version);
    json_object_begin(&w, "annotations");
    json_put_string(&w, MIG_ORDER_ANNOTATION, order);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

static bool is_same(const struct mig_place *a, const struct mig_place *b) {
    return a->start == b->start && mig_name_equal(&a->name, &b->name);
}

const struct mig_ordered *mig_order_get(const struct mig_order *order,
                                        const struct mig_place *place) {
    for (uint32_t i = 0; i < order->n; i++)
        if (is_same(&order->list[i].place, place))
            return &order->list[i];
    return NULL;
}

struct mig_ordered *mig_order_find(struct mig_order *order, const struct mig_place *place) {
    const struct mig_ordered *found = mig_order_get(order, place);

    return found ? &order->list[found - order->list] : NULL;
}

/* ---- carrying it out ---- */

static void add_failure(struct mig_report *report, const struct mig_place *place,
                        const char *cause) {
    struct mig_failure *f = &report->failures[report->nfailures++];

    *f = (struct mig_failure){.place = *place};
    text_copy(f->cause, sizeof(f->cause), cause);
}

bool mig_order_edit(const struct mig_order *order, struct mig_report *report,
                    struct mig_edit *ret) {
    const struct mig_card *card = &report->card;
    struct mig_edit edit = {0};

    report->nfailures = 0;
    for (uint32_t i = 0; i < order->n; i++) {
        const struct mig_ordered *o = &order->list[i];
        const struct mig_instance *gi = mig_edit_find(card, &o->place);

        if (o->withdrawn && gi && !gi->in_use)
            edit.remove[edit.nremove++] = o->place;
    }
    for (uint32_t i = 0; i < order->n; i++) {
        const struct mig_ordered *o = &order->list[i];
        struct mig_want want;
        struct err err;

        if (o->withdrawn || !o->owner[0] || mig_edit_find(card, &o->place))
            continue;
        edit.make[edit.nmake++] = o->place;
        if (mig_want_edit(card, &edit, &want, &err) >= 0)
            continue;
        edit.nmake--;
        add_failure(report, &o->place, err.text);
    }
    *ret = edit;
    return edit.nmake > 0 || edit.nremove > 0;
}

/* ---- the report ---- */

static int read_profile(struct json value, struct mig_card_profile *ret) {
    struct json_iter starts = json_iter(json_get(value, "starts"));
    struct json_iter engines = json_iter(json_get(value, "engines"));
    struct json item;
    uint32_t start;

    *ret = (struct mig_card_profile){0};
    if (read_name(json_get(value, "profile"), &ret->name) < 0 ||
        read_u32(json_get(value, "size"), MIG_SLICES_MAX + 1, &ret->size) < 0 || ret->size == 0 ||
        read_u32(json_get(value, "most"), 1024, &ret->most) < 0)
        return -EINVAL;
    while (json_next(&starts, NULL, &item)) {
        if (read_u32(item, MIG_SLICES_MAX - ret->size + 1, &start) < 0)
            return -EINVAL;
        ret->starts |= 1u << start;
    }
    for (uint32_t e = 0; e < MIG_ENGINES && json_next(&engines, NULL, &item); e++)
        if (read_u32(item, 1024, &ret->engines[e]) < 0)
            return -EINVAL;
    return 0;
}

static int read_compute(struct json list, uint32_t slices, struct mig_instance *gi) {
    struct json_iter it = json_iter(list);
    struct json item;

    while (json_next(&it, NULL, &item)) {
        struct mig_compute *c = &gi->compute[gi->ncompute];

        if (gi->ncompute == MIG_COMPUTE_MAX || read_u32(item, slices + 1, &c->slices) < 0)
            return -EINVAL;
        gi->ncompute++;
    }
    return 0;
}

static int read_instance(struct json value, const struct mig_card *card, struct mig_instance *ret) {
    const struct mig_card_profile *p;
    struct mig_place place;

    *ret = (struct mig_instance){0};
    if (read_place(value, &place) < 0 || !(p = mig_card_find(card, &place.name)) ||
        !mig_card_may_start(p, place.start) ||
        read_compute(json_get(value, "compute"), MIG_COMPUTE_MAX, ret) < 0)
        return -EINVAL;
    ret->start = place.start;
    ret->profile = (uint32_t) (p - card->profiles);
    (void) json_bool(json_get(value, "inUse"), &ret->in_use);
    return 0;
}

static int read_failure(struct json value, struct mig_failure *ret) {
    *ret = (struct mig_failure){0};
    text_copy(ret->cause, sizeof(ret->cause), json_string_or(json_get(value, "cause"), ""));
    return read_place(value, &ret->place);
}

static int read_card(struct json mig, struct mig_card *card) {
    struct json_iter it = json_iter(json_get(mig, "profiles"));
    struct json item;

    while (json_next(&it, NULL, &item))
        if (card->nprofiles == MIG_CARD_PROFILES_MAX ||
            read_profile(item, &card->profiles[card->nprofiles++]) < 0)
            return -EINVAL;
    it = json_iter(json_get(mig, "instances"));
    while (json_next(&it, NULL, &item))
        if (card->ninstances == MIG_CARD_INSTANCES_MAX ||
            read_instance(item, card, &card->instances[card->ninstances++]) < 0)
            return -EINVAL;
    return 0;
}

int mig_report_parse(struct json mig, struct mig_report *ret, struct err *err) {
    struct mig_report report = {.card = {.capable = true, .enabled = true}};
    struct json_iter it = json_iter(json_get(mig, "failed"));
    struct json item;

    if (json_type(mig) != JSON_OBJECT)
        return err_set(err, EINVAL, "status.mig is no object");
    (void) json_u64(json_get(mig, "observed"), &report.observed);
    (void) json_bool(json_get(mig, "shares"), &report.shares);
    if (read_card(mig, &report.card) < 0)
        return err_set(err, EINVAL, "status.mig has a bad profile or instance");
    while (report.nfailures < MIG_ORDER_MAX && json_next(&it, NULL, &item))
        if (read_failure(item, &report.failures[report.nfailures++]) < 0)
            return err_set(err, EINVAL, "status.mig has a bad failure");
    *ret = report;
    return 0;
}

static void put_profile(struct json_writer *w, const struct mig_card_profile *p) {
    char name[MIG_PROFILE_NAME_MAX];

    json_object_begin(w, NULL);
    json_put_string(w, "profile", mig_name_format(&p->name, name));
    json_put_u64(w, "size", p->size);
    json_put_u64(w, "most", p->most);
    json_array_begin(w, "starts");
    for (uint32_t s = 0; s < MIG_SLICES_MAX; s++)
        if (p->starts >> s & 1)
            json_put_u64(w, NULL, s);
    json_array_end(w);
    json_array_begin(w, "engines");
    for (uint32_t e = 0; e < MIG_ENGINES; e++)
        json_put_u64(w, NULL, p->engines[e]);
    json_array_end(w);
    json_object_end(w);
}

static void put_instance(struct json_writer *w, const struct mig_card *card,
                         const struct mig_instance *gi) {
    const struct mig_place place = {card->profiles[gi->profile].name, gi->start};

    json_object_begin(w, NULL);
    put_place(w, &place);
    json_array_begin(w, "compute");
    for (uint32_t k = 0; k < gi->ncompute; k++)
        json_put_u64(w, NULL, gi->compute[k].slices);
    json_array_end(w);
    json_put_bool(w, "inUse", gi->in_use);
    json_object_end(w);
}

void mig_report_encode(const struct mig_report *report, struct json_writer *w, const char *key) {
    json_object_begin(w, key);
    json_put_bool(w, "dynamic", true);
    json_put_bool(w, "shares", report->shares);
    json_put_u64(w, "observed", report->observed);
    json_array_begin(w, "profiles");
    for (uint32_t i = 0; i < report->card.nprofiles; i++)
        put_profile(w, &report->card.profiles[i]);
    json_array_end(w);
    json_array_begin(w, "instances");
    for (uint32_t i = 0; i < report->card.ninstances; i++)
        put_instance(w, &report->card, &report->card.instances[i]);
    json_array_end(w);
    json_array_begin(w, "failed");
    for (uint32_t i = 0; i < report->nfailures; i++) {
        json_object_begin(w, NULL);
        put_place(w, &report->failures[i].place);
        json_put_string(w, "cause", report->failures[i].cause);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}
