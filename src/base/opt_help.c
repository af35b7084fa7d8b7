/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt_help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LEFT_MAX 128
#define OPTION_COLUMN 30
#define WORD_COLUMN_MAX 24

static const struct opt help = {"help", 'h', NULL, "print this text and exit", NULL, NULL};

/* "--name ARG", with or without the letter. */
static const char *name_option(const struct opt *o, char ret[static LEFT_MAX]) {
    char letter[5] = "    ";

    if (o->letter)
        (void) snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    (void) snprintf(ret, LEFT_MAX, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                    o->arg ? o->arg : "");
    return ret;
}

static const char *name_word(const struct opt_word *w, char ret[static LEFT_MAX]) {
    (void) snprintf(ret, LEFT_MAX, "%s%s%s", w->name, w->arg ? " " : "", w->arg ? w->arg : "");
    return ret;
}

/* ---- text ---- */

static void print_row(const char *left, const char *right, int column) {
    if ((int) strlen(left) > column)
        printf("  %s\n  %*s ", left, column, "");
    else
        printf("  %-*s ", column, left);
    for (; *right; right++) {
        (void) putchar(*right);
        if (*right == '\n')
            printf("  %*s ", column, "");
    }
    (void) putchar('\n');
}

static int word_column(const struct opt_usage *usage) {
    char left[LEFT_MAX];
    int column = 0;

    for (const struct opt_word *w = usage->words; w->name; w = opt_word_next(usage, w)) {
        int len = (int) strlen(name_word(w, left));

        if (len > column && len <= WORD_COLUMN_MAX)
            column = len;
    }
    return column + 1;
}

static void print_text(const struct opt *options, const struct opt_usage *usage) {
    char left[LEFT_MAX];

    printf("Usage: %s\n\n%s\n", usage->synopsis, usage->purpose);
    if (usage->title) {
        printf("\n%s:\n", usage->title);
        for (const struct opt_word *w = usage->words; w->name; w = opt_word_next(usage, w))
            print_row(name_word(w, left), w->help, word_column(usage));
    }
    printf("\nOptions:\n");
    for (const struct opt *o = options; o->name; o++)
        print_row(name_option(o, left), o->help, OPTION_COLUMN);
    print_row(name_option(&help, left), help.help, OPTION_COLUMN);
    if (usage->epilog)
        printf("\n%s\n", usage->epilog);
}

/* ---- list ---- */

static void print_item(const char *kind, const char *name, char letter, const char *arg,
                       const char *text) {
    const char shown[] = {letter, '\0'};

    printf("%s\t%s\t%s\t%s\t%.*s\n", kind, name, shown, arg ? arg : "", (int) strcspn(text, "\n"),
           text);
}

static void print_list(const struct opt *options, const struct opt_usage *usage) {
    for (const struct opt_word *w = usage->words; w && w->name; w = opt_word_next(usage, w))
        print_item(w->has_help ? "command" : "word", w->name, 0, w->arg, w->help);
    for (const struct opt *o = options; o->name; o++)
        print_item("option", o->name, o->letter, o->arg, o->help);
    print_item("option", help.name, help.letter, help.arg, help.help);
}

/* ---- man page ---- */

/* What groff prints as another character. */
static const char special[] = "\\-`'~^";
static const char *const escapes[] = {"e", "-", "(ga", "(aq", "(ti", "(ha"};

static void put_roff(const char *text, size_t len) {
    if (len > 0 && *text == '.')
        printf("\\&");
    for (size_t i = 0; i < len; i++) {
        const char *escaped = strchr(special, text[i]);

        if (text[i] && escaped)
            printf("\\%s", escapes[escaped - special]);
        else
            (void) putchar(text[i]);
    }
}

static bool is_indented(const char *line) {
    return *line == ' ';
}

/* Filled, but for lines that begin with a blank and the one that these continue. */
static void put_prose(const char *text) {
    while (text && *text) {
        size_t len = strcspn(text, "\n");
        const char *next = text[len] ? text + len + 1 : NULL;
        size_t blanks = strspn(text, " ");

        if (len == 0) {
            printf(".PP\n");
        } else if (is_indented(text)) {
            for (size_t i = 0; i < blanks; i++)
                printf("\\ ");
            put_roff(text + blanks, len - blanks);
            printf("\n.br\n");
        } else {
            put_roff(text, len);
            printf("\n%s", next && is_indented(next) ? ".br\n" : "");
        }
        text = next;
    }
}

static void put_entry(const char *left, const char *right) {
    printf(".TP\n.B ");
    put_roff(left + strspn(left, " "), strlen(left + strspn(left, " ")));
    (void) putchar('\n');
    put_prose(right);
}

/* The name of the page: the words of the synopsis before its arguments, with dashes between. */
static void name_page(const char *synopsis, char ret[static LEFT_MAX]) {
    size_t len = 0;

    while (len < LEFT_MAX - 1 && islower((unsigned char) synopsis[len])) {
        while (len < LEFT_MAX - 1 &&
               (islower((unsigned char) synopsis[len]) || synopsis[len] == '-')) {
            ret[len] = synopsis[len];
            len++;
        }
        ret[len++] = '-';
        if (synopsis[len - 1] == '\0')
            break;
    }
    ret[len ? len - 1 : 0] = '\0';
}

/* The first sentence of what the program does, on one line. */
static void put_summary(const char *purpose) {
    char text[512];
    size_t len = 0;

    while (len < sizeof(text) && purpose[len] && purpose[len] != ':' &&
           !(purpose[len] == '.' && strchr("\n ", purpose[len + 1])))
        len++;
    for (size_t i = 0; i < len; i++)
        text[i] = (char) (purpose[i] == '\n' ? ' ' : purpose[i]);
    put_roff(text, len);
    (void) putchar('\n');
}

static void print_man(const struct opt *options, const struct opt_usage *usage) {
    char name[LEFT_MAX], left[LEFT_MAX];

    name_page(usage->synopsis, name);
    printf(".TH \"%s\" %d \"\" \"Aliquot %s\"\n.SH NAME\n", name, usage->is_daemon ? 8 : 1,
           ALIQUOT_VERSION);
    printf("%s \\- ", name);
    put_summary(usage->purpose);
    printf(".SH SYNOPSIS\n.nf\n");
    put_roff(usage->synopsis, strlen(usage->synopsis));
    printf("\n.fi\n.SH DESCRIPTION\n");
    put_prose(usage->purpose);
    if (usage->title) {
        printf(".SH \"%s\"\n", usage->title);
        for (const struct opt_word *w = usage->words; w->name; w = opt_word_next(usage, w))
            put_entry(name_word(w, left), w->help);
    }
    printf(".SH OPTIONS\n");
    for (const struct opt *o = options; o->name; o++)
        put_entry(name_option(o, left), o->help);
    put_entry(name_option(&help, left), help.help);
    if (usage->epilog) {
        printf(".SH NOTES\n");
        put_prose(usage->epilog);
    }
}

/* ---- the formats ---- */

int opt_help_print(const char *format, const struct opt *options, const struct opt_usage *usage,
                   struct err *err) {
    static const struct {
        const char *name;
        void (*print)(const struct opt *options, const struct opt_usage *usage);
    } formats[] = {{"text", print_text}, {"man", print_man}, {"list", print_list}};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, format ? format : "text") == 0) {
            formats[i].print(options, usage);
            return 0;
        }
    return err_set(err, EINVAL, "--help '%s': is none of text, man and list", format);
}
