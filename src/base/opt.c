/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/num.h"
#include "base/opt_help.h"
#include "base/text.h"

#define OPT_MAX 62       /* rows in a table, --help not counted */
#define HELP_CODE 0x1000 /* of getopt: letters are below */
#define LONG_CODE 0x1001 /* of the first row */
#define WORDS_MAX 62

static size_t fill_getopt(const struct opt *options, struct option *longs, char *shorts) {
    size_t n = 0;
    *shorts++ = '+'; /* stop at the first non-option */
    *shorts++ = ':'; /* distinguishes a missing argument from an unknown option */
    for (; n < OPT_MAX && options[n].name; n++) {
        int has_arg = options[n].arg ? required_argument : no_argument;
        longs[n] = (struct option){options[n].name, has_arg, NULL, LONG_CODE + (int) n};
        if (options[n].letter) {
            *shorts++ = options[n].letter;
            if (options[n].arg)
                *shorts++ = ':';
        }
    }
    longs[n] = (struct option){"help", optional_argument, NULL, HELP_CODE};
    *shorts++ = 'h';
    *shorts = '\0';
    return n;
}

static const struct opt *find_option(const struct opt *options, size_t n, int code) {
    if (code >= LONG_CODE && (size_t) code < LONG_CODE + n)
        return &options[code - LONG_CODE];
    for (size_t i = 0; i < n; i++)
        if (options[i].letter == code)
            return &options[i];
    return NULL;
}

/* ---- what was meant ---- */

static const char *say_meant(const char *word, const char *dashes, const char *const *names,
                             char ret[static OPT_MEANT_SIZE]) {
    const char *meant = text_nearest(word, names);

    if (meant)
        (void) snprintf(ret, OPT_MEANT_SIZE, "did you mean '%s%.64s'?", dashes, meant);
    else
        (void) snprintf(ret, OPT_MEANT_SIZE, "see --help");
    return ret;
}

const char *opt_meant(const struct opt_usage *usage, const char *word,
                      char ret[static OPT_MEANT_SIZE]) {
    const char *names[WORDS_MAX + 1] = {NULL};
    const struct opt_word *w = usage->words;

    for (size_t i = 0; i < WORDS_MAX && w->name; i++) {
        names[i] = w->name;
        w = opt_word_next(usage, w);
    }
    return say_meant(word, "", names, ret);
}

static int refuse(const char *argument, const struct opt *options, struct err *err) {
    const char *names[OPT_MAX + 1] = {NULL};
    char name[64], meant[OPT_MEANT_SIZE];

    if (optopt > 0 && optopt < HELP_CODE)
        return err_set(err, EINVAL, "unknown option '-%c'; see --help", optopt);
    text_copy(name, sizeof(name), argument + strspn(argument, "-"));
    name[strcspn(name, "=")] = '\0';
    for (size_t i = 0; i < OPT_MAX && options[i].name; i++) {
        names[i] = options[i].name;
        if (strcmp(name, names[i]) == 0)
            return err_set(err, EINVAL, "option '--%s' takes no value; see --help", name);
    }
    return err_set(err, EINVAL, "unknown option '%s'; %s", argument,
                   say_meant(name, "--", names, meant));
}

int opt_parse(const struct opt *options, const struct opt_usage *usage, int argc, char **argv,
              struct err *err) {
    struct option longs[OPT_MAX + 2] = {0};
    char shorts[2 * OPT_MAX + 8];
    size_t n = fill_getopt(options, longs, shorts);

    optind = 0; /* glibc: restart, also when an earlier table was parsed */
    opterr = 0;
    for (;;) {
        int code = getopt_long(argc, argv, shorts, longs, NULL);
        if (code == -1)
            return optind;
        if (code == HELP_CODE || code == 'h') {
            int r = opt_help_print(code == 'h' ? NULL : optarg, options, usage, err);
            return r < 0 ? r : -ECANCELED;
        }
        if (code == ':')
            return err_set(err, EINVAL, "option '%s' needs a value; see --help", argv[optind - 1]);
        const struct opt *o = find_option(options, n, code);
        if (!o)
            return refuse(argv[optind - 1], options, err);

        int r = o->parse(o->arg ? optarg : NULL, o->target, err);
        if (r < 0)
            return err_wrap(err, "--%s '%s'", o->name, o->arg ? optarg : "");
    }
}

int opt_flag(const char *value, void *target, struct err *err) {
    (void) value;
    (void) err;
    *(bool *) target = true;
    return 0;
}

int opt_string(const char *value, void *target, struct err *err) {
    if (*value == '\0')
        return err_set(err, EINVAL, "is empty");
    *(const char **) target = value;
    return 0;
}

int opt_u32(const char *value, void *target, struct err *err) {
    uint64_t number;
    if (num_parse_u64(value, UINT32_MAX, &number) < 0)
        return err_set(err, EINVAL, "is not a whole number from 0 to %u", UINT32_MAX);
    *(uint32_t *) target = (uint32_t) number;
    return 0;
}

int opt_size(const char *value, void *target, struct err *err) {
    uint64_t bytes;
    if (num_parse_size(value, &bytes) < 0)
        return err_set(err, EINVAL, "is not a size such as 4Gi, 512Mi, 2G or 1000000");
    *(uint64_t *) target = bytes;
    return 0;
}
