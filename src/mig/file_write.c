/* SPDX-License-Identifier: Apache-2.0 */

/* The file as mig-parted prints it: keys in order, lists in one line, two blanks a level. */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "mig/file.h"
#include "wire/json_write.h"

typedef int (*order_fn)(const char *, const char *);

/* Digits count as numbers: 1g.5gb before 1g.10gb. */
static int natural(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        if (isdigit((unsigned char) *a) && isdigit((unsigned char) *b)) {
            size_t na = strspn(a, "0123456789"), nb = strspn(b, "0123456789");
            int d = na != nb ? (na < nb ? -1 : 1) : strncmp(a, b, na);

            if (d)
                return d;
            a += na - 1;
            b += nb - 1;
        } else if (*a != *b) {
            /* Letters after all else, as sorters of YAML keys have it. */
            bool la = isalpha((unsigned char) *a), lb = isalpha((unsigned char) *b);

            return la != lb ? (la ? 1 : -1) : *a < *b ? -1 : 1;
        }
    }
    return (*a != 0) - (*b != 0);
}

/* The next configuration in order after `last` (NULL: the first), or NULL. */
static const struct mig_spec *next_config(const struct mig_file *file, const struct mig_spec *last,
                                          order_fn order) {
    const struct mig_spec *best = NULL;

    for (size_t i = 0; i < file->nspecs; i++) {
        const struct mig_spec *s = &file->specs[i];

        if ((!last || order(s->config, last->config) > 0) &&
            (!best || order(s->config, best->config) < 0))
            best = s;
    }
    return best;
}

static const struct mig_devices *next_device(const struct mig_spec *spec,
                                             const struct mig_devices *last, order_fn order) {
    const struct mig_devices *best = NULL;
    char name[MIG_PROFILE_NAME_MAX], least[MIG_PROFILE_NAME_MAX], before[MIG_PROFILE_NAME_MAX];

    for (uint32_t i = 0; i < spec->ndevices; i++) {
        const struct mig_devices *d = &spec->devices[i];

        (void) mig_name_format(&d->name, name);
        if ((!last || order(name, mig_name_format(&last->name, before)) > 0) &&
            (!best || order(name, mig_name_format(&best->name, least)) < 0))
            best = d;
    }
    return best;
}

static bool of_config(const struct mig_file *file, const struct mig_spec *s,
                      const struct mig_spec *first) {
    return s < file->specs + file->nspecs && strcmp(s->config, first->config) == 0;
}

static void print_filter(const struct mig_filter *f, char ret[static 24]) {
    struct buf out = BUF_INIT(24);

    buf_printf(&out, "0x%08X", f->pci.device);
    if (f->has_subsystem)
        buf_printf(&out, ":0x%08X", f->pci.subsystem);
    (void) memcpy(ret, buf_str(&out), out.len + 1);
    buf_done(&out);
}

/* ---- YAML ---- */

static void yaml_spec(const struct mig_spec *spec, struct buf *out) {
    const char *lead = "  - ";
    char filter[24], name[MIG_PROFILE_NAME_MAX];

    if (spec->nfilters > 0) {
        buf_printf(out, "%sdevice-filter: %s", lead, spec->nfilters > 1 ? "[" : "");
        for (uint32_t i = 0; i < spec->nfilters; i++) {
            print_filter(&spec->filters[i], filter);
            buf_printf(out, "%s\"%s\"", i > 0 ? ", " : "", filter);
        }
        buf_printf(out, "%s\n", spec->nfilters > 1 ? "]" : "");
        lead = "    ";
    }
    buf_printf(out, "%sdevices: %s", lead, spec->all ? "all" : "[");
    for (uint32_t i = 0; i < spec->nindexes; i++)
        buf_printf(out, "%s%u", i > 0 ? ", " : "", spec->indexes[i]);
    buf_printf(out, "%s\n    mig-enabled: %s\n    mig-devices:", spec->all ? "" : "]",
               spec->enabled ? "true" : "false");
    buf_puts(out, spec->ndevices == 0 ? " {}\n" : "\n");
    for (const struct mig_devices *d = next_device(spec, NULL, natural); d;
         d = next_device(spec, d, natural))
        buf_printf(out, "      %s: %u\n", mig_name_format(&d->name, name), d->count);
}

/* Quoted where YAML could read it as something else. */
static void yaml_key(const char *name, struct buf *out) {
    struct json_writer w = {.out = out};
    bool plain = isalpha((unsigned char) name[0]);

    for (const char *c = name; *c; c++)
        plain = plain && (isalnum((unsigned char) *c) || strchr("-_.", *c));
    buf_puts(out, "  ");
    if (plain)
        buf_puts(out, name);
    else
        json_put_string(&w, NULL, name);
    buf_puts(out, ":\n");
}

void mig_file_write_yaml(const struct mig_file *file, struct buf *out) {
    buf_puts(out, "version: v1\nmig-configs:\n");
    for (const struct mig_spec *c = next_config(file, NULL, natural); c;
         c = next_config(file, c, natural)) {
        yaml_key(c->config, out);
        for (const struct mig_spec *s = c; of_config(file, s, c); s++)
            yaml_spec(s, out);
    }
}

/* ---- JSON ---- */

static void json_spec(struct json_writer *w, const struct mig_spec *spec) {
    char filter[24], name[MIG_PROFILE_NAME_MAX];

    json_object_begin(w, NULL);
    if (spec->nfilters > 1)
        json_array_begin(w, "device-filter");
    for (uint32_t i = 0; i < spec->nfilters; i++) {
        print_filter(&spec->filters[i], filter);
        json_put_string(w, spec->nfilters > 1 ? NULL : "device-filter", filter);
    }
    if (spec->nfilters > 1)
        json_array_end(w);
    if (spec->all) {
        json_put_string(w, "devices", "all");
    } else {
        json_array_begin(w, "devices");
        for (uint32_t i = 0; i < spec->nindexes; i++)
            json_put_u64(w, NULL, spec->indexes[i]);
        json_array_end(w);
    }
    json_put_bool(w, "mig-enabled", spec->enabled);
    json_object_begin(w, "mig-devices");
    for (const struct mig_devices *d = next_device(spec, NULL, strcmp); d;
         d = next_device(spec, d, strcmp))
        json_put_u64(w, mig_name_format(&d->name, name), d->count);
    json_object_end(w);
    json_object_end(w);
}

void mig_file_write_json(const struct mig_file *file, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_put_string(&w, "version", "v1");
    json_object_begin(&w, "mig-configs");
    for (const struct mig_spec *c = next_config(file, NULL, strcmp); c;
         c = next_config(file, c, strcmp)) {
        json_array_begin(&w, c->config);
        for (const struct mig_spec *s = c; of_config(file, s, c); s++)
            json_spec(&w, s);
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
}
