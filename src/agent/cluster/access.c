/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/access.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include <uv.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/ratelimit.h"
#include "kube/api/client.h"

#define TURN_MS 100 /* between two looks whether a review may begin */
#define KEY_SIZE 32 /* of SHA-256 */
#define RIGHTS_PATH "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define RIGHTS_BODY                                                                                \
    "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SelfSubjectAccessReview\","            \
    "\"spec\":{\"resourceAttributes\":{\"group\":\"authentication.k8s.io\","                       \
    "\"resource\":\"tokenreviews\",\"verb\":\"create\"}}}"

/* A verdict that is kept. Tokens themselves are not. */
struct known {
    UT_hash_handle hh; /* in the order of their verdicts */
    unsigned char key[KEY_SIZE];
    enum access_verdict verdict;
    uint64_t until; /* milliseconds of the loop */
};

/* A client that waits for a verdict. */
struct question {
    struct question *next;
    token_review_cb on_verdict;
    void *userdata;
};

/* A token without a verdict. */
struct pending {
    UT_hash_handle hh; /* in the order of their arrival */
    unsigned char key[KEY_SIZE], address[16];
    struct access *access;
    char *token;
    struct token_review *review; /* NULL: it waits for its turn */
    bool was_allowed;            /* and has no bounds */
    struct question *questions;
};

struct access {
    struct access_options options;
    uv_timer_t turn;
    struct kube_call *rights;
    struct ratelimit limit;
    struct known *allowed, *refused;
    struct pending *pending;
};

static uint64_t now_of(const struct access *access) {
    return uv_now(access->turn.loop);
}

/* ---- what is known ---- */

static struct known *find_known(struct known *table, const unsigned char *key) {
    struct known *found = NULL;

    HASH_FIND(hh, table, key, KEY_SIZE, found);
    return found;
}

static void forget(struct known **table, struct known *known) {
    if (!known)
        return;
    HASH_DEL(*table, known);
    free(known);
}

/* The oldest verdict makes room. Without memory it is not kept. */
static void keep_in(struct known **table, unsigned max, const struct known *verdict) {
    struct known *known = malloc(sizeof(*known));

    if (HASH_COUNT(*table) >= max)
        forget(table, *table);
    if (!known)
        return;
    *known = *verdict;
    HASH_ADD(hh, *table, key, KEY_SIZE, known);
    (void) hash_added_or_freed(known);
}

static void keep(struct access *access, const unsigned char *key, enum access_verdict verdict) {
    struct known known = {.verdict = verdict};
    bool allowed = verdict == ACCESS_ALLOWED;

    memcpy(known.key, key, KEY_SIZE);
    known.until = now_of(access) + (allowed ? ACCESS_ALLOWED_MS : ACCESS_REFUSED_MS);
    forget(&access->allowed, find_known(access->allowed, key));
    forget(&access->refused, find_known(access->refused, key));
    if (allowed)
        keep_in(&access->allowed, ACCESS_ALLOWED_MAX, &known);
    else
        keep_in(&access->refused, ACCESS_REFUSED_MAX, &known);
}

/* ---- reviews ---- */

static void answer(struct pending *p, enum access_verdict verdict, const char *text) {
    struct question *q, *next;

    LL_FOREACH_SAFE(p->questions, q, next) {
        q->on_verdict(verdict, text, q->userdata);
        free(q);
    }
    free(p->token);
    free(p);
}

static void take_turns(struct access *access);

static void on_verdict(enum access_verdict verdict, const char *text, void *userdata) {
    struct pending *p = userdata;
    struct access *access = p->access;

    p->review = NULL;
    HASH_DEL(access->pending, p);
    if (verdict == ACCESS_ALLOWED || verdict == ACCESS_UNKNOWN || verdict == ACCESS_FORBIDDEN)
        keep(access, p->key, verdict);
    if (verdict == ACCESS_NO_RIGHT)
        access->options.on_no_right(text, access->options.userdata);
    answer(p, verdict, text);
    take_turns(access);
}

static void begin(struct pending *p) {
    if (token_review_start(p->access->options.client, p->token, on_verdict, p, &p->review) == 0)
        return;
    HASH_DEL(p->access->pending, p);
    answer(p, ACCESS_NO_ANSWER, "a request to it cannot be sent");
}

static void on_turn(uv_timer_t *timer) {
    take_turns(timer->data);
}

/* Begins what may begin, in the order of arrival. */
static void take_turns(struct access *access) {
    struct pending *p, *next;
    bool waits = false;

    HASH_ITER(hh, access->pending, p, next) {
        if (p->review)
            continue;
        if (!p->was_allowed && (waits || !ratelimit_take(&access->limit, now_of(access))))
            waits = true;
        else
            begin(p);
    }
    if (waits)
        (void) uv_timer_start(&access->turn, on_turn, TURN_MS, 0);
}

/* ---- questions ---- */

/* Whether one more token from that address may wait. */
static bool has_room(const struct access *access, const unsigned char *address) {
    unsigned all = 0, same = 0;

    for (const struct pending *p = access->pending; p; p = p->hh.next) {
        if (p->was_allowed)
            continue;
        all++;
        same += memcmp(p->address, address, sizeof(p->address)) == 0;
    }
    return all < ACCESS_REVIEWS_MAX && same < ACCESS_REVIEWS_OF_CLIENT;
}

static struct pending *add_pending(struct access *access, const unsigned char *key,
                                   const char *token, const unsigned char *address) {
    struct pending *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    memcpy(p->key, key, KEY_SIZE);
    memcpy(p->address, address, sizeof(p->address));
    p->access = access;
    p->was_allowed = find_known(access->allowed, key) != NULL;
    p->token = strdup(token);
    if (p->token)
        HASH_ADD(hh, access->pending, key, KEY_SIZE, p);
    if (p->token && hash_added(p))
        return p;
    free(p->token);
    free(p);
    return NULL;
}

static void wait_for(struct access *access, const unsigned char *key, const char *token,
                     const unsigned char *address, token_review_cb on_answer, void *userdata) {
    struct question *q = malloc(sizeof(*q));
    struct pending *p = NULL;

    HASH_FIND(hh, access->pending, key, KEY_SIZE, p);
    if (!p && q)
        p = add_pending(access, key, token, address);
    if (!p || !q) {
        free(q);
        on_answer(ACCESS_NO_ANSWER, "the agent is out of memory", userdata);
        return;
    }
    *q = (struct question){.on_verdict = on_answer, .userdata = userdata};
    LL_PREPEND(p->questions, q);
    take_turns(access);
}

void access_ask(struct access *access, const char *token, const unsigned char address[static 16],
                token_review_cb on_answer, void *userdata) {
    unsigned char key[KEY_SIZE];
    const struct known *known;
    struct pending *p = NULL;

    if (strlen(token) > ACCESS_TOKEN_MAX ||
        gnutls_hash_fast(GNUTLS_DIG_SHA256, token, strlen(token), key) < 0) {
        on_answer(ACCESS_UNKNOWN, "", userdata);
        return;
    }
    known = find_known(access->allowed, key);
    if (!known)
        known = find_known(access->refused, key);
    HASH_FIND(hh, access->pending, key, KEY_SIZE, p);
    if (known && now_of(access) < known->until)
        on_answer(known->verdict, "", userdata);
    else if (!p && !find_known(access->allowed, key) && !has_room(access, address))
        on_answer(ACCESS_BUSY, "", userdata);
    else
        wait_for(access, key, token, address, on_answer, userdata);
}

/* ---- start and stop ---- */

static void on_rights(const struct kube_response *response, void *userdata) {
    struct access *access = userdata;
    bool allowed = true;

    access->rights = NULL;
    (void) json_bool(JSON_PATH(response->body, "status", "allowed"), &allowed);
    if (!allowed)
        access->options.on_no_right("no right to create tokenreviews", access->options.userdata);
}

int access_start(const struct access_options *options, struct access **ret, struct err *err) {
    struct access *access = calloc(1, sizeof(*access));
    int r;

    if (!access)
        return err_errno(err, ENOMEM, "cannot ask about tokens of clients");
    access->options = *options;
    access->limit = (struct ratelimit){.per_second = ACCESS_PER_SECOND};
    r = kube_request(options->client, "POST", RIGHTS_PATH, NULL, RIGHTS_BODY, strlen(RIGHTS_BODY),
                     0, on_rights, access, &access->rights, err);
    if (r < 0) {
        free(access);
        return r;
    }
    (void) uv_timer_init(kube_client_loop(options->client), &access->turn);
    access->turn.data = access;
    *ret = access;
    return 0;
}

static void on_timer_closed(uv_handle_t *timer) {
    free(timer->data);
}

void access_stop(struct access *access) {
    struct known *known, *next_known;
    struct pending *p, *next;

    if (!access)
        return;
    if (access->rights)
        kube_call_cancel(access->rights);
    HASH_ITER(hh, access->pending, p, next) {
        HASH_DEL(access->pending, p);
        if (p->review)
            token_review_cancel(p->review);
        answer(p, ACCESS_NO_ANSWER, "the agent is about to end");
    }
    HASH_ITER(hh, access->allowed, known, next_known) {
        forget(&access->allowed, known);
    }
    HASH_ITER(hh, access->refused, known, next_known) {
        forget(&access->refused, known);
    }
    uv_close((uv_handle_t *) &access->turn, on_timer_closed);
}
