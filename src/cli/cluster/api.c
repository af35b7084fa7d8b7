/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/api.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/server_time.h"
#include "base/text.h"
#include "cli/clean.h"
#include "cli/cluster/channel.h"
#include "cli/cluster/proxy.h"
#include "cli/login.h"
#include "wire/http_answer.h"
#include "wire/http_status.h"

#define AT_ONCE 32      /* connections */
#define LOGIN_AT_ONCE 8 /* with a login, of which a process can have many: so few, */
#define LOGIN_IDLE 2    /* these stay, */
#define LOGIN_ANSWER_MAX ((size_t) 64 << 20) /* and an answer is no longer */
#define ANSWER_MS 60000                      /* for a list of a large cluster */
#define ANSWER_MAX ((size_t) 1 << 30)
#define REASON_MAX 300 /* of a text that a proxy answers with */
#define TRIES_MAX 5    /* of a request that the server puts off (429) */
#define PUT_OFF_S 1    /* where it does not say how long */
#define STALL_MS 3000  /* between parts of an answer for which others may have to wait */

struct request {
    const char *method, *path;
    const char *type, *body;          /* NULL: none */
    const char *who, *token, *accept; /* as in struct api_get */
    size_t max;
};

struct job {
    struct request request;
    struct buf *ret;
    struct err *err;
    int result;
    unsigned tries;
};

/* A connection and the job that it carries, or will carry. */
struct carrier {
    struct channel *channel; /* NULL: none */
    struct job *job;
    bool is_used;   /* it has carried an answer before */
    uint64_t end;   /* milliseconds */
    uint64_t heard; /* when the last part of the answer came; 0: none has */
    uint64_t again; /* when the job, which was put off, is tried again; 0: it is carried */
    struct http_answer answer;
};

struct carriers {
    struct carrier list[AT_ONCE];
    size_t busy;
};

/* Connections are kept for the requests that follow. */
static _Thread_local struct channel *idle[AT_ONCE];
static _Thread_local size_t nidle;
static _Thread_local char part[1 << 16];
static _Thread_local void (*on_answer)(size_t len);
static _Thread_local int cancel_fd = -1;
static _Thread_local unsigned hurry_ms;

static size_t at_once(void) {
    return login_used() ? LOGIN_AT_ONCE : AT_ONCE;
}

static size_t answer_max(const struct request *request) {
    if (request->max)
        return request->max;
    return login_used() ? LOGIN_ANSWER_MAX : ANSWER_MAX;
}

/* Who the connections lead to. */
static const char *peer(void) {
    return login_used() ? "the API server" : "kubectl proxy";
}

/* ---- what an answer means ---- */

static int code_of(int status) {
    switch (status) {
    case 401:
    case 403:
        return EACCES;
    case 404:
        return ENOENT;
    case 409:
        return EEXIST;
    case 429:
        return EBUSY;
    default:
        return EREMOTEIO;
    }
}

/* A text that is no JSON comes from kubectl, or from a proxy before the API server. */
static int refuse_text(int status, const char *who, const struct buf *body, struct err *err) {
    const char *text = buf_str(body);
    int len = (int) strcspn(text, "\r\n");

    if (len > REASON_MAX)
        len = REASON_MAX;
    if (who && (status == 500 || status == 502)) /* kubectl answers so, too */
        return err_set(err, EREMOTEIO, "%s, or kubectl on the way to it, answers %d: %.*s", who,
                       status, len, text);
    if (who && status == 401)
        return err_set(err, ENOKEY, "%s answers 401: %.*s", who, len, text);
    if (who)
        return err_set(err, code_of(status), "%s answers %d: %.*s", who, status, len, text);
    if (status >= 500)
        return err_set(err, EREMOTEIO, "kubectl cannot reach the API server: %.*s", len, text);
    return err_set(err, code_of(status), "the API server answers %d: %.*s", status, len, text);
}

static int refuse(const struct http_answer *answer, const char *who, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json body;
    const char *message = NULL;

    if (json_open(buf_str(&answer->body), answer->body.len, &parser, &body, NULL) == 0)
        message = json_string(json_get(body, "message"));
    if (answer->status == 401 && !who && login_used())
        return err_set(err, EKEYREJECTED,
                       "the API server does not take the token (%s): it has expired, was revoked, "
                       "or is of another cluster",
                       message ? message : "401");
    if (!message)
        return refuse_text(answer->status, who, &answer->body, err);
    if (answer->status == 401)
        return err_set(err, EACCES,
                       "the API server does not know the user of the context (%s): log in again",
                       message);
    return err_set(err, code_of(answer->status), "%s", message);
}

static void judge(struct job *job, struct http_answer *answer) {
    if (!http_is_success(answer->status)) {
        job->result = refuse(answer, job->request.who, job->err);
        (void) clean_text(job->err->text, false); /* an agent, or a proxy on the way, wrote it */
        return;
    }
    job->result = 0;
    if (job->ret->len > 0) {
        buf_append(job->ret, buf_str(&answer->body), answer->body.len);
        if (buf_error(job->ret) < 0)
            job->result = err_errno(job->err, job->ret->error, "cannot hold the answer");
        return;
    }
    buf_done(job->ret); /* a list can be long: it is handed over */
    *job->ret = answer->body;
    answer->body = BUF_INIT(0);
}

/* ---- a request on its connection ---- */

/* "localhost" is what `kubectl proxy` takes. */
static int send_request(struct channel *channel, const struct request *request) {
    _cleanup_wipe_ struct buf text = BUF_INIT(0); /* with a token */
    const struct api_login *login = login_used();

    buf_printf(&text,
               "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\n"
               "User-Agent: aliquot/" ALIQUOT_VERSION "\r\n",
               request->method, request->path,
               login ? login->server + strlen("https://") : "localhost",
               request->accept ? request->accept : "application/json");
    if (login)
        buf_printf(&text, "Authorization: Bearer %s\r\n", login->token);
    if (request->token)
        buf_printf(&text, "X-Aliquot-Token: %s\r\n", request->token);
    if (request->body)
        buf_printf(&text, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n%s", request->type,
                   strlen(request->body), request->body);
    else
        buf_puts(&text, "\r\n");
    return buf_error(&text) < 0 ? buf_error(&text) : channel_send(channel, text.data, text.len);
}

static void fail(struct job *job, int r, const char *text) {
    job->result = err_set(job->err, -r, "%s", text);
}

static void drop(struct carriers *of, struct carrier *c) {
    if (c->job) {
        of->busy--;
        http_answer_done(&c->answer);
    }
    channel_close(c->channel);
    *c = (struct carrier){0};
}

static void keep(struct carriers *of, struct carrier *c) {
    if (c->answer.keeps && nidle < at_once())
        idle[nidle++] = take_ptr(c->channel);
    drop(of, c);
}

/* An idle connection may be gone by now: then the next one, at last a new one. */
static void begin(struct carriers *of, struct carrier *c, struct job *job, unsigned each_ms) {
    int r = 0;

    do {
        channel_close(c->channel);
        c->is_used = nidle > 0;
        c->channel = nidle > 0 ? idle[--nidle] : channel_open(login_used(), job->err);
        if (!c->channel) {
            job->result = -job->err->code;
            *c = (struct carrier){0};
            return;
        }
        r = send_request(c->channel, &job->request);
    } while (r < 0 && c->is_used);
    if (r < 0) {
        job->result = err_set(job->err, -r, "%s takes no request", peer());
        drop(of, c);
        return;
    }
    c->job = job;
    c->end = clock_ms(CLOCK_MONOTONIC) + each_ms;
    job->tries++;
    http_answer_init(&c->answer, answer_max(&job->request));
    of->busy++;
}

/* An overloaded server has done nothing yet and says when to ask again. False: not within the time
 * of the request, or too often already. */
static bool put_off(struct carriers *of, struct carrier *c) {
    const uint32_t seconds = c->answer.retry_s ? c->answer.retry_s : PUT_OFF_S;
    const struct carrier later = {.job = c->job,
                                  .end = c->end,
                                  .again = clock_ms(CLOCK_MONOTONIC) + 1000 * (uint64_t) seconds};

    if (c->answer.status != 429 || hurry_ms || c->job->tries >= TRIES_MAX || later.again >= c->end)
        return false;
    keep(of, c);
    *c = later;
    of->busy++;
    http_answer_init(&c->answer, 0);
    return true;
}

static void try_again(struct carriers *of, struct carrier *c, uint64_t now) {
    struct job *job = c->job;
    unsigned left_ms = (unsigned) (c->end - now);

    drop(of, c);
    begin(of, c, job, left_ms);
}

/* The connection broke off before a byte of the answer to a GET: it may be asked again. */
static bool is_worth_a_retry(const struct carrier *c) {
    return c->is_used && c->answer.part == HTTP_ANSWER_HEAD && c->answer.line.len == 0 &&
           !c->job->request.body;
}

/* The date of a page that the API server has of a pod is the pod's; so is that of a metrics API,
 * which a pod serves. */
static void hear_time(const struct job *job, const struct http_answer *answer) {
    if (!strstr(job->request.path, "/proxy/") && !strstr(job->request.path, ".metrics.k8s.io/"))
        (void) server_time_heard(answer->date);
}

static void receive(struct carriers *of, struct carrier *c, unsigned each_ms) {
    struct job *job = c->job;
    ssize_t n = channel_receive(c->channel, part, sizeof(part));
    int r;

    if (n == -EAGAIN)
        return;
    if (n <= 0 && is_worth_a_retry(c)) {
        drop(of, c);
        begin(of, c, job, each_ms);
        return;
    }
    if (n > 0)
        r = http_answer_feed(&c->answer, part, (size_t) n, job->err);
    else
        r = http_answer_end(&c->answer, job->err);
    if (r >= 0 && on_answer && c->answer.body.len > 0 && http_is_success(c->answer.status)) {
        on_answer(c->answer.body.len);
        c->heard = clock_ms(CLOCK_MONOTONIC);
    }
    if (r == -EMSGSIZE)
        r = err_set(job->err, EMSGSIZE, "the answer is longer than %zu bytes",
                    answer_max(&job->request));
    if (r < 0) {
        job->result = err_wrap(job->err, "%s", peer());
        drop(of, c);
    } else if (c->answer.part == HTTP_ANSWER_COMPLETE && !put_off(of, c)) {
        judge(job, &c->answer);
        hear_time(job, &c->answer);
        keep(of, c);
    }
}

static void receive_all(struct carriers *of, struct carrier *c, unsigned each_ms) {
    do
        receive(of, c, each_ms);
    while (c->channel && channel_holds(c->channel));
}

/* ---- many at a time ---- */

/* When something is to be done for it that it does not cause itself. */
static uint64_t next_of(const struct carrier *c) {
    const uint64_t stall = c->heard ? c->heard + STALL_MS : UINT64_MAX;

    if (c->again)
        return c->again;
    return stall < c->end ? stall : c->end;
}

static void give_up(struct carriers *of, struct carrier *c, int r, const char *text) {
    fail(c->job, r, text);
    drop(of, c);
}

static void look_at(struct carriers *of, struct carrier *c, bool has_news, unsigned each_ms) {
    uint64_t now = clock_ms(CLOCK_MONOTONIC);

    if (c->again && now >= c->again)
        try_again(of, c, now);
    else if (has_news)
        receive_all(of, c, each_ms);
    else if (now >= c->end)
        give_up(of, c, -ETIMEDOUT, "no answer in time");
    else if (now >= next_of(c))
        give_up(of, c, -ETIMEDOUT, "the answer has stopped in the middle");
}

static bool is_cancelled(void) {
    struct pollfd fd = {cancel_fd, POLLIN, 0};

    return cancel_fd >= 0 && poll(&fd, 1, 0) > 0;
}

/* Waits for an answer, for a word of kubectl, for the end of all, or for the first deadline. */
static void await(struct carriers *of, unsigned each_ms) {
    struct pollfd fds[AT_ONCE + 2];
    uint64_t now = clock_ms(CLOCK_MONOTONIC), first = UINT64_MAX;

    for (size_t i = 0; i < AT_ONCE; i++) {
        struct carrier *c = &of->list[i];
        fds[i] = (struct pollfd){c->channel ? channel_fd(c->channel) : -1, POLLIN, 0};
        if (c->job && next_of(c) < first)
            first = next_of(c);
    }
    fds[AT_ONCE] = (struct pollfd){proxy_complaints(), POLLIN, 0};
    fds[AT_ONCE + 1] = (struct pollfd){cancel_fd, POLLIN, 0};
    (void) poll(fds, AT_ONCE + 2, first > now ? (int) (first - now) : 0);
    if (fds[AT_ONCE].revents)
        proxy_read_complaints();
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct carrier *c = &of->list[i];
        if (c->job && fds[AT_ONCE + 1].revents)
            give_up(of, c, -ECANCELED, "broken off");
        else if (c->job)
            look_at(of, c, fds[i].revents, each_ms);
    }
}

static void do_all(struct job *jobs, size_t n, unsigned each_ms, unsigned all_ms) {
    struct carriers of = {0};
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + all_ms;
    size_t next = 0;

    while (next < n || of.busy > 0) {
        for (size_t i = 0; i < at_once() && next < n; i++) {
            uint64_t now = clock_ms(CLOCK_MONOTONIC);
            if (of.list[i].job)
                continue;
            if (is_cancelled())
                fail(&jobs[next], -ECANCELED, "broken off");
            else if (now >= end)
                fail(&jobs[next], -ETIMEDOUT, "not asked: the time for all of them is over");
            else
                begin(&of, &of.list[i], &jobs[next],
                      end - now < each_ms ? (unsigned) (end - now) : each_ms);
            next++;
        }
        if (of.busy > 0)
            await(&of, each_ms);
    }
    while (login_used() && nidle > LOGIN_IDLE)
        channel_close(idle[--nidle]);
}

void api_on_answer(void (*take_turn)(size_t len)) {
    on_answer = take_turn;
}

void api_hurry(unsigned ms) {
    hurry_ms = ms;
}

void api_cancel_by(int fd) {
    cancel_fd = fd;
}

void api_close(void) {
    while (nidle > 0)
        channel_close(idle[--nidle]);
}

void api_get_all(struct api_get *gets, size_t n, unsigned each_ms, unsigned all_ms) {
    _cleanup_free_ struct job *jobs = calloc(n ? n : 1, sizeof(*jobs));

    for (size_t i = 0; i < n && jobs; i++)
        jobs[i] = (struct job){.request = {.method = "GET",
                                           .path = gets[i].path,
                                           .who = gets[i].who,
                                           .token = gets[i].token,
                                           .accept = gets[i].accept,
                                           .max = gets[i].max},
                               .ret = &gets[i].text,
                               .err = &gets[i].err};
    if (jobs)
        do_all(jobs, n, each_ms, all_ms);
    for (size_t i = 0; i < n; i++)
        gets[i].result =
            jobs ? jobs[i].result : err_errno(&gets[i].err, ENOMEM, "cannot send a request");
}

void api_gets_done(struct api_get *gets, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(gets[i].path);
        buf_done(&gets[i].text);
    }
    free(gets);
}

/* ---- one ---- */

static int do_one(const struct request *request, struct buf *ret, struct err *err) {
    struct err own = {0};
    struct job job = {.request = *request, .ret = ret, .err = err ? err : &own};

    unsigned ms = hurry_ms ? hurry_ms : ANSWER_MS;

    do_all(&job, 1, ms, ms);
    return job.result;
}

int api_get(const char *path, struct buf *ret, struct err *err) {
    return do_one(&(struct request){.method = "GET", .path = path}, ret, err);
}

int api_get_own(const char *path, const char *lacks, struct buf *ret, struct err *err) {
    int r = api_get(path, ret, err);

    return r == -ENOENT ? err_set(err, ENOENT,
                                  "the cluster %s: Aliquot is not installed in it "
                                  "(docs/install.md)",
                                  lacks)
                        : r;
}

int api_read(const char *path, struct json_parser **ret_parser, struct json *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(ANSWER_MAX);
    int r = api_get(path, &text, err);

    return r < 0 ? r : json_open(buf_str(&text), text.len, ret_parser, ret, err);
}

int api_each(const char *path, void (*each)(struct json object, void *userdata), void *userdata,
             struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, object;
    int r = api_read(path, &parser, &list, err);

    if (r < 0)
        return r;
    struct json_iter it = json_iter(json_get(list, "items"));
    while (json_next(&it, NULL, &object))
        each(object, userdata);
    return 0;
}

const char *api_list_path(const char *of_all, const char *namespace,
                          char ret[static API_PATH_MAX]) {
    const char *kind = strrchr(of_all, '/');

    (void) snprintf(ret, API_PATH_MAX, "%.*s%s%s%s", (int) (kind - of_all), of_all,
                    namespace ? "/namespaces/" : "", namespace ? namespace : "", kind);
    return ret;
}

/* It is base64url; anything else would be part of the request. */
int api_continue(const char *more, char ret[static API_CONTINUE_MAX], struct err *err) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=";

    if (strlen(more) >= API_CONTINUE_MAX || more[strspn(more, letters)] != '\0')
        return err_set(err, EBADMSG, "the API server's list goes on in a way that is not known");
    text_copy(ret, API_CONTINUE_MAX, more);
    return 0;
}

int api_patch(const char *path, const char *type, const char *patch, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    return do_one(&(struct request){.method = "PATCH", .path = path, .type = type, .body = patch},
                  &text, err);
}

int api_delete(const char *path, struct buf *ret, struct err *err) {
    return do_one(&(struct request){.method = "DELETE", .path = path}, ret, err);
}

int api_create(const char *path, const char *object, struct json_parser **ret_parser,
               struct json *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(ANSWER_MAX);
    const struct request request = {
        .method = "POST", .path = path, .type = "application/json", .body = object};
    int r = do_one(&request, &text, err);

    return r < 0 ? r : json_open(buf_str(&text), text.len, ret_parser, ret, err);
}

bool api_is_name(const char *text) {
    size_t len = strlen(text);

    return len > 0 && len <= API_NAME_MAX && text[0] != '.' && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}
