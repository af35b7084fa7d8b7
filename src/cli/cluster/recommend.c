/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot recommend`: what containers ask, what they were seen to use, and what would do. */

#include "cli/cluster/recommend.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/age.h"
#include "cli/args.h"
#include "cli/clean.h"
#include "cli/cluster/prometheus.h"
#include "cli/kubectl_options.h"
#include "cli/output.h"
#include "cli/table.h"

#define HEADROOM_MAX 1000 /* percent */
#define PERCENT 100
#define THROTTLED_TOLD 5 /* percent of the time; advice.h has the same */

static uint32_t arg_headroom = 20;
static struct recommend_options arg = {
    .system = "aliquot-system", .for_seconds = 3600, .range_seconds = 7 * 86400};

static uint64_t up(double value) {
    uint64_t whole = (uint64_t) value;
    return whole + ((double) whole < value);
}

/* ---- what is said of a row ---- */

static bool is_throttled(const struct row *row) {
    return row->figures.throttled * PERCENT >= THROTTLED_TOLD;
}

static void put_note(struct buf *out, const struct row *row) {
    char age[AGE_SIZE];

    if (row->figures.memory == ADVICE_UNKNOWN) {
        buf_puts(out, arg.prometheus
                          ? "no figures: Prometheus has none of its pods"
                          : "no figures: its agent does not answer, or it has not started");
        return;
    }
    bool knows_memory = recommend_knows_memory(row, &arg);
    if (!knows_memory && row->peakless == 0) {
        buf_printf(out, "too short a time: %s", age_text((time_t) row->seconds, age));
        return;
    }
    if (!knows_memory)
        buf_printf(out, "memory was seen for %s only", age_text((time_t) row->seconds, age));
    if (!recommend_knows_core(row, &arg) && row->figures.asks_core > 0)
        buf_printf(out, "%scompute was seen for %s only", out->len ? "; " : "",
                   age_text((time_t) row->core_seconds, age));
    if (row->peakless > 0)
        buf_printf(out, "%sno peak of memory is known of %" PRIu32 " of %" PRIu32 " shares",
                   out->len ? "; " : "", row->peakless, row->cards);
    if (is_throttled(row) && row->figures.asks_core > 0)
        buf_printf(out, "%sthrottled %" PRIu64 " %% of the time: ask more compute",
                   out->len ? "; " : "", (uint64_t) (row->figures.throttled * PERCENT));
    if (row->figures.refused)
        buf_printf(out, "%smemory was refused: ask more", out->len ? "; " : "");
    if (row->silent > 0)
        buf_printf(out, "%sno figures of %" PRIu32 " of %" PRIu32 " shares", out->len ? "; " : "",
                   row->silent, row->cards);
}

/* "50 % 20 GiB"; what is not known is "-". */
static void set_amount(struct table *t, size_t column, uint64_t core, uint64_t memory) {
    char percent[32] = "-", bytes[24] = "-";

    if (core != ADVICE_UNKNOWN)
        (void) snprintf(percent, sizeof(percent), "%" PRIu64 " %%", core);
    if (memory != ADVICE_UNKNOWN)
        (void) num_format_bytes(memory, bytes);
    table_set(t, column, "%s, %s", percent, bytes);
}

static uint64_t seen_core(const struct row *row) {
    return row->figures.core < 0 ? ADVICE_UNKNOWN : up(row->figures.core);
}

/* ---- table ---- */

enum column {
    OWNER,
    CONTAINER,
    PODS,
    ASKS,
    SEEN,
    TIME,
    ADVICE,
    FREES,
    NOTE,
    CARDS,
    CORE_TIME,
    COLUMNS
};

static void put_row(struct table *t, const struct row *row) {
    _cleanup_buf_ struct buf note = BUF_INIT(0);
    char age[AGE_SIZE];

    put_note(&note, row);
    table_row(t);
    table_set(t, OWNER, "%s/%s", row->namespace, row->owner);
    table_set(t, CONTAINER, "%s", row->container);
    table_set(t, PODS, "%" PRIu32, row->pods);
    set_amount(t, ASKS, row->figures.asks_core, row->figures.asks_memory);
    set_amount(t, SEEN, seen_core(row), row->figures.memory);
    table_set(t, TIME, "%s", age_text((time_t) row->seconds, age));
    set_amount(t, ADVICE, row->advice.core, row->advice.memory);
    set_amount(t, FREES, row->freed_core, row->freed_memory);
    table_set(t, NOTE, "%s", buf_str(&note));
    table_set(t, CARDS, "%" PRIu32, row->cards);
    table_set(t, CORE_TIME, "%s", age_text((time_t) row->core_seconds, age));
}

static void sum(const struct recommend *r, uint64_t *ret_core, uint64_t *ret_memory) {
    *ret_core = *ret_memory = 0;
    for (uint32_t i = 0; i < r->nrows; i++) {
        *ret_core += r->rows[i]->freed_core;
        *ret_memory += r->rows[i]->freed_memory;
    }
}

static int show_table(const void *view, bool wide, struct err *err) {
    static const char *const titles[COLUMNS] = {"OWNER", "CONTAINER", "PODS",      "ASKS",
                                                "SEEN",  "IN",        "ASK",       "FREES",
                                                "NOTE",  "SHARES",    "COMPUTE IN"};
    const struct recommend *r = view;
    _cleanup_(table_done) struct table t = {.columns = COLUMNS,
                                            .hidden = wide ? 0 : COLUMNS - CARDS};
    uint64_t core, memory;
    char bytes[24];

    table_titles(&t, titles);
    for (uint32_t i = 0; i < r->nrows; i++)
        put_row(&t, r->rows[i]);
    int result = table_print(&t, stdout);
    sum(r, &core, &memory);
    printf("Would be free in all: %s of memory, and %" PRIu64 ".%02" PRIu64 " cards of compute.\n",
           num_format_bytes(memory, bytes), core / PERCENT, core % PERCENT);
    return result < 0 ? err_errno(err, -result, "cannot print") : 0;
}

/* ---- document ---- */

static void put_known(struct json_writer *w, const char *key, uint64_t value) {
    if (value == ADVICE_UNKNOWN)
        json_put_null(w, key);
    else
        json_put_u64(w, key, value);
}

static void write_amount(struct json_writer *w, const char *key, uint64_t core, uint64_t memory) {
    json_object_begin(w, key);
    put_known(w, "core", core);
    put_known(w, "memory", memory);
    json_object_end(w);
}

static void write_row(struct json_writer *w, const struct row *row) {
    _cleanup_buf_ struct buf note = BUF_INIT(0);
    const struct advice_figures *f = &row->figures;

    put_note(&note, row);
    json_object_begin(w, NULL);
    json_put(w, "namespace", row->namespace, "owner", row->owner, "container", row->container,
             "pods", row->pods, "shares", row->cards, "sharesWithoutFigures", row->silent);
    write_amount(w, "asks", f->asks_core, f->asks_memory);
    write_amount(w, "seen", seen_core(row), f->memory);
    json_put_u64(w, "seconds", row->seconds);
    json_put_u64(w, "computeSeconds", row->core_seconds);
    put_known(w, "throttledPercent",
              f->throttled < 0 ? ADVICE_UNKNOWN : (uint64_t) (f->throttled * PERCENT));
    json_put_bool(w, "memoryRefused", f->refused);
    write_amount(w, "ask", row->advice.core, row->advice.memory);
    write_amount(w, "frees", row->freed_core, row->freed_memory);
    json_put_string(w, "note", note.len ? buf_str(&note) : NULL);
    json_object_end(w);
}

static void show_document(const void *view, struct json_writer *w) {
    const struct recommend *r = view;
    uint64_t core, memory;

    sum(r, &core, &memory);
    json_object_begin(w, NULL);
    json_put_u64(w, "headroomPercent", arg_headroom);
    write_amount(w, "frees", core, memory);
    json_array_begin(w, "containers");
    for (uint32_t i = 0; i < r->nrows; i++)
        write_row(w, r->rows[i]);
    json_array_end(w);
    json_object_end(w);
}

static bool is_named_before(const struct recommend *r, uint32_t i) {
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(r->rows[j]->owner, r->rows[i]->owner) == 0 &&
            strcmp(r->rows[j]->namespace, r->rows[i]->namespace) == 0)
            return true;
    return false;
}

static void show_names(const void *view, struct buf *out) {
    const struct recommend *r = view;

    for (uint32_t i = 0; i < r->nrows; i++) {
        const char *owner = r->rows[i]->owner;
        if (is_named_before(r, i))
            continue;
        for (; *owner && *owner != '/'; owner++)
            buf_putc(out, (char) tolower((unsigned char) *owner));
        buf_printf(out, "%s\n", owner);
    }
}

/* ---- the command ---- */

static void tell_silent(const char *pod, const char *text) {
    clean_print(stderr, "aliquot recommend: no figures from agent %s: %s\n", pod, text);
}

static int show(void *unused, struct err *err) {
    static const struct output_view how = {show_table, show_document, show_names};
    _cleanup_(recommend_done) struct recommend recommend = {0};
    (void) unused;
    arg.headroom = (double) arg_headroom / PERCENT;
    arg.trouble = tell_silent;
    int r = recommend_read(&arg, &recommend, err);
    if (r < 0)
        return r;
    if (arg.pod && recommend.nrows == 0)
        return err_set(err, ENOENT, "no pod %s has a share of a card", arg.pod);
    return output_print(&how, &recommend, err);
}

/* "20" or "20%" */
static int parse_headroom(const char *value, void *target, struct err *err) {
    char text[16];
    uint64_t percent = 0;
    size_t len = strlen(value);

    (void) target;
    (void) snprintf(text, sizeof(text), "%s", value);
    if (len > 0 && len < sizeof(text) && text[len - 1] == '%')
        text[len - 1] = '\0';
    if (len >= sizeof(text) || num_parse_u64(text, HEADROOM_MAX, &percent) < 0)
        return err_set(err, EINVAL, "--headroom takes 0%% to %d%%, not '%s'", HEADROOM_MAX, value);
    arg_headroom = (uint32_t) percent;
    return 0;
}

/* "90s", "30m", "2h" or "7d" */
static int parse_time(const char *value, void *target, struct err *err) {
    static const struct {
        char unit;
        uint32_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t len = strlen(value);
    char text[16];
    uint64_t number;

    (void) snprintf(text, sizeof(text), "%s", value);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && len > 1 && len < sizeof(text); i++) {
        if (text[len - 1] != units[i].unit)
            continue;
        text[len - 1] = '\0';
        if (num_parse_u64(text, UINT32_MAX / units[i].seconds, &number) < 0)
            break;
        *(uint32_t *) target = (uint32_t) number * units[i].seconds;
        return 0;
    }
    return err_set(err, EINVAL, "'%s' is no time, as 90s, 30m, 2h or 7d are", value);
}

static const struct opt options[] = {
    {"namespace", 'n', "NAME", "only pods of this namespace", opt_string, &arg.namespace},
    {"all-namespaces", 'A', NULL, "all pods (the default)", kubectl_all_namespaces, &arg.namespace},
    {"headroom", 0, "PERCENT", "what to ask beyond what was seen (default 20%)", parse_headroom,
     NULL},
    {"for", 0, "TIME", "nothing is advised to what was seen for less (default 1h)", parse_time,
     &arg.for_seconds},
    {"prometheus", 0, "WHERE",
     "ask a Prometheus and no agent: http://HOST:PORT, or NAMESPACE/SERVICE:PORT by the API server",
     opt_string, &arg.prometheus},
    {"range", 0, "TIME", "how far back Prometheus is asked (default 7d)", parse_time,
     &arg.range_seconds},
    SYSTEM_OPTION(&arg.system),
    OUTPUT_OPTIONS,
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot recommend [options] [POD]",
    .purpose =
        "Says what the containers of each owner (Deployment, StatefulSet, Job ...; bare pods by\n"
        "themselves) ask of a card, the most that any of them was seen to use, and what would do. "
        "What\n"
        "would free the most is the first line. Memory was seen since the container was started, "
        "compute\n"
        "in the last hour, by the agents; of a Prometheus both in --range. Nothing is changed.",
    .epilog =
        "Uses kubectl (or $KUBECTL) with your context. Exit status: 0; 1 when the cluster does "
        "not\n"
        "answer, or POD has no share; 2 for wrong arguments.",
};

int cmd_recommend(int argc, char **argv) {
    struct err err;

    int r = args_parse(options, &usage, argc, argv, &arg.pod, 1, &err);
    if (r >= 0 && arg.prometheus)
        r = prometheus_check(arg.prometheus, &err);
    if (r >= 0 && arg.range_seconds == 0)
        r = err_set(&err, EINVAL, "--range takes a second or more");
    return output_command("recommend", r, show, NULL, &err);
}
