/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/config/config_choice.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"

#define SHOWN_MAX 256 /* bytes of the names in a message */
#define NONE (-2)

static int find(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int) i;
    return NONE;
}

static bool is_word(const char *at, size_t len, const char *word) {
    return strlen(word) == len && strncmp(at, word, len) == 0;
}

/* NONE: it is not possible with these names. */
static int fallback(const char *at, size_t len, const char *const *names, size_t n) {
    if (is_word(at, len, "named"))
        return find("default", names, n);
    if (is_word(at, len, "single"))
        return n == 1 ? 0 : NONE;
    return is_word(at, len, "empty") ? CONFIG_CHOICE_EMPTY : NONE;
}

static int no_entry(const char *what, const char *name, const char *const *names, size_t n,
                    struct err *err) {
    _cleanup_buf_ struct buf list = BUF_INIT(SHOWN_MAX);

    for (size_t i = 0; i < n; i++)
        buf_printf(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
    return err_set(err, ENOENT, "%s%.64s%s; the ConfigMap has: %s", what, name, name[0] ? "'" : "",
                   n > 0 ? buf_str(&list) : "nothing");
}

int config_choose(const struct config_choice *c, const char *label, const char *const *names,
                  size_t n, int *ret, struct err *err) {
    const char *name = label[0] ? label : c->default_name;
    const char *list = c->fallbacks, *item;
    size_t len;

    if (name) {
        int i = find(name, names, n);

        if (i == NONE)
            return no_entry(label[0] ? "the node's label names the entry '"
                                     : "the default is the entry '",
                            name, names, n, err);
        *ret = i;
        return 0;
    }
    while (text_item(&list, &item, &len)) {
        int i = fallback(item, len, names, n);

        if (i == NONE)
            continue;
        *ret = i;
        return 0;
    }
    return no_entry("the node has no label, and no default or fallback applies", "", names, n, err);
}

int config_choice_check(const struct config_choice *c, struct err *err) {
    const char *list = c->fallbacks, *item;
    size_t len;

    while (text_item(&list, &item, &len))
        if (!is_word(item, len, "named") && !is_word(item, len, "single") &&
            !is_word(item, len, "empty"))
            return err_set(
                err, EINVAL,
                "--fallback-strategies ($FALLBACK_STRATEGIES) is a list of named, single "
                "and empty with commas between, not '%.64s'",
                c->fallbacks);
    return 0;
}
