/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot top`: cards, containers, nodes and pods that wait, on one screen. */

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/age.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/proxy.h"
#include "cli/kubectl_options.h"
#include "cli/self.h"
#include "cli/top/reader.h"
#include "cli/top/screen.h"
#include "cli/top/terminal.h"

#define FILTER_MAX 64
#define HEAD_LINES 2 /* the sum and the views, on a screen that has room */
#define HOURS_OLD 60 /* seconds after which a history is read again for times of the past */
#define KEY_MAX 1024 /* of a row: names of an object, of a pod and of its namespace */
#define INTERVAL_MAX 3600
#define MORE_MAX ((size_t) 1 << 20)

static struct top_source arg_source = {.system = "aliquot-system"};
static const char *arg_view = "cards", *arg_sort, *arg_filter = "", *arg_at;
static uint32_t arg_interval = 2;
static bool arg_once, arg_local;

enum mode { MODE_TABLE, MODE_FILTER, MODE_TEXT };

struct ui {
    struct top_data data;
    struct top_rows rows;
    char trouble[ERR_TEXT_MAX], said[READER_SAID_MAX];
    const struct top_view *view;
    size_t sorted[TOP_VIEWS];
    bool reversed[TOP_VIEWS];
    time_t at; /* whose figures are shown; 0: now */
    char filter[FILTER_MAX];
    char chosen_key[KEY_MAX]; /* of the row that is marked, as readings change its place */
    size_t chosen, first;
    enum mode mode;
    struct buf text;              /* of MODE_TEXT */
    size_t text_first, text_room; /* lines */
    size_t room;                  /* rows that the table shows */
    struct self_command more;     /* the command that still prints into `text` */
    struct screen screen;
};

static const char help[] =
    "1 2 3 4, tab   cards, containers, nodes, waiting pods\n"
    "up, down, page, home, end, j, k   move\n"
    "enter   more of the row: `aliquot explain` of a pod, `aliquot inspect` of a card or a node\n"
    "s   sort by the next column;  r   the other way round\n"
    "/   show only rows with a text; escape ends it\n"
    "[ ]   cards and containers ten seconds before and after;  { }   five minutes;  0   now\n"
    "q   quit\n\n"
    "CORE and MEMORY: what is given out of a card or a node, and what a container may use.\n"
    "HOUR, titled with its times: GPU time, five minutes a mark; of a card that of its shares.\n"
    "USED: memory in use; UNUSED: what a container has and does not use. BUSY: load of the card.\n"
    "A '-' is a figure that is not to be had: the agent does not answer, the driver does not "
    "tell, or there is no limit.\n";

/* ---- rows ---- */

static size_t view_index(const struct ui *ui) {
    return (size_t) (ui->view - top_views);
}

static void note_chosen(struct ui *ui) {
    const char *key = ui->chosen < ui->rows.n ? top_row_key(&ui->rows.list[ui->chosen]) : "";

    (void) snprintf(ui->chosen_key, sizeof(ui->chosen_key), "%s", key);
}

/* After a reading, or another view, order or filter. */
static void make_rows(struct ui *ui) {
    size_t at = view_index(ui);

    ui->data.at = ui->at;
    top_rows_done(&ui->rows);
    (void) top_rows_make(ui->view, &ui->data, ui->filter, ui->sorted[at], ui->reversed[at],
                         &ui->rows);
    for (size_t i = 0; i < ui->rows.n; i++)
        if (strcmp(top_row_key(&ui->rows.list[i]), ui->chosen_key) == 0) {
            ui->chosen = i;
            return;
        }
    if (ui->chosen >= ui->rows.n)
        ui->chosen = ui->rows.n > 0 ? ui->rows.n - 1 : 0;
    note_chosen(ui);
}

static void show_view(struct ui *ui, size_t view) {
    ui->view = &top_views[view];
    ui->chosen = ui->first = 0;
    ui->chosen_key[0] = '\0';
    make_rows(ui);
}

/* ---- drawing ---- */

static void put_sum(struct ui *ui) {
    uint64_t core = 0, taken_core = 0, memory = 0, taken_memory = 0;
    size_t gpus = 0, well = 0;
    char text[256];

    for (size_t i = 0; i < ui->data.ncards; i++) {
        const struct top_card *c = &ui->data.cards[i];
        core += c->core;
        taken_core += c->taken_core;
        memory += c->memory;
        taken_memory += c->taken_memory;
        gpus += top_is_first(&ui->data, i);
        well += top_is_first(&ui->data, i) && strcmp(c->state, "Healthy") == 0;
    }
    if (ui->data.of_pods)
        (void) snprintf(text, sizeof(text), "pods of namespace %s on %zu GPU%s; waiting pods: %zu",
                        arg_source.namespace, gpus, gpus == 1 ? "" : "s", ui->data.nwaiting);
    else
        (void) snprintf(
            text, sizeof(text),
            "%zu GPU%s, %zu healthy; given out: %.0f%% compute, %.0f%% memory; waiting pods: %zu",
            gpus, gpus == 1 ? "" : "s", well,
            core ? 100.0 * (double) taken_core / (double) core : 0,
            memory ? 100.0 * (double) taken_memory / (double) memory : 0, ui->data.nwaiting);
    screen_line(&ui->screen, false);
    screen_put(&ui->screen, text, 0, false, STYLE_PLAIN);
}

/* Rows of nodes whose agents have not been asked. */
static size_t count_unread(const struct ui *ui) {
    size_t n = 0;

    for (size_t i = 0; i < ui->rows.n; i++)
        n += !top_hours_has_node(&ui->data.hours, ui->rows.list[i].node);
    return n;
}

/* Which time is shown, and what is missing of it. */
static void put_time(struct ui *ui) {
    char clock[TIMES_CLOCK_SIZE], age[AGE_SIZE], when[64], text[128];
    time_t ago = time(NULL) - ui->at;
    size_t unread = 0;

    (void) snprintf(when, sizeof(when), "at %s, %s ago", times_clock(ui->at, true, clock),
                    age_text(ago, age));
    if (!top_view_has_past(ui->view))
        (void) snprintf(text, sizeof(text), "now; cards and containers %s", when);
    else if (arg_local)
        (void) snprintf(text, sizeof(text), "%s: nothing keeps a history of this machine", when);
    else if (ago > TOP_HOUR_SECONDS)
        (void) snprintf(text, sizeof(text), "%s: agents keep an hour", when);
    else if ((unread = count_unread(ui)) > 0)
        (void) snprintf(text, sizeof(text), "%s; %zu of %zu rows not read (%d nodes at most)", when,
                        unread, ui->rows.n, READER_NODES_MAX);
    else
        (void) snprintf(text, sizeof(text), "%s", when);
    screen_line(&ui->screen, false);
    screen_put(&ui->screen, text, 0, false, STYLE_TITLE);
}

static void put_views(struct ui *ui) {
    screen_line(&ui->screen, false);
    for (size_t i = 0; i < TOP_VIEWS; i++) {
        char text[32];
        (void) snprintf(text, sizeof(text), " %zu %s ", i + 1, top_views[i].name);
        screen_put(&ui->screen, text, 0, false,
                   &top_views[i] == ui->view ? STYLE_CHOSEN : STYLE_PLAIN);
    }
    if (ui->filter[0] || ui->mode == MODE_FILTER) {
        screen_put(&ui->screen, "  /", 0, false, STYLE_PLAIN);
        screen_put(&ui->screen, ui->filter, 0, false, STYLE_TITLE);
        screen_put(&ui->screen, ui->mode == MODE_FILTER ? "_" : "", 0, false, STYLE_PLAIN);
    }
}

static const char *silent_text(const struct ui *ui, char *ret, size_t size) {
    (void) snprintf(ret, size, "%zu %s not answer", ui->data.silent,
                    ui->data.silent == 1 ? "agent does" : "agents do");
    return ret;
}

static void put_foot(struct ui *ui) {
    char text[ERR_TEXT_MAX + 64];

    if (ui->more.pid > 0 && !ui->said[0]) {
        screen_line(&ui->screen, false);
        screen_put(&ui->screen, "wait, or escape: do not wait", 0, false, STYLE_TITLE);
        return;
    }
    if (ui->said[0])
        (void) snprintf(text, sizeof(text), "kubectl: %s", ui->said);
    else if (ui->trouble[0])
        (void) snprintf(text, sizeof(text), "not read again: %s", ui->trouble);
    else if (ui->data.trouble[0])
        (void) snprintf(text, sizeof(text), "%s", ui->data.trouble);
    else if (ui->data.silent > 0)
        silent_text(ui, text, sizeof(text));
    else
        (void) snprintf(
            text, sizeof(text),
            "q quit  1-4 views  enter more  s sort  r reverse  / filter  [ ] time  ? help");
    screen_line(&ui->screen, false);
    screen_put(&ui->screen, text, 0, false,
               ui->trouble[0] || ui->said[0] ? STYLE_TITLE : STYLE_PLAIN);
}

/* The text's next line, wrapped: how many bytes it has, and *ret_next of the text what follows. */
static size_t next_line(const struct ui *ui, const char *at, const char **ret_next) {
    size_t len = strcspn(at, "\n"), fits = screen_fit(&ui->screen, at);
    size_t n = fits < len ? fits : len;

    *ret_next = at + n + (at[n] == '\n' && n == len);
    return n;
}

/* The line from which on the text fills the screen to its end. */
static size_t last_first(const struct ui *ui) {
    size_t lines = 0;

    for (const char *at = buf_str(&ui->text); *at; lines++)
        (void) next_line(ui, at, &at);
    return lines > ui->text_room ? lines - ui->text_room : 0;
}

/* Lines between `head` and the foot are filled with the text. */
static void put_text(struct ui *ui) {
    const char *at = buf_str(&ui->text), *next;
    size_t last = last_first(ui);

    if (ui->text_first > last) /* the screen has become larger */
        ui->text_first = last;
    for (size_t line = 0; *at && line < ui->text_first + ui->text_room; line++, at = next) {
        _cleanup_free_ char *part = strndup(at, next_line(ui, at, &next));
        if (!part || line < ui->text_first)
            continue;
        screen_line(&ui->screen, false);
        screen_put(&ui->screen, part, 0, false, STYLE_PLAIN);
    }
}

static void draw(struct ui *ui) {
    int width, height;

    terminal_size(&width, &height);
    screen_begin(&ui->screen, true, width, height);
    int head = height > HEAD_LINES + 4 ? HEAD_LINES : 0, foot = height > 3;
    if (ui->at > 0 && height > 2) {
        head = head > 0 ? head : 1; /* figures of another time are never without it */
        put_time(ui);
    } else if (head > 0) {
        put_sum(ui);
    }
    if (head == HEAD_LINES)
        put_views(ui);
    int lines = height - head - foot - 1;
    size_t room = ui->room = lines > 1 ? (size_t) lines : 1;
    if (ui->chosen < ui->first)
        ui->first = ui->chosen;
    if (ui->chosen >= ui->first + room)
        ui->first = ui->chosen - room + 1;
    ui->text_room = lines > 0 ? (size_t) lines + 1 : 1;
    if (ui->mode == MODE_TEXT)
        put_text(ui);
    else
        screen_table(&ui->screen, ui->view, &ui->rows, ui->first, room, ui->chosen,
                     ui->sorted[view_index(ui)]);
    while (ui->screen.line < height - foot)
        screen_line(&ui->screen, false);
    if (foot)
        put_foot(ui);
    screen_end(&ui->screen);
    (void) !write(STDOUT_FILENO, buf_str(&ui->screen.out), ui->screen.out.len);
}

/* ---- keys ---- */

static void move(struct ui *ui, int key) {
    int width, height;

    terminal_size(&width, &height);
    size_t page = height > 5 ? (size_t) height - 5 : 1, last = ui->rows.n > 0 ? ui->rows.n - 1 : 0;
    size_t *at = ui->mode == MODE_TEXT ? &ui->text_first : &ui->chosen;
    if (ui->mode == MODE_TEXT)
        last = last_first(ui);
    if (key == KEY_UP || key == KEY_PAGE_UP) {
        size_t step = key == KEY_UP ? 1 : page;
        *at = *at > step ? *at - step : 0;
    } else if (key == KEY_DOWN || key == KEY_PAGE_DOWN) {
        size_t step = key == KEY_DOWN ? 1 : page;
        *at = last - *at > step ? *at + step : last;
    } else {
        *at = key == KEY_FIRST ? 0 : last;
    }
    if (ui->mode != MODE_TEXT)
        note_chosen(ui);
}

static void show_text(struct ui *ui) {
    ui->mode = MODE_TEXT;
    ui->text_first = 0;
}

/* What another command says of the row. */
static int start_more(const struct top_row *row, struct self_command *ret) {
    const char *const explain[] = {"explain",  row->pod,          "--namespace", row->namespace,
                                   "--system", arg_source.system, NULL};
    const char *const inspect[] = {"inspect", row->view, row->name, NULL};

    return self_start(row->pod ? explain : inspect, ret);
}

static void show_more(struct ui *ui) {
    if (ui->chosen >= ui->rows.n || arg_local)
        return;
    buf_reset(&ui->text);
    self_cancel(&ui->more);
    if (start_more(&ui->rows.list[ui->chosen], &ui->more) < 0)
        buf_puts(&ui->text, "cannot start the command that tells more\n");
    show_text(ui);
}

static void sort_next(struct ui *ui) {
    size_t at = view_index(ui);

    ui->sorted[at] = (ui->sorted[at] + 1) % ui->view->ncolumns;
    ui->reversed[at] = false;
    make_rows(ui);
}

static void edit_filter(struct ui *ui, int key) {
    size_t len = strlen(ui->filter);

    if (key == KEY_ESCAPE)
        len = 0;
    if (key == KEY_ESCAPE || key == '\n' || key == '\r')
        ui->mode = MODE_TABLE;
    else if ((key == 127 || key == '\b') && len > 0)
        len--;
    else if (key >= ' ' && key < 127 && len + 1 < sizeof(ui->filter))
        ui->filter[len++] = (char) key;
    ui->filter[len] = '\0';
    make_rows(ui);
}

/* The figures of another time; false: this is no key for it. */
static bool go_to_time(struct ui *ui, int key) {
    static const struct {
        int key, seconds;
    } steps[] = {{'[', -TOP_STEP_SECONDS}, {']', TOP_STEP_SECONDS}, {'{', -300}, {'}', 300}};

    if (key == '0') {
        ui->at = 0;
        make_rows(ui);
        return true;
    }
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i].key == key) {
            ui->at = times_step(ui->at, steps[i].seconds, ui->data.hours.read_at, time(NULL));
            make_rows(ui);
            return true;
        }
    return false;
}

/* False: the user quits. */
static bool obey_table(struct ui *ui, int key) {
    size_t at = view_index(ui);

    if (key == 'q' || key == 'Q')
        return false;
    if (go_to_time(ui, key))
        return true;
    if (key >= '1' && key < '1' + TOP_VIEWS)
        show_view(ui, (size_t) (key - '1'));
    else if (key == '\t')
        show_view(ui, (at + 1) % TOP_VIEWS);
    else if (key == 's')
        sort_next(ui);
    else if (key == 'r') {
        ui->reversed[at] = !ui->reversed[at];
        make_rows(ui);
    } else if (key == '/') {
        ui->mode = MODE_FILTER;
    } else if (key == KEY_ESCAPE) {
        ui->filter[0] = '\0';
        make_rows(ui);
    } else if (key == '?') {
        buf_reset(&ui->text);
        buf_puts(&ui->text, help);
        show_text(ui);
    } else if (key == '\n' || key == '\r') {
        show_more(ui);
    }
    return true;
}

static bool obey(struct ui *ui, int key) {
    if (key == KEY_END)
        return false;
    if (ui->mode == MODE_FILTER && key < KEY_UP) {
        edit_filter(ui, key);
        return true;
    }
    if (key == KEY_ESCAPE && ui->mode == MODE_FILTER) {
        edit_filter(ui, key);
        return true;
    }
    if (key == 'j' || key == 'k')
        key = key == 'j' ? KEY_DOWN : KEY_UP;
    if (key >= KEY_UP && key <= KEY_LAST) {
        move(ui, key);
        return true;
    }
    if (ui->mode != MODE_TEXT)
        return obey_table(ui, key);
    if (key == 'q' || key == '\n' || key == '\r' || key == KEY_ESCAPE || key == '?') {
        self_cancel(&ui->more);
        ui->mode = MODE_TABLE;
    }
    return true;
}

/* ---- the command ---- */

static void ui_done(struct ui *ui) {
    self_cancel(&ui->more);
    top_rows_done(&ui->rows);
    top_data_done(&ui->data);
    buf_done(&ui->text);
    buf_done(&ui->screen.out);
}

static int print_once(struct ui *ui, bool is_terminal, struct err *err) {
    char text[64];
    int width = 0, height = 0;

    if (is_terminal)
        terminal_size(&width, &height);
    screen_begin(&ui->screen, false, width, 0);
    screen_table(&ui->screen, ui->view, &ui->rows, 0, ui->rows.n, SIZE_MAX,
                 ui->sorted[view_index(ui)]);
    screen_end(&ui->screen);
    if (ui->data.trouble[0])
        clean_print(stderr, "aliquot top: %s\n", ui->data.trouble);
    if (ui->data.silent > 0)
        fprintf(stderr, "aliquot top: %s\n", silent_text(ui, text, sizeof(text)));
    if (buf_error(&ui->screen.out) < 0 || fputs(buf_str(&ui->screen.out), stdout) < 0)
        return err_errno(err, EIO, "cannot print");
    return 0;
}

/* ---- whose last hour is read ---- */

struct nodes {
    const char **names; /* each once */
    size_t n, max;
};

static void add_node(struct nodes *to, const char *node) {
    size_t at = 0;

    while (node && at < to->n && strcmp(to->names[at], node) != 0)
        at++;
    if (node && at == to->n && to->n < to->max)
        to->names[to->n++] = node;
}

static void add_all_nodes(const struct ui *ui, struct nodes *to) {
    for (size_t i = 0; i < ui->rows.n && to->n < to->max; i++)
        add_node(to, ui->rows.list[i].node);
    for (size_t i = 0; i < ui->data.ncards && to->n < to->max; i++)
        add_node(to, ui->data.cards[i].node);
}

/* What is past does not change. */
static bool is_read(const struct ui *ui, const struct nodes *nodes) {
    for (size_t i = 0; i < nodes->n; i++)
        if (!top_hours_has_node(&ui->data.hours, nodes->names[i]))
            return false;
    return time(NULL) - ui->data.hours.read_at < HOURS_OLD;
}

/* Those of the rows on the screen; of another time all of them, as their figures order the rows. */
static void want_hours(const struct ui *ui, struct reader *reader) {
    const char *names[READER_NODES_MAX];
    struct nodes nodes = {names, 0, READER_NODES_MAX};

    for (size_t i = ui->first; i < ui->rows.n && i < ui->first + ui->room; i++)
        add_node(&nodes, ui->rows.list[i].node);
    if (ui->at > 0 && top_view_has_past(ui->view)) {
        add_all_nodes(ui, &nodes);
        if (is_read(ui, &nodes))
            nodes.n = 0;
    }
    reader_want(reader, nodes.names, nodes.n);
}

/* For one frame. It has no column of the hour: blanks in it would be columns to a script. */
static int read_past(struct ui *ui, struct err *err) {
    _cleanup_free_ const char **names = calloc(ui->data.ncards + 1, sizeof(*names));
    struct nodes nodes = {names, 0, ui->data.ncards};

    if (!names)
        return err_errno(err, ENOMEM, "cannot hold the nodes");
    add_all_nodes(ui, &nodes);
    int r = top_read_hours(&arg_source, nodes.names, nodes.n, &ui->data.hours, err);
    if (r < 0)
        return r;
    make_rows(ui);
    for (size_t i = 0; i < ui->rows.n; i++)
        for (size_t column = 0; column < ui->view->ncolumns; column++)
            ui->rows.list[i].cells[column].hour = NULL;
    return 0;
}

/* ---- until the user quits ---- */

static int run_screen(struct ui *ui, top_read_fn *read, struct err *err) {
    struct reader *reader;
    int key = KEY_NONE;
    int r = reader_start(read, arg_local ? NULL : top_read_hours, &arg_source, arg_interval * 1000,
                         &reader, err);

    if (r < 0)
        return r;
    r = terminal_enter();
    if (r < 0)
        return err_errno(err, -r, "cannot use the terminal");
    do {
        struct top_data fresh;
        if (reader_take(reader, &fresh, ui->trouble, ui->said)) {
            top_rows_done(&ui->rows);
            top_hours_keep(&fresh, &ui->data);
            top_data_done(&ui->data);
            ui->data = fresh;
            make_rows(ui);
        }
        if (ui->more.pid > 0)
            self_read(&ui->more, &ui->text);
        draw(ui);
        want_hours(ui, reader);
        key = terminal_key(reader_fd(reader), ui->more.out);
    } while (key == KEY_NONE || obey(ui, key));
    terminal_leave();
    proxy_end(); /* a reading that waits for an answer fails */
    reader_stop(reader);
    return 0;
}

static int find_view(const char *name, struct ui *ui, struct err *err) {
    for (size_t i = 0; i < TOP_VIEWS; i++) {
        ui->sorted[i] = top_views[i].sorted;
        if (strcmp(top_views[i].name, name) == 0)
            ui->view = &top_views[i];
    }
    if (!ui->view)
        return err_set(err, EINVAL, "no view '%s', only cards, containers, nodes and waiting",
                       name);
    for (size_t i = 0; arg_sort && i < ui->view->ncolumns; i++)
        if (strcasecmp(ui->view->columns[i].title, arg_sort) == 0) {
            ui->sorted[view_index(ui)] = i;
            return 0;
        }
    return arg_sort ? err_set(err, EINVAL, "view %s has no column '%s'", name, arg_sort) : 0;
}

static int find_time(struct ui *ui, struct err *err) {
    if (arg_local)
        return err_set(err, EINVAL, "--at: nothing keeps a history of this machine (--local)");
    if (!top_view_has_past(ui->view))
        return err_set(err, EINVAL, "--at is for the views cards and containers");
    return times_parse(arg_at, time(NULL), &ui->at, err);
}

static int top(struct ui *ui, struct err *err) {
    top_read_fn *read = arg_local ? top_read_local : top_read_cluster;
    bool is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);

    (void) setlocale(LC_CTYPE, "");
    /* The first reading is without the screen: a login can ask for something. */
    int r = read(&arg_source, &ui->data, err);
    if (r < 0)
        return r;
    make_rows(ui);
    if (!arg_once && is_terminal)
        return run_screen(ui, read, err);
    if (ui->at > 0)
        r = read_past(ui, err);
    return r < 0 ? r : print_once(ui, isatty(STDOUT_FILENO), err);
}

int cmd_top(int argc, char **argv) {
    static const struct opt options[] = {
        {"once", '1', NULL, "print one frame and end (the default without a terminal)", opt_flag,
         &arg_once},
        {"view", 0, "NAME", "cards (the default), containers, nodes or waiting", opt_string,
         &arg_view},
        {"sort", 's', "COLUMN", "sort by the column of this title", opt_string, &arg_sort},
        {"filter", 'f', "TEXT", "only rows with this text", opt_string, &arg_filter},
        {"at", 0, "TIME",
         "the figures of HH:MM or HH:MM:SS in the last hour, of cards and containers", opt_string,
         &arg_at},
        {"interval", 'i', "SECONDS", "rest between two readings (default 2)", opt_u32,
         &arg_interval},
        {"local", 'l', NULL, "the GPUs of this machine and the `aliquot run`s of this user",
         opt_flag, &arg_local},
        NAMESPACE_OPTION(&arg_source.namespace),
        {"all-namespaces", 'A', NULL, "what all pods have (the default)", kubectl_all_namespaces,
         &arg_source.namespace},
        SYSTEM_OPTION(&arg_source.system),
        KUBECTL_OPTIONS,
        OPT_END,
    };
    static const struct opt_usage usage = {
        .synopsis = "aliquot top [options]",
        .purpose =
            "Shows GPUs, containers, nodes and waiting pods on a screen; `?` lists its keys.",
        .epilog =
            "Uses kubectl (or $KUBECTL) with your context. NO_COLOR in the environment: bars "
            "without\n"
            "colours. Exit status: 0; 1 when the cluster or the driver does not answer; 2 for "
            "wrong\n"
            "arguments.",
    };
    _cleanup_(ui_done) struct ui ui = {.text = BUF_INIT(MORE_MAX), .more = {.out = -1}};
    struct err err;

    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    if (r == 0)
        r = find_view(arg_view, &ui, &err);
    if (r == 0 && (arg_interval < 1 || arg_interval > INTERVAL_MAX))
        r = err_set(&err, EINVAL, "--interval takes 1 to %d seconds", INTERVAL_MAX);
    if (r == 0 && arg_at)
        r = find_time(&ui, &err);
    bool understood = r == 0;
    if (understood) {
        (void) snprintf(ui.filter, sizeof(ui.filter), "%s", arg_filter);
        r = top(&ui, &err);
    }
    return args_exit("top", r, understood, &err);
}
