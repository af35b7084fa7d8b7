/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/web/question.h"
#include "cli/web/static.h"
#include "wire/http.h"
#include "wire/json_write.h"

#define VIEWERS_MAX 32
#define COMMANDS_MAX 2 /* at a time: each starts a kubectl */
#define COMMAND_TEXT_MAX ((size_t) 1 << 20)
#define FILES_MAX 16
#define ROUTES_OTHER 4

static const struct http_header headers[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
    {0},
};

struct viewer {
    struct viewer *prev, *next;
    struct web_server *server;
    struct http_exchange *exchange;
    struct journal_reader *reader;
};

struct web_server {
    uv_loop_t *loop;
    struct http_server *http;
    struct http_route routes[FILES_MAX + ROUTES_OTHER + 1];
    struct guard guard;
    struct journal *journal;
    struct web_operations operations;
    char *system;
    struct viewer *viewers;
    unsigned nviewers, ncommands;
    bool is_closed;
};

/* ---- who may ask ---- */

enum asked { PAGE, FILE_OF_PAGE, FIGURES };

/* Whether it may be answered; otherwise it is refused here. */
static bool may_pass(struct web_server *s, struct http_exchange *x, enum asked asked) {
    const struct guard_request request = {
        .host = http_header(x, "Host"),
        .origin = http_header(x, "Origin"),
        .site = http_header(x, "Sec-Fetch-Site"),
        .token = http_header(x, "X-Aliquot-Token"),
        .is_page = asked == PAGE,
        .is_file = asked == FILE_OF_PAGE,
    };
    const char *text;
    unsigned status = guard_check(&s->guard, &request, &text);

    if (status != 0)
        http_reply_text(x, status, text);
    return status == 0;
}

/* ---- the page ---- */

static void reply_file(struct http_exchange *x) {
    const struct static_file *file = static_files;
    struct buf body = BUF_INIT(0);

    while (strcmp(file->path, http_path(x)) != 0)
        file++;
    buf_append(&body, file->data, file->len);
    http_compress(x);
    http_reply(x, 200, file->type, &body);
}

static void on_page(struct http_exchange *x, void *userdata) {
    if (may_pass(userdata, x, PAGE))
        reply_file(x);
}

static void on_file(struct http_exchange *x, void *userdata) {
    if (may_pass(userdata, x, FILE_OF_PAGE))
        reply_file(x);
}

/* ---- its events ---- */

static size_t fill(void *userdata, char *to, size_t max) {
    struct viewer *viewer = userdata;

    return journal_read(viewer->reader, to, max);
}

static void count_viewers(struct web_server *s, int more) {
    s->nviewers += (unsigned) more;
    s->operations.viewers(s->operations.userdata, s->nviewers);
}

static void on_gone(void *userdata) {
    struct viewer *viewer = userdata;

    DL_DELETE(viewer->server->viewers, viewer);
    count_viewers(viewer->server, -1);
    journal_reader_free(viewer->reader);
    free(viewer);
}

static void on_events(struct http_exchange *x, void *userdata) {
    struct web_server *s = userdata;

    if (!may_pass(s, x, FIGURES))
        return;
    if (s->nviewers == VIEWERS_MAX) {
        http_reply_text(x, 503, "too many pages are open at the same time\n");
        return;
    }
    struct viewer *viewer = calloc(1, sizeof(*viewer));
    struct journal_reader *reader = viewer ? journal_reader_new(s->journal) : NULL;
    if (!reader) {
        free(viewer);
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    *viewer = (struct viewer){.server = s, .exchange = x, .reader = reader};
    DL_APPEND(s->viewers, viewer);
    count_viewers(s, 1);
    http_reply_stream(x, "text/event-stream", &(struct http_stream){fill, on_gone, viewer});
}

void web_server_news(struct web_server *s) {
    struct viewer *viewer;

    DL_FOREACH(s->viewers, viewer) {
        http_stream_wake(viewer->exchange);
    }
}

/* ---- questions ---- */

/* A parameter that is a name of an object; otherwise the request is answered here. */
static const char *name_of(struct http_exchange *x, const char *parameter) {
    const char *name = http_query(x, parameter);
    struct buf text = BUF_INIT(0);

    if (name && api_is_name(name))
        return name;
    buf_printf(&text, "parameter '%s' is no name\n", parameter);
    http_reply(x, 400, "text/plain; charset=utf-8", &text);
    return NULL;
}

static unsigned status_of(int r) {
    switch (r) {
    case -EACCES:
        return 403;
    case -ENOENT:
        return 404;
    default:
        return 502;
    }
}

static void on_history(struct http_exchange *x, void *userdata) {
    struct web_server *s = userdata;
    const char *node, *namespace, *pod;

    if (!may_pass(s, x, FIGURES) || !(node = name_of(x, "node")) ||
        !(namespace = name_of(x, "namespace")) || !(pod = name_of(x, "pod")))
        return;
    struct question *question = question_new(node, namespace, pod);
    if (!question) {
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    question->userdata = x;
    s->operations.history(s->operations.userdata, question);
}

void web_server_answer(struct web_server *s, struct question *question) {
    struct http_exchange *x = question->userdata;

    if (!s->is_closed && question->result < 0) {
        http_reply_text(x, status_of(question->result), question->err.text);
    } else if (!s->is_closed) {
        http_compress(x);
        http_reply(x, 200, "application/json", &question->text);
    }
    question_free(question);
}

/* ---- what other commands print ---- */

struct command {
    uv_work_t work;
    struct web_server *server;
    struct http_exchange *exchange;
    char *pod, *namespace; /* NULL: it is no explanation */
    struct buf text;
    int result;
};

static void command_free(struct command *c) {
    free(c->pod);
    free(c->namespace);
    buf_done(&c->text);
    free(c);
}

static void run_command(uv_work_t *work) {
    struct command *c = work->data;
    const struct web_operations *o = &c->server->operations;
    const char *const explain[] = {
        "explain", c->pod, "--namespace", c->namespace, "--system", c->server->system, NULL};
    const char *const plan[] = {"defrag", "--plan", NULL};

    c->result = o->command(o->userdata, c->pod ? explain : plan, &c->text);
}

static void after_command(uv_work_t *work, int status) {
    struct command *c = work->data;
    struct json_writer w = {0};
    struct buf body = BUF_INIT(0);

    (void) status;
    c->server->ncommands--;
    if (!c->server->is_closed) {
        w.out = &body;
        json_object_begin(&w, NULL);
        json_put_i64(&w, "status", c->result);
        json_put_string(&w, "text", buf_str(&c->text));
        json_object_end(&w);
        http_compress(c->exchange);
        http_reply(c->exchange, 200, "application/json", &body);
    }
    command_free(c);
}

static void begin_command(struct web_server *s, struct http_exchange *x, const char *namespace,
                          const char *pod) {
    struct command *c = s->ncommands < COMMANDS_MAX ? calloc(1, sizeof(*c)) : NULL;

    if (!c) {
        http_reply_text(x, 503, "another command runs: try again\n");
        return;
    }
    *c = (struct command){.server = s, .exchange = x, .text = BUF_INIT(COMMAND_TEXT_MAX)};
    c->work.data = c;
    c->pod = pod ? strdup(pod) : NULL;
    c->namespace = namespace ? strdup(namespace) : NULL;
    if ((pod && (!c->pod || !c->namespace)) ||
        uv_queue_work(s->loop, &c->work, run_command, after_command) < 0) {
        command_free(c);
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    s->ncommands++;
}

static void on_explain(struct http_exchange *x, void *userdata) {
    const char *namespace, *pod;

    if (may_pass(userdata, x, FIGURES) && (namespace = name_of(x, "namespace")) &&
        (pod = name_of(x, "pod")))
        begin_command(userdata, x, namespace, pod);
}

static void on_plan(struct http_exchange *x, void *userdata) {
    if (may_pass(userdata, x, FIGURES))
        begin_command(userdata, x, NULL, NULL);
}

/* ---- start and stop ---- */

static void make_routes(struct web_server *s) {
    static const struct http_route other[ROUTES_OTHER] = {
        {"GET", "/api/events", on_events},
        {"GET", "/api/history", on_history},
        {"GET", "/api/explain", on_explain},
        {"GET", "/api/plan", on_plan},
    };
    size_t n = ROUTES_OTHER;

    memcpy(s->routes, other, sizeof(other));
    for (const struct static_file *f = static_files; f->path && n < FILES_MAX + ROUTES_OTHER; f++)
        s->routes[n++] =
            (struct http_route){"GET", f->path, strcmp(f->path, "/") == 0 ? on_page : on_file};
}

int web_server_start(uv_loop_t *loop, unsigned port, const char *system, struct journal *journal,
                     const struct web_operations *operations, struct web_server **ret,
                     struct err *err) {
    struct web_server *s = calloc(1, sizeof(*s));
    char listen[32];

    if (!s)
        return err_errno(err, ENOMEM, "cannot start the server");
    *s = (struct web_server){.loop = loop, .journal = journal, .operations = *operations};
    (void) snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
    make_routes(s);
    const struct http_options options = {
        .listen = listen, .routes = s->routes, .userdata = s, .headers = headers};
    s->system = strdup(system);
    int r = s->system ? http_server_start(loop, &options, &s->http, err)
                      : err_errno(err, ENOMEM, "cannot start the server");
    if (r == 0 && guard_init(&s->guard, http_server_port(s->http)) < 0) {
        http_server_close(s->http);
        r = err_set(err, EIO, "the kernel gives no random bytes for a token");
    }
    if (r < 0) {
        web_server_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

const struct guard *web_server_guard(const struct web_server *s) {
    return &s->guard;
}

void web_server_close(struct web_server *s) {
    s->is_closed = true;
    http_server_close(s->http);
}

void web_server_free(struct web_server *s) {
    free(s->system);
    free(s);
}
