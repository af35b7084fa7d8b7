/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XIDs: the errors of a GPU that its driver numbers. What each means is in src/model/xids.def; what
 * is done about one is decided by rules, which a node's configuration can change. No I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XID_CODES_MAX 1024 /* the driver has less than 200 */

enum xid_action {
    XID_NONE,     /* nothing: the card works on */
    XID_EVALUATE, /* the driver's figures after it decide */
    XID_TAKE_OUT, /* the card takes no new work until it has recovered */
};

enum xid_resolution {
#define XID_RESOLUTION(id, name, action, remedy) XID_RESOLUTION_##id,
#include "model/xids.def"
    XID_RESOLUTIONS,
};

struct xid {
    uint32_t code;
    enum xid_resolution resolution;
    const char *text; /* what happened, for a person */
};

/* NULL: not in the catalogue. */
const struct xid *xid_find(uint32_t code);

/* The row at that place, in the order of the codes; NULL after the last one. */
const struct xid *xid_at(size_t i);

/* The resolution as NVIDIA's catalogue names it, and what a person reads. */
const char *xid_resolution_name(enum xid_resolution resolution);
const char *xid_remedy(enum xid_resolution resolution);

/* Whether a reset of the card resolves it, and not only one of the node or a repair. */
bool xid_reset_helps(uint32_t code);

/* "XID 48 (double-bit ECC error): the card needs a reset", cut to `size` bytes. */
void xid_describe(uint32_t code, char *ret, size_t size);

struct xid_set {
    uint64_t words[XID_CODES_MAX / 64];
};

/* -ERANGE: XID_CODES_MAX or more, which is in no set. */
int xid_set_add(struct xid_set *set, uint64_t code);
bool xid_set_has(const struct xid_set *set, uint32_t code);

/* What departs from the catalogue. All zero: nothing does. In the order of precedence. */
struct xid_rules {
    bool none;            /* no XID has an effect */
    bool all;             /* each takes the card out */
    struct xid_set fatal; /* these take the card out */
    struct xid_set ignored;
};

enum xid_action xid_action(const struct xid_rules *rules, uint32_t code);

/* NVIDIA's variables, read as its device plugin reads them: lower case, commas, white space around
 * a number. `all`, `xids` or 0 among the numbers stand for all XIDs, and the numbers beside them
 * count for nothing. All in `disable` is no XID, whatever numbers are in `enable`; all in `enable`
 * wins. A number in `enable` wins over the same one in `disable`. NVIDIA's plugin takes a card out
 * for each XID but six. Here the catalogue decides what neither variable names.
 *
 * NULL is an unset variable. What is no number is left out; its count is returned, and the first
 * one is in `ret_bad`, cut ("" if there is none). */
size_t xid_rules_read(const char *disable, const char *enable, struct xid_rules *ret,
                      char ret_bad[static 32]);

/* The rules of `base` (a file) with those of `over` (the environment) above them. */
void xid_rules_override(struct xid_rules *base, const struct xid_rules *over);
