/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mig/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/map_watch.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "mig/file.h"
#include "wire/yaml.h"

#define MAP_NAMESPACE_MAX 63
#define MAP_NAME_MAX 253
#define FILE_SIZE_MAX (YAML_SIZE_MAX + 2048) /* with its head */

struct mig_source {
    struct mig_source_options options;
    struct map_watch *maps[MIG_SOURCE_MAPS_MAX];
    size_t n;
    bool has_file;
    bool decided;        /* the ConfigMaps were read: which one applies, or that none does */
    uint64_t refused_ms; /* loop time since which the one to be known is refused; 0: it is not */
    char trouble[ERR_TEXT_MAX];
};

/* ---- the list ---- */

struct map_name {
    char namespace[MAP_NAMESPACE_MAX + 1], name[MAP_NAME_MAX + 1];
};

static bool is_name(const char *text, size_t len, size_t max) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";

    for (size_t i = 0; i < len; i++)
        if (!strchr(letters, text[i]))
            return false;
    return len > 0 && len <= max;
}

static int read_name(const char *item, size_t len, const char *namespace, struct map_name *ret,
                     struct err *err) {
    const char *slash = memchr(item, '/', len), *name = slash ? slash + 1 : item;
    size_t before = slash ? (size_t) (slash - item) : 0, rest = len - (size_t) (name - item);

    if (!is_name(name, rest, MAP_NAME_MAX) || (slash && !is_name(item, before, MAP_NAMESPACE_MAX)))
        return err_set(err, EINVAL,
                       "--mig-config-map is a list of ConfigMaps, NAME or NAMESPACE/NAME, with "
                       "commas between, not '%.*s'",
                       len < 80 ? (int) len : 80, item);
    text_copy(ret->namespace, sizeof(ret->namespace), namespace);
    if (slash)
        (void) snprintf(ret->namespace, sizeof(ret->namespace), "%.*s", (int) before, item);
    (void) snprintf(ret->name, sizeof(ret->name), "%.*s", (int) rest, name);
    return 0;
}

/* Returns how many there are. */
static int read_names(const char *maps, const char *namespace,
                      struct map_name ret[static MIG_SOURCE_MAPS_MAX], struct err *err) {
    const char *item;
    size_t len;
    int n = 0;

    while (text_item(&maps, &item, &len)) {
        int r = n < MIG_SOURCE_MAPS_MAX
                    ? read_name(item, len, namespace, &ret[n], err)
                    : err_set(err, EINVAL, "--mig-config-map: more than %d ConfigMaps",
                              MIG_SOURCE_MAPS_MAX);

        if (r < 0)
            return r;
        n++;
    }
    return n > 0 ? n : err_set(err, EINVAL, "--mig-config-map names no ConfigMap");
}

int mig_source_check(const char *maps, struct err *err) {
    struct map_name names[MIG_SOURCE_MAPS_MAX];
    int r = read_names(maps, "", names, err);

    return r < 0 ? r : 0;
}

/* ---- the text ---- */

/* The file begins with the list for which it was read: another list can have another text. */
static void put_head(const struct mig_source_options *o, struct buf *ret) {
    buf_printf(ret, "# --mig-config-map=%s, of namespace %s\n", o->maps, o->namespace);
}

static bool is_of_list(const struct mig_source_options *o) {
    _cleanup_buf_ struct buf head = BUF_INIT(0), text = BUF_INIT(0);

    put_head(o, &head);
    return buf_error(&head) == 0 && file_read(o->file, FILE_SIZE_MAX, &text, NULL) >= 0 &&
           strncmp(buf_str(&text), buf_str(&head), head.len) == 0;
}

static bool is_in_file(const struct mig_source *s, const struct buf *text) {
    _cleanup_buf_ struct buf old = BUF_INIT(0);

    return s->has_file && file_read(s->options.file, FILE_SIZE_MAX, &old, NULL) >= 0 &&
           strcmp(buf_str(&old), buf_str(text)) == 0;
}

static int write_file(const struct mig_source *s, const char *text, struct err *err) {
    _cleanup_buf_ struct buf all = BUF_INIT(0);
    int r;

    put_head(&s->options, &all);
    buf_puts(&all, text);
    if (buf_error(&all) < 0)
        return err_set(err, ENOMEM, "out of memory");
    if (is_in_file(s, &all))
        return 0;
    r = file_replace(s->options.file, buf_str(&all), all.len, 0644, err);
    return r < 0 ? r : 1;
}

static int check_text(const char *text, struct err *err) {
    _cleanup_mig_file_ struct mig_file file = {0};

    return mig_file_parse(text, strlen(text), &file, err);
}

static void list_names(const struct map_entries *e, struct buf *ret) {
    for (size_t i = 0; i < e->n; i++)
        buf_printf(ret, "%s%s", i > 0 ? ", " : "", e->names[i]);
    if (e->n == 0)
        buf_puts(ret, "nothing");
}

/* Returns whether the file is another one. */
static int take(struct mig_source *s, const struct map_watch *map, struct err *err) {
    const struct map_entries *e = map_watch_entries(map);
    const char *text = map_entries_text(e, MIG_SOURCE_KEY);
    _cleanup_buf_ struct buf names = BUF_INIT(256);
    int r;

    if (!text) {
        list_names(e, &names);
        return err_set(err, ENOENT, "ConfigMap %s has no entry " MIG_SOURCE_KEY "; it has: %s",
                       map_watch_name(map), buf_error(&names) < 0 ? "others" : buf_str(&names));
    }
    r = check_text(text, err);
    if (r < 0)
        return err_wrap(err, "ConfigMap %s, entry " MIG_SOURCE_KEY, map_watch_name(map));
    return write_file(s, text, err);
}

/* ---- the choice ---- */

static void tell(struct mig_source *s, const char *why) {
    if (strcmp(s->trouble, why) == 0)
        return;
    text_copy(s->trouble, sizeof(s->trouble), why);
    s->options.on_trouble(s->trouble, s->options.userdata);
}

static int missing(const struct mig_source *s, struct err *err) {
    int r = err_set(err, ENOENT, "there is no ConfigMap %s", map_watch_name(s->maps[0]));

    for (size_t i = 1; i < s->n; i++) {
        struct err sofar = *err;

        r = err_set(err, ENOENT, "%s, nor %s", sofar.text, map_watch_name(s->maps[i]));
    }
    return r;
}

/* The number of the first one that exists, or is not known yet and can be the one. */
static size_t first(const struct mig_source *s) {
    size_t i = 0;

    while (i < s->n && map_watch_is_known(s->maps[i]) && !map_watch_entries(s->maps[i]))
        i++;
    return i;
}

static void choose(void *userdata) {
    struct mig_source *s = userdata;
    struct err err;
    size_t i = first(s);
    int r;

    if (i < s->n && !map_watch_is_known(s->maps[i])) {
        if (map_watch_trouble(s->maps[i])[0] && !s->decided)
            tell(s, map_watch_trouble(s->maps[i]));
        return;
    }
    s->decided = true;
    r = i < s->n ? take(s, s->maps[i], &err) : missing(s, &err);
    if (r < 0) {
        tell(s, err.text);
        return;
    }
    s->has_file = true;
    tell(s, "");
    if (r > 0) {
        log_info("the MIG configurations are those of ConfigMap %s", map_watch_name(s->maps[i]));
        s->options.on_file(s->options.userdata);
    }
}

/* ---- life ---- */

int mig_source_start(struct kube_client *client, const struct mig_source_options *options,
                     struct mig_source **ret, struct err *err) {
    struct map_name names[MIG_SOURCE_MAPS_MAX];
    int n = read_names(options->maps, options->namespace, names, err);
    struct mig_source *s;

    if (n < 0)
        return n;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "out of memory");
    s->options = *options;
    s->has_file = is_of_list(options);
    for (int i = 0; i < n; i++) {
        int r =
            map_watch_start(client, names[i].namespace, names[i].name, choose, s, &s->maps[i], err);

        if (r < 0) {
            mig_source_stop(s);
            return r;
        }
        s->n++;
    }
    *ret = s;
    return 0;
}

void mig_source_pass(struct mig_source *s, uint64_t now_ms) {
    size_t i = first(s);
    struct err err;

    if (mig_source_is_known(s) || i == s->n || !map_watch_is_refused(s->maps[i])) {
        s->refused_ms = 0;
        return;
    }
    if (s->refused_ms == 0)
        s->refused_ms = now_ms;
    if (now_ms - s->refused_ms < MIG_SOURCE_REFUSED_MS)
        return;
    s->decided = true;
    (void) err_set(&err, EACCES,
                   "the agent has no right to list and watch ConfigMap %s, and the cards take pods "
                   "as they are (%s)",
                   map_watch_name(s->maps[i]), map_watch_trouble(s->maps[i]));
    tell(s, err.text);
}

bool mig_source_is_known(const struct mig_source *s) {
    return s->has_file || s->decided;
}

const char *mig_source_missing(const struct mig_source *s) {
    return s->has_file ? NULL : s->trouble;
}

void mig_source_stop(struct mig_source *s) {
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        map_watch_stop(s->maps[i]);
    free(s);
}
