/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/reflector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/step.h"
#include "kube/api/client.h"
#include "kube/api/transport.h"
#include "wire/http_status.h"
#include "wire/lines.h"

#define PAGE 500u
#define WATCH_SECONDS 600u
#define RETRY_MIN_MS 200u
#define RETRY_MAX_MS 30000u
#define LIST_TIMEOUT_MS 60000u
#define ABSENT_MS 10000u /* interval at which an absent collection is requested again */
/* How long after its own end a watch may go on before we end it. */
#define WATCH_GRACE_SECONDS 30u
/* A watch that ends sooner than that without an event counts as a failure. */
#define WATCH_SHORT_MS 1000u
/* etcd holds objects up to 1.5 MB; as JSON with everything they do not get near this. */
#define EVENT_MAX ((size_t) 16 << 20)
#define VERSION_MAX 64

struct kube_reflector {
    struct kube_client *client;
    struct kube_reflector_handlers handlers;
    void *userdata;
    char *path;
    char *query;
    unsigned page, watch_seconds, retry_min_ms, retry_max_ms;
    bool may_be_absent;

    uv_timer_t timer;            /* the next list or watch */
    struct kube_call *list;      /* in flight */
    struct kube_exchange *watch; /* in flight */
    char version[VERSION_MAX];   /* where to watch from; "" : list first */
    char *more;                  /* the next page's token */
    bool unpaged;                /* pages expired on us: ask for everything at once */
    bool listed;                 /* a full list was delivered at least once */
    bool refused;                /* the last list: 403 */
    bool absent;                 /* the server does not know the collection */
    unsigned failures;           /* in a row */
    uint64_t list_began;         /* loop time at which the first page was requested */
    bool stopped;
    unsigned busy; /* inside callbacks: do not free */
    bool timer_closed;

    struct json_parser *parser; /* for events */
    struct line_splitter lines;
    int watch_status; /* HTTP */
    bool watch_news;  /* this watch has delivered something */
    bool watch_gone;  /* 410: the version is too old */
    uint64_t watch_started;
    struct err watch_error;
};

static void start_list(struct kube_reflector *reflector);
static void start_watch(struct kube_reflector *reflector);

static void free_when_done(struct kube_reflector *reflector) {
    if (!reflector->stopped || reflector->busy || !reflector->timer_closed)
        return;
    (void) json_parser_free(reflector->parser);
    line_splitter_done(&reflector->lines);
    free(reflector->path);
    free(reflector->query);
    free(reflector->more);
    free(reflector);
}

/* ---- when to go on ---- */

static void on_timer(uv_timer_t *timer) {
    struct kube_reflector *reflector = timer->data;
    if (reflector->version[0] && !reflector->more)
        start_watch(reflector);
    else
        start_list(reflector);
}

static void go_on(struct kube_reflector *reflector, unsigned ms) {
    if (!reflector->stopped)
        (void) uv_timer_start(&reflector->timer, on_timer, ms, 0);
}

/* Doubles from the least to the most, then takes a random half off, so that the clients of a
 * server that comes back do not all arrive at once. */
static unsigned back_off(const struct kube_reflector *reflector) {
    unsigned shift = reflector->failures > 16 ? 16 : reflector->failures;
    uint64_t ms = (uint64_t) reflector->retry_min_ms << (shift > 0 ? shift - 1 : 0);
    uint32_t chance = 0;
    if (ms > reflector->retry_max_ms)
        ms = reflector->retry_max_ms;
    (void) !getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
    return (unsigned) (ms / 2 + chance % (ms / 2 + 1));
}

static void start_over(struct kube_reflector *reflector) {
    reflector->version[0] = '\0';
    free(reflector->more);
    reflector->more = NULL;
}

static void report_failure(struct kube_reflector *reflector, const char *what, const char *text) {
    char line[ERR_TEXT_MAX];
    reflector->failures++;
    unsigned ms = back_off(reflector);
    go_on(reflector, ms);
    (void) snprintf(line, sizeof(line), "cannot %s %s: %s", what, reflector->path, text);
    if (reflector->handlers.on_trouble && !reflector->stopped)
        reflector->handlers.on_trouble(line, ms, reflector->userdata);
}

static bool take_version(struct kube_reflector *reflector, struct json object) {
    const char *version = json_string(JSON_PATH(object, "metadata", "resourceVersion"));
    if (!version || !*version || strlen(version) >= VERSION_MAX)
        return false;
    (void) snprintf(reflector->version, VERSION_MAX, "%s", version);
    return true;
}

/* ---- list ---- */

static void deliver_page(struct kube_reflector *reflector, struct json body) {
    struct json_iter it = json_iter(json_get(body, "items"));
    struct json item;
    while (!reflector->stopped && json_next(&it, NULL, &item)) {
        reflector->handlers.on_object(KUBE_ADDED, item, reflector->userdata);
        step_end();
    }
}

static void take_page(struct kube_reflector *reflector, struct json body) {
    bool first = !reflector->more;
    const char *more = json_string(JSON_PATH(body, "metadata", "continue"));
    char *copy = more && *more ? strdup(more) : NULL;
    if (json_type(json_get(body, "items")) == JSON_INVALID || !take_version(reflector, body) ||
        (more && *more && !copy)) {
        free(copy);
        start_over(reflector);
        report_failure(reflector, "list", "the answer is not a list");
        return;
    }
    free(reflector->more);
    reflector->more = copy;
    if (first && reflector->handlers.on_sync_begin)
        reflector->handlers.on_sync_begin(reflector->userdata);
    deliver_page(reflector, body);
    if (reflector->stopped)
        return;
    if (!reflector->more) {
        reflector->failures = 0; /* not sooner: a list that always fails at its second page must not
                                    be asked for without pause */
        reflector->unpaged = false;
        reflector->listed = true;
        if (reflector->handlers.on_sync_end)
            reflector->handlers.on_sync_end(reflector->userdata);
    }
    go_on(reflector, 0);
}

/* A missing resource cannot be watched. Each poll reports an empty list, which removes the objects
 * of an earlier one. */
static void take_absence(struct kube_reflector *reflector) {
    start_over(reflector);
    reflector->failures = 0;
    reflector->absent = reflector->listed = true;
    if (reflector->handlers.on_sync_begin)
        reflector->handlers.on_sync_begin(reflector->userdata);
    if (!reflector->stopped && reflector->handlers.on_sync_end)
        reflector->handlers.on_sync_end(reflector->userdata);
    go_on(reflector, ABSENT_MS);
}

static void on_list(const struct kube_response *response, void *userdata) {
    struct kube_reflector *reflector = userdata;
    reflector->list = NULL;
    reflector->busy++;
    reflector->absent = false;
    reflector->refused = response->status == 403;
    if (http_is_success(response->status)) {
        take_page(reflector, response->body);
    } else if (response->status == 404 && reflector->may_be_absent) {
        take_absence(reflector);
    } else {
        reflector->unpaged = response->status == 410;
        start_over(reflector);
        report_failure(reflector, "list", response->text);
    }
    reflector->busy--;
    free_when_done(reflector);
}

/* A continue token may hold anything; in a query only some bytes stay as they are. */
static void put_escaped(struct buf *out, const char *text) {
    for (const char *p = text; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || strchr("-._~", *p);
        if (plain)
            buf_putc(out, *p);
        else
            buf_printf(out, "%%%02X", (unsigned char) *p);
    }
}

static void put_path(const struct kube_reflector *reflector, struct buf *out) {
    buf_printf(out, "%s?", reflector->path);
    if (reflector->query[0])
        buf_printf(out, "%s&", reflector->query);
}

static void start_list(struct kube_reflector *reflector) {
    _cleanup_buf_ struct buf path = BUF_INIT(65536);
    struct err err = {0};
    put_path(reflector, &path);
    buf_printf(&path, "limit=%u", reflector->unpaged ? 0 : reflector->page);
    if (!reflector->more)
        reflector->list_began = uv_now(kube_client_loop(reflector->client));
    if (reflector->more) {
        buf_puts(&path, "&continue=");
        put_escaped(&path, reflector->more);
    }
    int r = buf_error(&path);
    if (r < 0)
        (void) err_errno(&err, -r, "path is too long");
    else
        r = kube_request(reflector->client, "GET", path.data, NULL, NULL, 0, LIST_TIMEOUT_MS,
                         on_list, reflector, &reflector->list, &err);
    if (r < 0)
        report_failure(reflector, "list", err.text);
}

/* ---- watch ---- */

static int take_event(struct kube_reflector *reflector, struct json event) {
    static const struct {
        const char *type;
        enum kube_event event;
    } types[] = {{"ADDED", KUBE_ADDED}, {"MODIFIED", KUBE_MODIFIED}, {"DELETED", KUBE_DELETED}};
    const char *type = json_string(json_get(event, "type"));
    struct json object = json_get(event, "object");
    uint64_t code = 0;
    if (!type)
        return err_set(&reflector->watch_error, EBADMSG, "an event has no type");
    if (strcmp(type, "ERROR") == 0) {
        const char *message = json_string(json_get(object, "message"));
        reflector->watch_gone = json_u64(json_get(object, "code"), &code) && code == 410;
        return err_set(&reflector->watch_error, EIO, "%s", message ? message : "error event");
    }
    /* Without a version the next watch would begin at the wrong place. */
    if (!take_version(reflector, object))
        return err_set(&reflector->watch_error, EBADMSG, "an event has no resourceVersion");
    reflector->failures = 0;
    reflector->watch_news = true;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type, types[i].type) == 0)
            reflector->handlers.on_object(types[i].event, object, reflector->userdata);
    return reflector->stopped ? -ECANCELED : 0;
}

static int on_line(const char *line, size_t size, void *user) {
    struct kube_reflector *reflector = user;
    struct json event;
    if (size == 0)
        return 0;
    int r = json_parse(reflector->parser, line, size, &event, &reflector->watch_error);
    return r < 0 ? r : take_event(reflector, event);
}

static void on_watch_status(int http_status, void *user) {
    struct kube_reflector *reflector = user;
    reflector->watch_status = http_status;
}

static int on_watch_data(const void *data, size_t size, void *user) {
    struct kube_reflector *reflector = user;
    if (reflector->watch_status != 200)
        return 0;
    reflector->busy++;
    int r = line_splitter_feed(&reflector->lines, data, size, on_line, reflector);
    reflector->busy--;
    if (r < 0 && reflector->watch_error.text[0] == '\0')
        (void) err_errno(&reflector->watch_error, -r, "cannot take an event");
    free_when_done(reflector);
    return r;
}

/* The end of a watch is its normal fate; what it was decides how soon, and with what, to go on. */
static void on_watch_done(const struct kube_outcome *outcome, void *user) {
    struct kube_reflector *reflector = user;
    char text[64];
    uint64_t lasted = uv_now(kube_client_loop(reflector->client)) - reflector->watch_started;
    reflector->watch = NULL;
    if (reflector->stopped)
        return;
    reflector->busy++;
    if (reflector->watch_gone || reflector->watch_status == 410 ||
        (reflector->watch_status == 404 && reflector->may_be_absent)) {
        start_over(reflector);
        go_on(reflector, 0);
    } else if (reflector->watch_error.text[0]) {
        start_over(reflector); /* an event was lost: a new list is needed */
        report_failure(reflector, "watch", reflector->watch_error.text);
    } else if (outcome->error) {
        report_failure(reflector, "watch", outcome->text);
    } else if (reflector->watch_status != 200) {
        (void) snprintf(text, sizeof(text), "HTTP status %d", reflector->watch_status);
        report_failure(reflector, "watch", text);
    } else if (!reflector->watch_news && lasted < WATCH_SHORT_MS) {
        report_failure(reflector, "watch", "the API server ended it at once");
    } else {
        reflector->failures = 0;
        go_on(reflector, 0);
    }
    reflector->busy--;
    free_when_done(reflector);
}

static const struct kube_exchange_handlers watch_handlers = {on_watch_status, on_watch_data,
                                                             on_watch_done};

static void start_watch(struct kube_reflector *reflector) {
    _cleanup_buf_ struct buf path = BUF_INIT(65536);
    struct err err = {0};
    put_path(reflector, &path);
    buf_printf(&path, "watch=true&allowWatchBookmarks=true&timeoutSeconds=%u&resourceVersion=",
               reflector->watch_seconds);
    put_escaped(&path, reflector->version);

    reflector->watch_status = 0;
    reflector->watch_news = false;
    reflector->watch_gone = false;
    reflector->watch_error = (struct err){0};
    reflector->watch_started = uv_now(kube_client_loop(reflector->client));
    line_splitter_reset(&reflector->lines);
    int r = buf_error(&path);
    if (r < 0) {
        (void) err_errno(&err, -r, "path is too long");
    } else {
        const struct kube_exchange_options options = {
            .method = "GET",
            .path = path.data,
            .timeout_ms = (reflector->watch_seconds + WATCH_GRACE_SECONDS) * 1000,
        };
        r = kube_exchange_start(kube_client_transport(reflector->client), &options, &watch_handlers,
                                reflector, &reflector->watch, &err);
    }
    if (r < 0)
        report_failure(reflector, "watch", err.text);
}

/* ---- the reflector ---- */

static unsigned or_default(unsigned value, unsigned otherwise) {
    return value ? value : otherwise;
}

int kube_reflector_start(struct kube_client *client, const struct kube_reflector_options *options,
                         const struct kube_reflector_handlers *handlers, void *userdata,
                         struct kube_reflector **ret_reflector, struct err *err) {
    struct kube_reflector *reflector = calloc(1, sizeof(*reflector));
    if (!reflector)
        return err_errno(err, ENOMEM, "cannot watch %s", options->path);
    reflector->path = strdup(options->path);
    reflector->query = strdup(options->query ? options->query : "");
    reflector->parser = json_parser_new();
    if (!reflector->path || !reflector->query || !reflector->parser) {
        reflector->stopped = true;
        reflector->timer_closed = true;
        free_when_done(reflector);
        return err_errno(err, ENOMEM, "cannot watch %s", options->path);
    }
    reflector->client = client;
    reflector->handlers = *handlers;
    reflector->userdata = userdata;
    reflector->page = or_default(options->page, PAGE);
    reflector->watch_seconds = or_default(options->watch_seconds, WATCH_SECONDS);
    reflector->retry_min_ms = or_default(options->retry_min_ms, RETRY_MIN_MS);
    reflector->retry_max_ms = or_default(options->retry_max_ms, RETRY_MAX_MS);
    reflector->may_be_absent = options->may_be_absent;
    line_splitter_init(&reflector->lines, EVENT_MAX);
    (void) uv_timer_init(kube_client_loop(client), &reflector->timer);
    reflector->timer.data = reflector;
    go_on(reflector, 0);
    *ret_reflector = reflector;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    struct kube_reflector *reflector = handle->data;
    reflector->timer_closed = true;
    free_when_done(reflector);
}

void kube_reflector_stop(struct kube_reflector *reflector) {
    if (!reflector || reflector->stopped)
        return;
    reflector->stopped = true;
    if (reflector->list)
        kube_call_cancel(reflector->list);
    if (reflector->watch)
        kube_exchange_cancel(reflector->watch);
    uv_close((uv_handle_t *) &reflector->timer, on_timer_closed);
}

void kube_reflector_relist(struct kube_reflector *reflector) {
    if (reflector->stopped)
        return;
    if (reflector->list)
        kube_call_cancel(take_ptr(reflector->list));
    if (reflector->watch)
        kube_exchange_cancel(take_ptr(reflector->watch));
    start_over(reflector);
    go_on(reflector, 0);
}

uint64_t kube_reflector_list_began(const struct kube_reflector *reflector) {
    return reflector->list_began;
}

bool kube_reflector_is_refused(const struct kube_reflector *reflector) {
    return reflector->refused;
}

bool kube_reflector_is_synced(const struct kube_reflector *reflector) {
    /* A watch that was taken up again is as good as any, also where nothing happens for long that
     * would end the count of failures. */
    bool well = reflector->failures == 0 || (reflector->watch && reflector->watch_status == 200);
    return reflector->listed && well &&
           (reflector->absent || (reflector->version[0] && !reflector->more));
}
