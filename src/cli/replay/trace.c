/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay/trace.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define FIELDS_MAX 64 /* columns of a file */
#define CPU_MAX 100000000
#define MEMORY_MAX (UINT64_C(1) << 40)
#define MILLI_PER_GPU 1000

struct column {
    const char *name;
    bool needed;
};

/* Both files begin with the same columns. */
enum { NAME, CPU, MEMORY, OTHERS };

enum { NODE_GPUS = OTHERS, NODE_MODEL };
static const struct column node_columns[] = {
    {"sn", true}, {"cpu_milli", true}, {"memory_mib", true}, {"gpu", true}, {"model", false},
};

enum { POD_GPUS = OTHERS, POD_MILLI, POD_SPEC, POD_CREATED, POD_DELETED };
static const struct column pod_columns[] = {
    {"name", true},      {"cpu_milli", true}, {"memory_mib", true},     {"num_gpu", true},
    {"gpu_milli", true}, {"gpu_spec", false}, {"creation_time", false}, {"deletion_time", false},
};
#define COLUMNS_MAX (sizeof(pod_columns) / sizeof(pod_columns[0]))

/* A file while it is read: the position of each column, and the current line. */
struct table {
    char *rest; /* NULL behind the last line */
    size_t line;
    const struct column *columns;
    size_t ncolumns;
    size_t place[COLUMNS_MAX]; /* FIELDS_MAX: the file has none such */
    size_t width;              /* fields in the first line */
    char *fields[FIELDS_MAX];
};

void trace_done(struct trace *t) {
    free(t->nodes);
    free(t->pods);
    *t = (struct trace){0};
}

/* ---- lines ---- */

static int split_line(struct table *t, char *line, size_t *ret_n, struct err *err) {
    size_t n = 0;
    if (strchr(line, '"'))
        return err_set(err, EINVAL, "line %zu: quoted fields are not supported", t->line);
    for (char *field; (field = strsep(&line, ","));) {
        if (n == FIELDS_MAX)
            return err_set(err, EINVAL, "line %zu: more than %d columns", t->line, FIELDS_MAX);
        t->fields[n++] = field;
    }
    *ret_n = n;
    return 0;
}

/* The next line that is not empty, without its end; NULL: there is none. */
static char *next_line(struct table *t) {
    char *line;
    do {
        line = strsep(&t->rest, "\n");
        t->line++;
        if (line && *line && line[strlen(line) - 1] == '\r')
            line[strlen(line) - 1] = 0;
    } while (line && !*line);
    return line;
}

/* 1: `fields` are those of the next line; 0: there is none. */
static int next_row(struct table *t, struct err *err) {
    char *line = next_line(t);
    size_t n;
    int r = line ? split_line(t, line, &n, err) : 0;
    if (r < 0 || !line)
        return r;
    if (n != t->width)
        return err_set(err, EINVAL, "line %zu: %zu fields, but the first line names %zu columns",
                       t->line, n, t->width);
    return 1;
}

static int find_columns(struct table *t, struct err *err) {
    for (size_t c = 0; c < t->ncolumns; c++) {
        t->place[c] = FIELDS_MAX;
        for (size_t i = 0; i < t->width; i++) {
            if (strcmp(t->fields[i], t->columns[c].name) != 0)
                continue;
            if (t->place[c] != FIELDS_MAX)
                return err_set(err, EINVAL, "line %zu: column '%s' is given twice", t->line,
                               t->columns[c].name);
            t->place[c] = i;
        }
        if (t->columns[c].needed && t->place[c] == FIELDS_MAX)
            return err_set(err, EINVAL,
                           "line %zu: no column '%s'; the first line names the columns", t->line,
                           t->columns[c].name);
    }
    return 0;
}

static int open_table(struct table *t, const struct column *columns, size_t ncolumns, char *text,
                      size_t len, struct err *err) {
    *t = (struct table){.rest = text, .columns = columns, .ncolumns = ncolumns};
    if (memchr(text, 0, len))
        return err_set(err, EINVAL, "not a text: there is a zero byte in it");
    char *line = next_line(t);
    if (!line)
        return err_set(err, EINVAL, "empty: the first line must name the columns");
    int r = split_line(t, line, &t->width, err);
    return r < 0 ? r : find_columns(t, err);
}

/* "" for a column that the file has not. */
static char *text_of(const struct table *t, size_t column) {
    static char none[1];
    return t->place[column] == FIELDS_MAX ? none : t->fields[t->place[column]];
}

/* A whole number; the decimals that some tools write (12.0) are dropped only if they are zeros. */
static int number_of(const struct table *t, size_t column, uint64_t max, uint64_t *ret,
                     struct err *err) {
    char *text = text_of(t, column), *point = strchr(text, '.');
    if (point && point[1] && strspn(point + 1, "0") == strlen(point + 1))
        *point = 0;
    int r = num_parse_u64(text, max, ret);
    if (r == 0)
        return 0;
    if (r == -ERANGE)
        return err_set(err, EINVAL, "line %zu: %s '%s' is more than %llu", t->line,
                       t->columns[column].name, text, (unsigned long long) max);
    return err_set(err, EINVAL, "line %zu: %s '%s' is not a whole number", t->line,
                   t->columns[column].name, text);
}

static int name_of(const struct table *t, size_t column, const char **ret, struct err *err) {
    *ret = text_of(t, column);
    if (**ret)
        return 0;
    return err_set(err, EINVAL, "line %zu: %s is empty", t->line, t->columns[column].name);
}

static int read_size(const struct table *t, const char **name, uint64_t *cpu, uint64_t *memory,
                     struct err *err) {
    int r = name_of(t, NAME, name, err);
    if (r == 0)
        r = number_of(t, CPU, CPU_MAX, cpu, err);
    return r < 0 ? r : number_of(t, MEMORY, MEMORY_MAX, memory, err);
}

/* The array with room for one element more than its n; NULL: the error says why not. */
static void *grow(void *array, size_t n, size_t size, size_t max, struct err *err) {
    if (n == max) {
        (void) err_set(err, E2BIG, "more than %zu lines", max);
        return NULL;
    }
    if (n % 16 != 0 || (n > 0 && (n & (n - 1)) != 0))
        return array;
    void *more = reallocarray(array, n == 0 ? 16 : 2 * n, size);
    if (!more)
        (void) err_errno(err, ENOMEM, "cannot read on");
    return more;
}

static int read_rows(struct trace *t, const struct column *columns, size_t ncolumns,
                     int (*read_row)(struct trace *t, const struct table *table, struct err *err),
                     char *text, size_t len, struct err *err) {
    struct table table;
    int r = open_table(&table, columns, ncolumns, text, len, err);
    if (r < 0)
        return r;
    while ((r = next_row(&table, err)) > 0)
        if ((r = read_row(t, &table, err)) < 0)
            return r;
    return r;
}

/* ---- nodes ---- */

static uint32_t find_model(const struct trace *t, const char *name) {
    uint32_t m = 0;
    while (m < t->nmodels && strcmp(t->models[m], name) != 0)
        m++;
    return m;
}

static int read_node(struct trace *t, const struct table *table, struct err *err) {
    struct trace_node node;
    uint64_t gpus = 0;
    const char *model = text_of(table, NODE_MODEL);
    int r = read_size(table, &node.name, &node.cpu, &node.memory, err);
    if (r == 0)
        r = number_of(table, NODE_GPUS, TRACE_GPUS_MAX, &gpus, err);
    if (r < 0)
        return r;
    node.gpus = (uint32_t) gpus;
    node.model = find_model(t, model);
    if (node.model == TRACE_MODELS_MAX)
        return err_set(err, E2BIG, "line %zu: more than %d models", table->line, TRACE_MODELS_MAX);
    if (node.model == t->nmodels)
        t->models[t->nmodels++] = model;
    struct trace_node *nodes = grow(t->nodes, t->nnodes, sizeof(node), TRACE_NODES_MAX, err);
    if (!nodes)
        return -err->code;
    t->nodes = nodes;
    t->nodes[t->nnodes++] = node;
    return 0;
}

int trace_read_nodes(struct trace *t, char *text, size_t len, struct err *err) {
    return read_rows(t, node_columns, sizeof(node_columns) / sizeof(node_columns[0]), read_node,
                     text, len, err);
}

/* ---- pods ---- */

static uint64_t models_of(const struct trace *t, char *spec) {
    uint64_t models = 0;
    if (!*spec)
        return UINT64_MAX;
    for (char *name; (name = strsep(&spec, "|"));) {
        uint32_t m = find_model(t, name);
        if (m < t->nmodels)
            models |= UINT64_C(1) << m;
    }
    return models;
}

/* A GPU of no thousandths is an error, thousandths of no GPU are nothing. */
static int read_gpus(const struct table *table, struct trace_pod *pod, struct err *err) {
    uint64_t gpus, milli;
    int r = number_of(table, POD_GPUS, TRACE_GPUS_MAX, &gpus, err);
    if (r < 0)
        return r;
    pod->gpus = (uint32_t) gpus;
    pod->milli = 0;
    if (gpus == 0)
        return 0;
    r = number_of(table, POD_MILLI, MILLI_PER_GPU, &milli, err);
    if (r < 0)
        return r;
    if (milli == 0)
        return err_set(err, EINVAL, "line %zu: gpu_milli is 0 of %u GPUs", table->line, pod->gpus);
    pod->milli = (uint32_t) milli;
    return 0;
}

static int read_times(const struct table *table, struct trace_pod *pod, struct err *err) {
    int r = 0;
    pod->created = 0;
    pod->deleted = TRACE_NEVER;
    if (*text_of(table, POD_CREATED))
        r = number_of(table, POD_CREATED, TRACE_NEVER - 1, &pod->created, err);
    if (r == 0 && *text_of(table, POD_DELETED))
        r = number_of(table, POD_DELETED, TRACE_NEVER - 1, &pod->deleted, err);
    return r;
}

static int read_pod(struct trace *t, const struct table *table, struct err *err) {
    struct trace_pod pod;
    int r = read_size(table, &pod.name, &pod.cpu, &pod.memory, err);
    if (r == 0)
        r = read_gpus(table, &pod, err);
    if (r == 0)
        r = read_times(table, &pod, err);
    if (r < 0)
        return r;
    struct trace_pod *pods = grow(t->pods, t->npods, sizeof(pod), TRACE_PODS_MAX, err);
    if (!pods)
        return -err->code;
    t->pods = pods;
    pod.models = models_of(t, text_of(table, POD_SPEC));
    t->pods[t->npods++] = pod;
    return 0;
}

int trace_read_pods(struct trace *t, char *text, size_t len, struct err *err) {
    return read_rows(t, pod_columns, sizeof(pod_columns) / sizeof(pod_columns[0]), read_pod, text,
                     len, err);
}
