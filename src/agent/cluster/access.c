/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/access.h"

#include <gnutls/crypto.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include <uv.h>

#include "base/err.h"
#include "base/ratelimit.h"
#include "base/text.h"
#include "kube/api/client.h"

#define TURN_MS 100 /* between two looks whether a review may begin */
#define RIGHTS_PATH "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define RIGHTS_BODY                                                                                \
    "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SelfSubjectAccessReview\","            \
    "\"spec\":{\"resourceAttributes\":{\"group\":\"authentication.k8s.io\","                       \
    "\"resource\":\"tokenreviews\",\"verb\":\"create\"}}}"

/* A client that waits for a verdict. */
struct question {
    struct question *next;
    access_cb on_verdict;
    void *userdata;
};

/* A token without a verdict. */
struct pending {
    UT_hash_handle hh; /* in the order of their arrival */
    unsigned char key[VERDICT_KEY_SIZE], address[16];
    struct access *access;
    char *token;
    struct token_review *review; /* NULL: it waits for its turn */
    bool was_allowed;            /* and has bounds of its own */
    struct question *questions;
};

struct access {
    struct access_options options;
    uv_timer_t turn;
    struct kube_call *rights;
    struct token_reviewer reviewer;
    char *token_file;
    struct ratelimit limit, limit_of_allowed;
    struct kept_verdicts allowed, refused;
    struct pending *pending;
};

static uint64_t now_of(const struct access *access) {
    return uv_now(access->turn.loop);
}

static bool was_allowed(const struct access *access, const unsigned char *key) {
    const struct kept_verdict *v = kept_verdicts_find(&access->allowed, key);

    return v && now_of(access) < v->until + ACCESS_RETURN_MS;
}

static void keep(struct access *access, const unsigned char *key, enum access_verdict verdict,
                 uint64_t until) {
    bool allowed = verdict == ACCESS_ALLOWED;
    uint64_t now = now_of(access);

    if (now > ACCESS_RETURN_MS)
        kept_verdicts_forget_ended(&access->allowed, now - ACCESS_RETURN_MS);
    kept_verdicts_forget(allowed ? &access->refused : &access->allowed, key);
    kept_verdicts_put(allowed ? &access->allowed : &access->refused, key, verdict, until);
}

/* ---- reviews ---- */

static void answer(struct pending *p, enum access_verdict verdict, const char *text) {
    struct question *q, *next;

    LL_FOREACH_SAFE(p->questions, q, next) {
        q->on_verdict(verdict, text, q->userdata);
        free(q);
    }
    text_wipe(p->token);
    free(p);
}

static void take_turns(struct access *access);

static void on_verdict(enum access_verdict verdict, const char *text, uint64_t until,
                       void *userdata) {
    struct pending *p = userdata;
    struct access *access = p->access;

    p->review = NULL;
    HASH_DEL(access->pending, p);
    if (verdict == ACCESS_ALLOWED || verdict == ACCESS_UNKNOWN || verdict == ACCESS_FORBIDDEN)
        keep(access, p->key, verdict, until);
    if (verdict == ACCESS_NO_RIGHT)
        access->options.on_no_right(text, access->options.userdata);
    answer(p, verdict, text);
    take_turns(access);
}

static void begin(struct pending *p) {
    if (token_review_start(&p->access->reviewer, p->token, on_verdict, p, &p->review) == 0)
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
    bool waits[2] = {false, false};

    HASH_ITER(hh, access->pending, p, next) {
        struct ratelimit *limit = p->was_allowed ? &access->limit_of_allowed : &access->limit;

        if (p->review)
            continue;
        if (waits[p->was_allowed] || !ratelimit_take(limit, now_of(access)))
            waits[p->was_allowed] = true;
        else
            begin(p);
    }
    if (waits[false] || waits[true])
        (void) uv_timer_start(&access->turn, on_turn, TURN_MS, 0);
}

/* ---- questions ---- */

static bool is_of(const struct pending *p, const unsigned char *address) {
    return !p->was_allowed && memcmp(p->address, address, sizeof(p->address)) == 0;
}

/* Any of the tokens of that address that wait for their turn; NULL: none does. */
static struct pending *any_waiting(const struct access *access, const unsigned char *address) {
    struct pending *found = NULL;
    unsigned n = 0;
    uint32_t random;

    for (struct pending *p = access->pending; p; p = p->hh.next) {
        if (!is_of(p, address) || p->review)
            continue;
        if (gnutls_rnd(GNUTLS_RND_NONCE, &random, sizeof(random)) < 0 || random % ++n == 0)
            found = p;
    }
    return found;
}

/* Whether one more token from that address may wait. One of the same address gives way to it: it
 * cannot be told which of them is good. */
static bool make_room(struct access *access, const unsigned char *address) {
    struct pending *leaves;
    unsigned all = 0, same = 0;

    for (const struct pending *p = access->pending; p; p = p->hh.next) {
        all += !p->was_allowed;
        same += is_of(p, address);
    }
    if (same < ACCESS_REVIEWS_OF_CLIENT)
        return all < ACCESS_REVIEWS_MAX;
    leaves = any_waiting(access, address);
    if (!leaves)
        return false;
    HASH_DEL(access->pending, leaves);
    answer(leaves, ACCESS_BUSY, "");
    return true;
}

static struct pending *add_pending(struct access *access, const unsigned char *key,
                                   const char *token, const unsigned char *address) {
    struct pending *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    memcpy(p->key, key, VERDICT_KEY_SIZE);
    memcpy(p->address, address, sizeof(p->address));
    p->access = access;
    p->was_allowed = was_allowed(access, key);
    p->token = strdup(token);
    if (p->token)
        HASH_ADD(hh, access->pending, key, VERDICT_KEY_SIZE, p);
    if (p->token && hash_added(p))
        return p;
    text_wipe(p->token);
    free(p);
    return NULL;
}

static void wait_for(struct access *access, const unsigned char *key, const char *token,
                     const unsigned char *address, access_cb on_answer, void *userdata) {
    struct question *q = malloc(sizeof(*q));
    struct pending *p = NULL;

    HASH_FIND(hh, access->pending, key, VERDICT_KEY_SIZE, p);
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

/* The verdict that holds; NULL: there is none. */
static const struct kept_verdict *find_verdict(struct access *access, const unsigned char *key) {
    const struct kept_verdict *v = kept_verdicts_find(&access->allowed, key);

    if (!v)
        v = kept_verdicts_find(&access->refused, key);
    return v && now_of(access) < v->until ? v : NULL;
}

void access_ask(struct access *access, const char *token, const unsigned char address[static 16],
                access_cb on_answer, void *userdata) {
    unsigned char key[VERDICT_KEY_SIZE];
    const struct kept_verdict *known;
    struct pending *p = NULL;

    if (strlen(token) > ACCESS_TOKEN_MAX || kept_verdict_key(token, strlen(token), key) < 0) {
        on_answer(ACCESS_UNKNOWN, "", userdata);
        return;
    }
    known = find_verdict(access, key);
    HASH_FIND(hh, access->pending, key, VERDICT_KEY_SIZE, p);
    if (known)
        on_answer(known->verdict, "", userdata);
    else if (!p && !was_allowed(access, key) && !make_room(access, address))
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

static void access_free(struct access *access) {
    free(access->token_file);
    free(access);
}

int access_start(const struct access_options *options, struct access **ret, struct err *err) {
    struct access *access = calloc(1, sizeof(*access));
    int r;

    if (!access)
        return err_errno(err, ENOMEM, "cannot ask about tokens of clients");
    access->options = *options;
    access->token_file = options->token_file ? strdup(options->token_file) : NULL;
    access->reviewer = (struct token_reviewer){.client = options->client,
                                               .token_file = access->token_file,
                                               .accounts = {.max = ACCESS_ACCOUNTS_MAX}};
    access->allowed.max = ACCESS_ALLOWED_MAX;
    access->refused.max = ACCESS_REFUSED_MAX;
    access->limit = (struct ratelimit){.per_second = ACCESS_PER_SECOND, .burst = ACCESS_BURST};
    access->limit_of_allowed = (struct ratelimit){.per_second = ACCESS_RETURN_PER_SECOND};
    r = kube_request(options->client, "POST", RIGHTS_PATH, NULL, RIGHTS_BODY, strlen(RIGHTS_BODY),
                     0, on_rights, access, &access->rights, err);
    if (r < 0) {
        access_free(access);
        return r;
    }
    (void) uv_timer_init(kube_client_loop(options->client), &access->turn);
    access->turn.data = access;
    *ret = access;
    return 0;
}

static void on_timer_closed(uv_handle_t *timer) {
    access_free(timer->data);
}

void access_stop(struct access *access) {
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
    kept_verdicts_forget_ended(&access->allowed, UINT64_MAX);
    kept_verdicts_forget_ended(&access->refused, UINT64_MAX);
    kept_verdicts_forget_ended(&access->reviewer.accounts, UINT64_MAX);
    uv_close((uv_handle_t *) &access->turn, on_timer_closed);
}
