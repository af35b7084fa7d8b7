/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cards divided on demand, between the scheduler that chooses and the agent that divides. The order
 * of a card is an annotation of the card's GPU object and its only record. That of a card in MIG
 * mode lists instances at exact places; the report, status.mig of that object, says what the card
 * can have, what it has, and how far the order is carried out. That of another card says whether it
 * is to be under MPS; spec.underMPS says whether it is. Pure. */

#include "base/buf.h"
#include "mig/edit.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define MIG_ORDER_ANNOTATION "elasticgpu.io/mig-order"
#define MIG_ORDER_MAX MIG_EDIT_MAX
#define MIG_ORDER_TEXT_MAX 4096 /* bytes of an order as JSON */
#define MIG_OWNER_MAX 64
#define MIG_CAUSE_MAX 200

struct mig_ordered {
    struct mig_place place;
    char owner[MIG_OWNER_MAX]; /* UID of the pod that it is made for; "": that needs it no more */
    bool withdrawn;            /* to be destroyed as soon as it is idle */
};

struct mig_order {
    uint64_t serial; /* grows with each change */
    bool mps;        /* the card is to be under MPS; without meaning in MIG mode */
    uint32_t n;
    struct mig_ordered list[MIG_ORDER_MAX];
};

/* An instance of the order that could not be made. */
struct mig_failure {
    struct mig_place place;
    char cause[MIG_CAUSE_MAX];
};

struct mig_report {
    uint64_t observed; /* serial of the order that is carried out, as far as it can be */
    bool shares;       /* aliquot-scheduler gives the instances out, not kubelet */
    struct mig_card card;
    uint32_t nfailures;
    struct mig_failure failures[MIG_ORDER_MAX];
};

/* Reads an order; "" is one without instances. -EBADMSG: it is no JSON; -EINVAL: it is no order. */
int mig_order_parse(const char *text, size_t len, struct mig_order *ret, struct err *err);
void mig_order_encode(const struct mig_order *order, struct buf *out);

/* A merge patch that writes `order` on a GPU object, on condition of its version. */
void mig_order_patch(const char *version, const char *order, struct buf *out);

/* The instance of the order at that place, or NULL. */
struct mig_ordered *mig_order_find(struct mig_order *order, const struct mig_place *place);
const struct mig_ordered *mig_order_get(const struct mig_order *order,
                                        const struct mig_place *place);

/* What carries the order out on the card of the report: instances that are withdrawn and idle go,
 * those that are missing are made for their owners. What the card has no room for is not in the
 * edit but in the failures of the report. Returns whether the card is to be changed. */
bool mig_order_edit(const struct mig_order *order, struct mig_report *report, struct mig_edit *ret);

/* -EINVAL: it is no report. */
int mig_report_parse(struct json mig, struct mig_report *ret, struct err *err);
void mig_report_encode(const struct mig_report *report, struct json_writer *w, const char *key);
