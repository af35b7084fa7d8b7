/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "wire/yaml.h"

#define COUNT_MAX 64 /* of one MIG device on a card */
#define INDEX_MAX 1023

/* ---- values of a spec ---- */

/* "0x20B010DE", `len` bytes. */
static int parse_id(const char *text, size_t len, uint32_t *ret) {
    uint32_t value = 0;

    if (len < 3 || len > 10 || text[0] != '0' || (text[1] | 32) != 'x')
        return -EINVAL;
    for (size_t i = 2; i < len; i++) {
        char c = (char) (text[i] | 32);

        if (!isxdigit((unsigned char) text[i]))
            return -EINVAL;
        value = value << 4 | (uint32_t) (c >= 'a' ? c - 'a' + 10 : text[i] - '0');
    }
    *ret = value;
    return 0;
}

static int read_filter(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_spec *spec = target;
    struct mig_filter *filter = &spec->filters[spec->nfilters];
    const char *colon;

    (void) arg;
    if (v->type != YAML_STRING)
        return yaml_error(v, err, "expected a PCI id in quotes, such as \"0x20B010DE\"");
    if (spec->nfilters == MIG_FILTERS_MAX)
        return yaml_error(v, err, "more than %d filters", MIG_FILTERS_MAX);
    colon = strchr(v->text, ':');
    *filter = (struct mig_filter){.has_subsystem = colon != NULL};
    if (parse_id(v->text, colon ? (size_t) (colon - v->text) : strlen(v->text),
                 &filter->pci.device) < 0 ||
        (colon && parse_id(colon + 1, strlen(colon + 1), &filter->pci.subsystem) < 0))
        return yaml_error(v, err, "'%s' is no PCI id such as 0x20B010DE", v->text);
    spec->nfilters++;
    return 0;
}

/* One filter or a list of them; "" is none. */
static int read_filters(const struct yaml *v, void *target, const void *arg, struct err *err) {
    if (v->type == YAML_LIST)
        return yaml_read_each(v, read_filter, target, arg, err);
    if (v->type == YAML_STRING && !v->text[0])
        return 0;
    return read_filter(v, target, arg, err);
}

static int read_index(const struct yaml *v, void *target, const void *arg, struct err *err) {
    static const struct yaml_range range = {0, INDEX_MAX};
    struct mig_spec *spec = target;
    int r;

    (void) arg;
    if (v->type != YAML_NUMBER)
        return yaml_error(v, err, "expected the index of a card");
    if (spec->nindexes == MIG_INDEXES_MAX)
        return yaml_error(v, err, "more than %d indexes", MIG_INDEXES_MAX);
    r = yaml_u32(v, &spec->indexes[spec->nindexes], &range, err);
    if (r >= 0)
        spec->nindexes++;
    return r;
}

static int read_indexes(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_spec *spec = target;

    if (v->type == YAML_LIST)
        return yaml_read_each(v, read_index, target, arg, err);
    if (v->type != YAML_STRING || strcmp(v->text, "all") != 0)
        return yaml_error(v, err, "expected all, or a list of indexes such as [0, 1]");
    spec->all = true;
    return 0;
}

/* 3g.20gb and 3c.3g.20gb are two names of the same devices. */
static void merge_last(struct mig_spec *spec) {
    const struct mig_devices *last = &spec->devices[spec->ndevices - 1];

    for (uint32_t i = 0; i + 1 < spec->ndevices; i++)
        if (mig_name_equal(&spec->devices[i].name, &last->name)) {
            spec->devices[i].count += last->count;
            spec->ndevices--;
            return;
        }
}

static int read_device(const struct yaml *v, struct mig_spec *spec, struct err *err) {
    static const struct yaml_range range = {0, COUNT_MAX};
    struct mig_devices *d = &spec->devices[spec->ndevices];
    struct err cause;
    int r;

    if (spec->ndevices == MIG_DEVICES_MAX)
        return yaml_error(v, err, "more than %d kinds of MIG devices", MIG_DEVICES_MAX);
    if (v->type != YAML_NUMBER)
        return yaml_error(v, err, "expected a number of devices");
    if (mig_name_parse(v->key->text, &d->name, &cause) < 0)
        return yaml_error(v->key, err, "%s", cause.text);
    r = yaml_u32(v, &d->count, &range, err);
    if (r < 0)
        return r;
    spec->ndevices++;
    merge_last(spec);
    return 0;
}

static int read_devices(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_spec *spec = target;
    uint32_t sum = 0;

    (void) arg;
    if (v->type != YAML_MAP)
        return yaml_error(v, err, "expected a map of MIG devices and their numbers");
    for (const struct yaml *d = v->first; d; d = d->next) {
        int r = read_device(d, spec, err);

        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < spec->ndevices; i++)
        sum += spec->devices[i].count;
    if (v->first && sum == 0)
        return yaml_error(v, err, "all counts are 0; {} is no MIG device at all");
    return 0;
}

static int read_enabled(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_bool(v, &((struct mig_spec *) target)->enabled, arg, err);
}

static const struct yaml_field spec_fields[] = {
    {.key = "device-filter", .read = read_filters},
    {.key = "devices", .read = read_indexes, .required = true},
    {.key = "mig-enabled", .read = read_enabled, .required = true},
    {.key = "mig-devices", .read = read_devices},
    YAML_FIELD_END,
};

/* ---- the file ---- */

int mig_file_add(struct mig_file *file, const struct mig_spec *spec, struct err *err) {
    if (file->nspecs == MIG_FILE_SPECS_MAX)
        return err_set(err, EFBIG, "more than %d entries", MIG_FILE_SPECS_MAX);
    if (array_reserve(&file->specs, &file->room, file->nspecs + 1, sizeof(*spec)) < 0)
        return err_errno(err, ENOMEM, "cannot keep the configurations");
    file->specs[file->nspecs++] = *spec;
    return 0;
}

static int read_spec(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_spec spec = {0};
    const struct yaml *devices = yaml_get(v, "mig-devices");
    int r = yaml_read(v, spec_fields, &spec, err);

    if (r < 0)
        return r;
    if (spec.enabled && (!devices || devices->type == YAML_NULL))
        return yaml_error(v, err, "mig-devices is required where mig-enabled is true");
    if (!spec.enabled && spec.ndevices > 0)
        return yaml_error(v, err, "mig-devices are given where mig-enabled is false");
    text_copy(spec.config, sizeof(spec.config), arg);
    return mig_file_add(target, &spec, err);
}

static int read_configs(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    if (v->type != YAML_MAP || !v->first)
        return yaml_error(v, err, "at least one configuration is required");
    for (const struct yaml *c = v->first; c; c = c->next) {
        int r;

        if (strlen(c->key->text) >= MIG_CONFIG_NAME_MAX)
            return yaml_error(c->key, err, "the name is too long");
        if (c->type != YAML_LIST || !c->first)
            return yaml_error(c, err, "at least one entry is required");
        r = yaml_read_each(c, read_spec, target, c->key->text, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_version(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) target;
    (void) arg;
    if (v->type != YAML_STRING || strcmp(v->text, "v1") != 0)
        return yaml_error(v, err, "unknown version; this is a file of version v1");
    return 0;
}

static const struct yaml_field file_fields[] = {
    {.key = "version", .read = read_version, .required = true},
    {.key = "mig-configs", .read = read_configs, .required = true},
    YAML_FIELD_END,
};

int mig_file_parse(const char *text, size_t len, struct mig_file *ret, struct err *err) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    _cleanup_mig_file_ struct mig_file file = {0};
    int r = yaml_read_text(text, len, "version and mig-configs", file_fields, &file, &doc, err);

    if (r < 0)
        return r;
    *ret = take_struct(file);
    return 0;
}

void mig_file_done(struct mig_file *file) {
    free(file->specs);
    *file = (struct mig_file){0};
}

/* ---- choice ---- */

static void append(char *text, size_t size, const char *word) {
    size_t n = strlen(text);

    (void) snprintf(text + n, size - n, "%s%s", n ? ", " : "", word);
}

const struct mig_spec *mig_file_select(const struct mig_file *file, const char *name,
                                       struct err *err) {
    char names[256] = "";
    size_t n = 0;

    for (size_t i = 0; i < file->nspecs; i++) {
        const char *config = file->specs[i].config;

        if (i > 0 && strcmp(config, file->specs[i - 1].config) == 0)
            continue;
        if (name[0] && strcmp(config, name) == 0)
            return &file->specs[i];
        append(names, sizeof(names), config);
        n++;
    }
    if (!name[0] && n == 1)
        return file->specs;
    if (name[0])
        (void) err_set(err, ENOENT, "no configuration '%s'; there are: %s", name, names);
    else
        (void) err_set(err, EINVAL, "one of several configurations must be selected: %s", names);
    return NULL;
}

static bool is_for(const struct mig_spec *spec, uint32_t index, struct mig_pci pci) {
    bool matches = spec->nfilters == 0;

    for (uint32_t i = 0; i < spec->nfilters; i++)
        matches =
            matches ||
            (spec->filters[i].pci.device == pci.device &&
             (!spec->filters[i].has_subsystem || spec->filters[i].pci.subsystem == pci.subsystem));
    if (!matches || spec->all)
        return matches;
    for (uint32_t i = 0; i < spec->nindexes; i++)
        if (spec->indexes[i] == index)
            return true;
    return false;
}

const struct mig_spec *mig_file_match(const struct mig_file *file, const struct mig_spec *first,
                                      uint32_t index, struct mig_pci pci) {
    const struct mig_spec *found = NULL;

    for (const struct mig_spec *s = first;
         s < file->specs + file->nspecs && strcmp(s->config, first->config) == 0; s++)
        if (is_for(s, index, pci))
            found = s;
    return found;
}
