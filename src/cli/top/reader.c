/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/reader.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cluster/proxy.h"

#define REST_FACTOR 10
#define HOURS_MS 10000 /* a step of the history */

struct reader {
    top_read_fn *read;
    top_hours_fn *read_hours;
    struct top_source source;
    unsigned rest_ms;
    int event, stop; /* event descriptors: there is news; it shall end */
    atomic_bool is_stopped;
    pthread_t thread;
    pthread_mutex_t lock;
    bool is_fresh;
    struct top_data data;
    char trouble[ERR_TEXT_MAX];
    char said[READER_SAID_MAX];
    bool is_line_over;             /* what follows in `said` is another line */
    char *nodes[READER_NODES_MAX]; /* wanted; owned */
    size_t nnodes;
    uint64_t hours_at; /* of the thread alone: when they were read; 0: never */
};

static void put(struct reader *r, struct top_data *data, const char *trouble) {
    uint64_t one = 1;

    (void) pthread_mutex_lock(&r->lock);
    if (data) {
        top_hours_keep(data, &r->data);
        top_data_done(&r->data);
        r->data = *data;
        r->is_fresh = true;
        r->said[0] = '\0';
    }
    (void) snprintf(r->trouble, sizeof(r->trouble), "%s", trouble);
    (void) pthread_mutex_unlock(&r->lock);
    (void) !write(r->event, &one, sizeof(one));
}

/* The screen is no place to write to. */
static void hear(void *hearer, const char *text, size_t len) {
    struct reader *r = hearer;
    uint64_t one = 1;

    (void) pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < len; i++) {
        size_t at = r->is_line_over ? 0 : strlen(r->said);
        r->is_line_over = text[i] == '\n';
        if (r->is_line_over || at + 1 >= sizeof(r->said))
            continue;
        r->said[at] = text[i];
        r->said[at + 1] = '\0';
    }
    (void) pthread_mutex_unlock(&r->lock);
    (void) !write(r->event, &one, sizeof(one));
}

/* ---- the last hour ---- */

static void free_nodes(char **nodes, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(nodes[i]);
}

void reader_want(struct reader *r, const char *const *nodes, size_t n) {
    (void) pthread_mutex_lock(&r->lock);
    free_nodes(r->nodes, r->nnodes);
    r->nnodes = 0;
    for (size_t i = 0; i < n && r->nnodes < READER_NODES_MAX; i++)
        if ((r->nodes[r->nnodes] = strdup(nodes[i])))
            r->nnodes++;
    (void) pthread_mutex_unlock(&r->lock);
}

static void read_hours(struct reader *r, struct top_hours *ret) {
    uint64_t now = clock_ms(CLOCK_MONOTONIC);
    char *nodes[READER_NODES_MAX];
    struct err ignored; /* the reading of use says so */
    size_t n = 0;

    if (!r->read_hours || (r->hours_at > 0 && now - r->hours_at < HOURS_MS))
        return;
    (void) pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->nnodes; i++)
        if ((nodes[n] = strdup(r->nodes[i])))
            n++;
    (void) pthread_mutex_unlock(&r->lock);
    if (n > 0) {
        r->hours_at = now;
        (void) r->read_hours(&r->source, (const char *const *) nodes, n, ret, &ignored);
    }
    free_nodes(nodes, n);
}

/* ---- the thread ---- */

static void *run(void *arg) {
    struct reader *r = arg;

    while (!r->is_stopped) {
        struct top_data data;
        struct err err;
        uint64_t start = clock_ms(CLOCK_MONOTONIC);
        if (r->read(&r->source, &data, &err) == 0) {
            read_hours(r, &data.hours);
            put(r, &data, "");
        } else {
            put(r, NULL, err.text);
        }
        uint64_t took = clock_ms(CLOCK_MONOTONIC) - start;
        uint64_t rest = took * REST_FACTOR > r->rest_ms ? took * REST_FACTOR : r->rest_ms;
        (void) poll(&(struct pollfd){r->stop, POLLIN, 0}, 1, rest < INT_MAX ? (int) rest : INT_MAX);
    }
    return NULL;
}

int reader_start(top_read_fn *read, top_hours_fn *hours, const struct top_source *source,
                 unsigned rest_ms, struct reader **ret, struct err *err) {
    struct reader *r = calloc(1, sizeof(*r));
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t all, before;

    if (!r)
        return err_errno(err, ENOMEM, "cannot read again and again");
    *r = (struct reader){.read = read, .read_hours = hours, .source = *source, .rest_ms = rest_ms};
    r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void) pthread_mutex_init(&r->lock, NULL);
    proxy_listen(hear, r);
    /* Signals are the screen's. A fault of this thread, blocked, would end the process without the
     * handler that gives the terminal back. */
    (void) sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void) sigdelset(&all, faults[i]);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = r->event < 0 || r->stop < 0 ? errno : pthread_create(&r->thread, NULL, run, r);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        proxy_listen(NULL, NULL);
        free(r);
        return err_errno(err, error, "cannot read again and again");
    }
    *ret = r;
    return 0;
}

void reader_stop(struct reader *r) {
    uint64_t one = 1;

    r->is_stopped = true;
    (void) !write(r->stop, &one, sizeof(one));
    (void) pthread_join(r->thread, NULL);
    proxy_listen(NULL, NULL);
    top_data_done(&r->data);
    free_nodes(r->nodes, r->nnodes);
    (void) close(r->event);
    (void) close(r->stop);
    free(r);
}

int reader_fd(const struct reader *reader) {
    return reader->event;
}

bool reader_take(struct reader *reader, struct top_data *ret, char trouble[static ERR_TEXT_MAX],
                 char said[static READER_SAID_MAX]) {
    uint64_t count;

    (void) !read(reader->event, &count, sizeof(count));
    (void) pthread_mutex_lock(&reader->lock);
    bool is_fresh = reader->is_fresh;
    memcpy(trouble, reader->trouble, ERR_TEXT_MAX);
    memcpy(said, reader->said, READER_SAID_MAX);
    if (is_fresh) {
        *ret = reader->data;
        reader->data = (struct top_data){0};
        reader->is_fresh = false;
    }
    (void) pthread_mutex_unlock(&reader->lock);
    return is_fresh;
}
