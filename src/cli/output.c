/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "wire/json.h"
#include "wire/yaml_write.h"

#define REST_MS 2000
#define REST_FACTOR 10

struct output output;

struct output_form {
    const char *name;
    int (*print)(const struct output_view *how, const void *view, struct err *err);
    const char *between; /* two times of --watch */
};

/* ---- forms ---- */

static int print_table(const struct output_view *how, const void *view, struct err *err) {
    return how->table(view, false, err);
}

static int print_wide(const struct output_view *how, const void *view, struct err *err) {
    return how->table(view, true, err);
}

static int print_buf(const struct buf *text, struct err *err) {
    if (buf_error(text) < 0 || fputs(buf_str(text), stdout) < 0)
        return err_errno(err, text->error ? text->error : EIO, "cannot print");
    return 0;
}

static int print_json(const struct output_view *how, const void *view, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};

    how->document(view, &w);
    buf_putc(&text, '\n');
    return print_buf(&text, err);
}

static int print_yaml(const struct output_view *how, const void *view, struct err *err) {
    _cleanup_buf_ struct buf json = BUF_INIT(0), text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json_writer w = {.out = &json};
    struct json root;

    how->document(view, &w);
    int r = json_open(buf_str(&json), json.len, &parser, &root, err);
    if (r < 0)
        return r;
    yaml_print(&text, root);
    return print_buf(&text, err);
}

static int print_names(const struct output_view *how, const void *view, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    how->names(view, &text);
    return print_buf(&text, err);
}

static const struct output_form forms[] = {
    {"table", print_table, "\n"},  {"wide", print_wide, "\n"},  {"json", print_json, ""},
    {"yaml", print_yaml, "---\n"}, {"name", print_names, "\n"},
};

static const struct output_form *form_of(void) {
    return output.form ? output.form : &forms[0];
}

int output_parse_form(const char *value, void *target, struct err *err) {
    (void) target;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(value, forms[i].name) == 0) {
            output.form = &forms[i];
            return 0;
        }
    return err_set(err, EINVAL, "there is no form '%s', only json, yaml, wide, name and table",
                   value);
}

int output_parse_json(const char *value, void *target, struct err *err) {
    (void) value;
    return output_parse_form("json", target, err);
}

int output_print(const struct output_view *how, const void *view, struct err *err) {
    return form_of()->print(how, view, err);
}

/* ---- again and again ---- */

/* What `show` prints. */
static int capture(int (*show)(void *arg, struct err *err), void *arg, char **ret_text,
                   struct err *err) {
    FILE *real = stdout;
    size_t len = 0;
    FILE *own = open_memstream(ret_text, &len);

    if (!own)
        return err_errno(err, ENOMEM, "cannot print");
    stdout = own;
    int r = show(arg, err);
    stdout = real;
    (void) fclose(own);
    return r;
}

static void rest(uint64_t took_ms) {
    uint64_t ms = took_ms * REST_FACTOR > REST_MS ? took_ms * REST_FACTOR : REST_MS;
    const struct timespec time = {(time_t) (ms / 1000), (long) (ms % 1000) * 1000000};

    (void) nanosleep(&time, NULL);
}

int output_run(const char *command, int (*show)(void *arg, struct err *err), void *arg,
               struct err *err) {
    _cleanup_free_ char *before = NULL;

    if (!output.watch)
        return show(arg, err);
    for (;;) {
        _cleanup_free_ char *text = NULL;
        uint64_t start = clock_ms(CLOCK_MONOTONIC);
        int r = capture(show, arg, &text, err);
        if (r < 0 && !before)
            return r;
        if (r < 0) {
            clean_print(stderr, "aliquot %s: %s\n", command, err->text);
        } else if (!before || strcmp(before, text) != 0) {
            (void) fputs(before ? form_of()->between : "", stdout);
            (void) fputs(text, stdout);
            if (fflush(stdout) != 0)
                return err_errno(err, errno, "cannot print");
            free(before);
            before = take_ptr(text);
        }
        rest(clock_ms(CLOCK_MONOTONIC) - start);
    }
}

int output_command(const char *command, int parsed, int (*show)(void *arg, struct err *err),
                   void *arg, struct err *err) {
    int r = parsed < 0 ? parsed : output_run(command, show, arg, err);

    return args_exit(command, r, parsed >= 0, err);
}
