/* SPDX-License-Identifier: Apache-2.0 */
#include "model/xid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *name, *remedy;
    enum xid_action action;
} resolutions[] = {
#define XID_RESOLUTION(id, name, action, remedy)                                                   \
    [XID_RESOLUTION_##id] = {name, remedy, XID_##action},
#include "model/xids.def"
};

static const struct xid xids[] = {
#define XID(code, resolution, text) {code, XID_RESOLUTION_##resolution, text},
#include "model/xids.def"
};

const struct xid *xid_at(size_t i) {
    return i < sizeof(xids) / sizeof(xids[0]) ? &xids[i] : NULL;
}

const struct xid *xid_find(uint32_t code) {
    size_t i = 0;

    while (xid_at(i) && xids[i].code != code)
        i++;
    return xid_at(i);
}

const char *xid_resolution_name(enum xid_resolution resolution) {
    return resolutions[resolution].name;
}

const char *xid_remedy(enum xid_resolution resolution) {
    return resolutions[resolution].remedy;
}

bool xid_reset_helps(uint32_t code) {
    const struct xid *x = xid_find(code);

    /* One that only the configuration takes a card out for has no published cure. */
    return !x || (x->resolution != XID_RESOLUTION_RESTART_BM &&
                  x->resolution != XID_RESOLUTION_RESTART_VM &&
                  x->resolution != XID_RESOLUTION_CHECK_MECHANICALS &&
                  x->resolution != XID_RESOLUTION_CONTACT_SUPPORT);
}

void xid_describe(uint32_t code, char *ret, size_t size) {
    const struct xid *x = xid_find(code);

    if (x)
        (void) snprintf(ret, size, "XID %u (%s): %s", code, x->text, xid_remedy(x->resolution));
    else
        (void) snprintf(ret, size, "XID %u, which is not in the catalogue", code);
}

/* ---- rules ---- */

int xid_set_add(struct xid_set *set, uint64_t code) {
    if (code >= XID_CODES_MAX)
        return -ERANGE;
    set->words[code / 64] |= UINT64_C(1) << code % 64;
    return 0;
}

bool xid_set_has(const struct xid_set *set, uint32_t code) {
    return code < XID_CODES_MAX && (set->words[code / 64] >> code % 64 & 1) != 0;
}

enum xid_action xid_action(const struct xid_rules *rules, uint32_t code) {
    const struct xid *x = xid_find(code);

    if (rules->none)
        return XID_NONE;
    if (rules->all || xid_set_has(&rules->fatal, code))
        return XID_TAKE_OUT;
    if (!x || xid_set_has(&rules->ignored, code))
        return XID_NONE;
    return resolutions[x->resolution].action;
}

void xid_rules_override(struct xid_rules *base, const struct xid_rules *over) {
    base->none = over->none || (base->none && !over->all);
    base->all = over->all || (base->all && !over->none);
    for (size_t i = 0; i < XID_CODES_MAX / 64; i++) {
        base->fatal.words[i] &= ~over->ignored.words[i];
        base->fatal.words[i] |= over->fatal.words[i];
        base->ignored.words[i] &= ~over->fatal.words[i];
        base->ignored.words[i] |= over->ignored.words[i];
    }
}

/* ---- NVIDIA's variables ---- */

struct list {
    bool all;
    struct xid_set set;
};

/* White space as Go's strings.TrimSpace() has it in ASCII. */
static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static char lower(char c) {
    return (char) (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool is_word(const char *at, size_t len, const char *word) {
    if (strlen(word) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (lower(at[i]) != word[i])
            return false;
    return true;
}

/* Decimal digits, at most UINT64_MAX. */
static bool read_number(const char *at, size_t len, uint64_t *ret) {
    uint64_t value = 0;

    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t) (at[i] - '0');

        if (at[i] < '0' || at[i] > '9' || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret = value;
    return len > 0;
}

/* Returns whether the entry is malformed. */
static bool read_entry(const char *at, size_t len, struct list *l) {
    uint64_t code;

    while (len > 0 && is_blank(at[0])) {
        at++;
        len--;
    }
    while (len > 0 && is_blank(at[len - 1]))
        len--;
    if (is_word(at, len, "all") || is_word(at, len, "xids")) {
        l->all = true;
        return false;
    }
    if (len == 0)
        return false;
    if (!read_number(at, len, &code))
        return true;
    l->all = l->all || code == 0;
    (void) xid_set_add(&l->set, code); /* no driver has a higher one */
    return false;
}

static size_t read_list(const char *text, struct list *ret, char ret_bad[static 32]) {
    const char *item;
    size_t len, bad = 0;

    *ret = (struct list){0};
    while (text_item(&text, &item, &len))
        if (read_entry(item, len, ret) && bad++ == 0 && !ret_bad[0])
            (void) snprintf(ret_bad, 32, "%.*s", (int) (len < 31 ? len : 31), item);
    return bad;
}

size_t xid_rules_read(const char *disable, const char *enable, struct xid_rules *ret,
                      char ret_bad[static 32]) {
    struct list off, on;
    size_t bad;

    ret_bad[0] = 0;
    bad = read_list(disable, &off, ret_bad);
    bad += read_list(enable, &on, ret_bad);
    *ret = (struct xid_rules){.none = off.all && !on.all, .all = on.all, .fatal = on.set};
    for (size_t i = 0; i < XID_CODES_MAX / 64; i++)
        ret->ignored.words[i] = off.set.words[i] & ~on.set.words[i];
    return bad;
}
