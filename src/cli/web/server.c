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

#define VIEWERS_MAX 32         /* of a user */
#define VIEWERS_MAX_CLUSTER 64 /* of all users, */
#define VIEWERS_MAX_EACH 8     /* and of one */
#define CONNECTIONS_CLUSTER 256
#define CONNECTIONS_EACH 128 /* of an address, which can be a proxy for all */
#define COMMANDS_MAX 2       /* at a time: each is a process, and asks for whole lists */
#define COMMAND_TEXT_MAX ((size_t) 1 << 20)
#define FILES_MAX 16
#define ROUTES_OTHER 7

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
    struct session *session;
    struct http_exchange *exchange;
    struct session_reader *reader;
    bool is_told; /* that its token is refused */
};

struct web_server {
    uv_loop_t *loop;
    struct web_options options;
    struct http_server *http;
    struct http_route routes[FILES_MAX + ROUTES_OTHER + 1];
    struct guard guard;
    struct viewer *viewers;
    unsigned nviewers, ncommands;
    bool is_draining, is_closed;
};

static bool is_in_cluster(const struct web_server *s) {
    return s->options.hosts;
}

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

static unsigned status_of(int r) {
    switch (r) {
    case -EKEYREJECTED:
        return 401;
    case -EACCES:
        return 403;
    case -ENOENT:
        return 404;
    case -EBUSY:
    case -EUSERS:
    case -ENOMEM:
    case -ECANCELED:
        return 503;
    default:
        return 502;
    }
}

/* A request on its way to a session. */
struct request {
    struct web_server *server;
    struct http_exchange *exchange;
    void (*then)(struct web_server *s, struct session *session, struct http_exchange *x);
};

static void on_entered(void *userdata, struct session *session, int result, const char *text) {
    struct request *request = userdata;

    if (request->server->is_closed)
        ; /* it is answered already */
    else if (session)
        request->then(request->server, session, request->exchange);
    else
        http_reply_text(request->exchange, status_of(result), text);
    free(request);
}

/* Has `then` called with the session that the request is for; otherwise it is refused here, or when
 * the API server refuses its token. */
static void enter(struct web_server *s, struct http_exchange *x, bool is_tried,
                  void (*then)(struct web_server *s, struct session *session,
                               struct http_exchange *x)) {
    const char *token = http_header(x, "X-Aliquot-Token");
    const char *namespace = http_header(x, "X-Aliquot-Namespace");
    struct request *request;

    if (!may_pass(s, x, FIGURES))
        return;
    if (is_in_cluster(s) && !login_is_token(token)) {
        http_reply_text(x, 401, "this is no token\n");
    } else if (namespace && *namespace && !api_is_name(namespace)) {
        http_reply_text(x, 400, "this is no name of a namespace\n");
    } else if (!(request = malloc(sizeof(*request)))) {
        http_reply_text(x, 503, "out of memory\n");
    } else {
        *request = (struct request){s, x, then};
        sessions_enter(s->options.sessions,
                       &(struct entrant){
                           .token = token,
                           .namespace = namespace && *namespace ? namespace : NULL,
                           .client = http_client(x),
                           .is_tried = is_tried,
                           .then = on_entered,
                           .userdata = request,
                       });
    }
}

/* ---- the page ---- */

static void reply_file(struct http_exchange *x) {
    const struct static_file *file = static_files;
    struct buf body = BUF_INIT(0);

    while (strcmp(file->path, http_path(x)) != 0)
        file++;
    if (http_send_gzip(x))
        buf_append(&body, file->gzip, file->gzip_len);
    else
        buf_append(&body, file->data, file->len);
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

/* Which token the page is to ask for. */
static void on_mode(struct http_exchange *x, void *userdata) {
    struct buf body = BUF_INIT(0);

    if (!may_pass(userdata, x, FILE_OF_PAGE))
        return;
    buf_printf(&body, "{\"kubernetes\":%s}", is_in_cluster(userdata) ? "true" : "false");
    http_reply(x, 200, "application/json", &body);
}

/* The page that was opened gets the token; its address is worth nothing from then on. */
static void on_token(struct http_exchange *x, void *userdata) {
    struct web_server *s = userdata;
    struct json_writer w = {0};
    struct buf body = BUF_INIT(0);

    if (!may_pass(s, x, FILE_OF_PAGE))
        return;
    if (is_in_cluster(s) || !guard_take_code(&s->guard, http_header(x, "X-Aliquot-Code"))) {
        http_reply_text(x, 403, "the code of the address was used, or is of an earlier start\n");
        return;
    }
    s->options.opened(&s->guard);
    w.out = &body;
    json_object_begin(&w, NULL);
    json_put_string(&w, "token", s->guard.token);
    json_object_end(&w);
    http_reply(x, 200, "application/json", &body);
}

/* kubelet's probe has the pod's address as Host. */
static void on_health(struct http_exchange *x, void *userdata) {
    if (is_in_cluster(userdata) || may_pass(userdata, x, PAGE))
        http_reply_text(x, 200, "ok\n");
}

/* ---- its events ---- */

/* A page that may not connect again by itself learns it from the last event. */
static size_t tell_refused(struct viewer *viewer, char *to, size_t max) {
    static const char event[] = "event: expired\ndata:\n\n";

    if (viewer->is_told || !viewer->session->is_refused || max < strlen(event))
        return HTTP_STREAM_END;
    viewer->is_told = true;
    memcpy(to, event, strlen(event));
    return strlen(event);
}

static size_t fill(void *userdata, char *to, size_t max) {
    struct viewer *viewer = userdata;

    size_t n = viewer->server->is_draining ? SESSION_END : session_read(viewer->reader, to, max);
    return n == SESSION_END ? tell_refused(viewer, to, max) : n;
}

static void stop_when_drained(struct web_server *s) {
    if (s->is_draining && s->nviewers == 0)
        uv_stop(s->loop);
}

static void on_gone(void *userdata) {
    struct viewer *viewer = userdata;

    DL_DELETE(viewer->server->viewers, viewer);
    session_reader_free(viewer->reader);
    viewer->server->nviewers--;
    stop_when_drained(viewer->server);
    free(viewer);
}

static bool has_place(const struct web_server *s, const struct session *session) {
    if (s->is_draining)
        return false;
    if (!is_in_cluster(s))
        return s->nviewers < VIEWERS_MAX;
    return s->nviewers < VIEWERS_MAX_CLUSTER &&
           session_token_use(session).viewers < VIEWERS_MAX_EACH;
}

static void begin_events(struct web_server *s, struct session *session, struct http_exchange *x) {
    if (!has_place(s, session)) {
        http_reply_text(x, 503, "too many pages are open at the same time\n");
        return;
    }
    struct viewer *viewer = calloc(1, sizeof(*viewer));
    struct session_reader *reader = viewer ? session_reader_new(session) : NULL;
    if (!reader) {
        free(viewer);
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    *viewer = (struct viewer){.server = s, .session = session, .exchange = x, .reader = reader};
    DL_APPEND(s->viewers, viewer);
    s->nviewers++;
    http_reply_stream(x, "text/event-stream", &(struct http_stream){fill, on_gone, viewer});
}

/* What was read for a session is shown only to a token that the API server takes at that moment. */
static void on_events(struct http_exchange *x, void *userdata) {
    enter(userdata, x, true, begin_events);
}

void web_server_news(struct web_server *s, struct session *session) {
    struct viewer *viewer;

    DL_FOREACH(s->viewers, viewer) {
        if (viewer->session == session)
            http_stream_wake(viewer->exchange);
    }
}

void web_server_drain(struct web_server *s) {
    struct viewer *viewer;

    s->is_draining = true;
    DL_FOREACH(s->viewers, viewer) {
        http_stream_wake(viewer->exchange);
    }
    stop_when_drained(s);
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

static void ask_history(struct web_server *s, struct session *session, struct http_exchange *x) {
    const char *node, *namespace, *pod;

    (void) s;
    if (!(node = name_of(x, "node")) || !(namespace = name_of(x, "namespace")) ||
        !(pod = name_of(x, "pod")))
        return;
    struct question *question = question_new(node, namespace, pod);
    if (!question) {
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    question->userdata = x;
    session_ask(session, question);
}

static void on_history(struct http_exchange *x, void *userdata) {
    enter(userdata, x, false, ask_history);
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
    struct session *session;
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
    const struct web_options *o = &c->server->options;
    const char *const explain[] = {"explain",  c->pod,    "--namespace", c->namespace,
                                   "--system", o->system, NULL};
    const char *const plan[] = {"defrag", "--plan", NULL};

    c->result = o->command(&c->session->login, c->pod ? explain : plan, &c->text);
}

static void count_commands(struct command *c, int more) {
    c->server->ncommands += (unsigned) more;
    c->session->commands += (unsigned) more;
    c->session->busy += (unsigned) more;
}

static void after_command(uv_work_t *work, int status) {
    struct command *c = work->data;
    struct json_writer w = {0};
    struct buf body = BUF_INIT(0);

    (void) status;
    count_commands(c, -1);
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

/* Of many viewers none has both places. */
static bool may_begin(const struct web_server *s, const struct session *session) {
    return s->ncommands < COMMANDS_MAX &&
           (!is_in_cluster(s) || session_token_use(session).commands == 0);
}

static void begin_command(struct web_server *s, struct session *session, struct http_exchange *x,
                          const char *namespace, const char *pod) {
    struct command *c = may_begin(s, session) ? calloc(1, sizeof(*c)) : NULL;

    if (!c) {
        http_reply_text(x, 503, "another command runs: try again\n");
        return;
    }
    *c = (struct command){
        .server = s, .session = session, .exchange = x, .text = BUF_INIT(COMMAND_TEXT_MAX)};
    c->work.data = c;
    c->pod = pod ? strdup(pod) : NULL;
    c->namespace = namespace ? strdup(namespace) : NULL;
    if ((pod && (!c->pod || !c->namespace)) ||
        uv_queue_work(s->loop, &c->work, run_command, after_command) < 0) {
        command_free(c);
        http_reply_text(x, 503, "out of memory\n");
        return;
    }
    count_commands(c, 1);
}

static void explain(struct web_server *s, struct session *session, struct http_exchange *x) {
    const char *namespace, *pod;

    if ((namespace = name_of(x, "namespace")) && (pod = name_of(x, "pod")))
        begin_command(s, session, x, namespace, pod);
}

static void on_explain(struct http_exchange *x, void *userdata) {
    enter(userdata, x, false, explain);
}

static void plan(struct web_server *s, struct session *session, struct http_exchange *x) {
    begin_command(s, session, x, NULL, NULL);
}

static void on_plan(struct http_exchange *x, void *userdata) {
    enter(userdata, x, false, plan);
}

/* ---- start and stop ---- */

static void make_routes(struct web_server *s) {
    static const struct http_route other[ROUTES_OTHER] = {
        {"GET", "/api/events", on_events},   {"GET", "/api/history", on_history},
        {"GET", "/api/explain", on_explain}, {"GET", "/api/plan", on_plan},
        {"GET", "/api/mode", on_mode},       {"GET", "/api/token", on_token},
        {"GET", "/healthz", on_health},
    };
    size_t n = ROUTES_OTHER;

    memcpy(s->routes, other, sizeof(other));
    for (const struct static_file *f = static_files; f->path && n < FILES_MAX + ROUTES_OTHER; f++)
        s->routes[n++] =
            (struct http_route){"GET", f->path, strcmp(f->path, "/") == 0 ? on_page : on_file};
}

static int init_guard(struct web_server *s, struct err *err) {
    if (!is_in_cluster(s))
        return guard_init(&s->guard, http_server_port(s->http)) == 0
                   ? 0
                   : err_set(err, EIO, "the kernel gives no random bytes for a token");
    return guard_init_cluster(&s->guard, s->options.hosts) == 0
               ? 0
               : err_set(err, EINVAL, "'%s' are no names of hosts", s->options.hosts);
}

int web_server_start(uv_loop_t *loop, const struct web_options *options, struct web_server **ret,
                     struct err *err) {
    struct web_server *s = calloc(1, sizeof(*s));

    if (!s)
        return err_errno(err, ENOMEM, "cannot start the server");
    s->loop = loop;
    s->options = *options;
    make_routes(s);
    const struct http_options http = {
        .listen = options->listen,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .routes = s->routes,
        .userdata = s,
        .headers = headers,
        .max_connections = is_in_cluster(s) ? CONNECTIONS_CLUSTER : 0,
        .max_per_client = is_in_cluster(s) ? CONNECTIONS_EACH : 0,
    };
    int r = http_server_start(loop, &http, &s->http, err);
    if (r < 0) {
        free(s);
        return r;
    }
    r = init_guard(s, err);
    if (r == 0)
        *ret = s;
    return r; /* the process ends, without the loop that the server's end needs */
}

const struct guard *web_server_guard(const struct web_server *s) {
    return &s->guard;
}

void web_server_close(struct web_server *s) {
    s->is_closed = true;
    http_server_close(s->http);
}
