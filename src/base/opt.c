/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define OPT_MAX 62 /* rows in a table, --help not counted */
#define HELP_CODE 0x1000

static void print_help(const struct opt *options, const struct opt_usage *usage) {
    printf("Usage: %s\n\n%s\n\nOptions:\n", usage->synopsis, usage->purpose);
    for (const struct opt *o = options; o->name; o++) {
        char left[64], letter[5] = "    ";
        if (o->letter)
            (void) snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        (void) snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                        o->arg ? o->arg : "");
        printf("  %-30s %s\n", left, o->help);
    }
    printf("  %-30s %s\n", "-h, --help", "print this text and exit");
    if (usage->epilog)
        printf("\n%s\n", usage->epilog);
}

static size_t fill_getopt(const struct opt *options, struct option *longs, char *shorts) {
    size_t n = 0;
    *shorts++ = '+'; /* stop at the first non-option */
    *shorts++ = ':'; /* distinguishes a missing argument from an unknown option */
    for (; options[n].name && n < OPT_MAX; n++) {
        int has_arg = options[n].arg ? required_argument : no_argument;
        longs[n] = (struct option){options[n].name, has_arg, NULL, (int) n + 1};
        if (options[n].letter) {
            *shorts++ = options[n].letter;
            if (options[n].arg)
                *shorts++ = ':';
        }
    }
    longs[n] = (struct option){"help", no_argument, NULL, HELP_CODE};
    *shorts++ = 'h';
    *shorts = '\0';
    return n;
}

static const struct opt *find_option(const struct opt *options, size_t n, int code) {
    if (code >= 1 && (size_t) code <= n)
        return &options[code - 1];
    for (size_t i = 0; i < n; i++)
        if (options[i].letter == code)
            return &options[i];
    return NULL;
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
            print_help(options, usage);
            return -ECANCELED;
        }
        if (code == ':')
            return err_set(err, EINVAL, "option '%s' needs a value; see --help", argv[optind - 1]);
        const struct opt *o = find_option(options, n, code);
        if (!o)
            return err_set(err, EINVAL, "unknown option '%s'; see --help", argv[optind - 1]);

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
