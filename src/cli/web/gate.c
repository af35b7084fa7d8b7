/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cluster/api.h"
#include "cli/web/thread.h"

#define GATE_MAX 64
#define GATE_MAX_EACH 48 /* of an address, which can be a proxy for all */
#define CHECK_MS 5000    /* others wait for it */
#define PATH "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#define REVIEW "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}"

struct gate {
    struct api_login cluster;
    void (*news)(void *userdata);
    void *userdata;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gate_check *asked, *answered;
    struct gate_check *tried; /* neither any more nor yet: all of one token */
    unsigned n;
};

/* The next token, and all that wait for an answer about it: they get the same one, which is of a
 * time after they have asked. */
static void take_next(struct gate *gate) {
    const char *token = gate->asked->token;
    struct gate_check *check, *next;

    DL_FOREACH_SAFE(gate->asked, check, next) {
        if (!text_is_same_secret(check->token, token))
            continue;
        DL_DELETE(gate->asked, check);
        DL_APPEND(gate->tried, check);
    }
}

static void give_answer(struct gate *gate, int result, const struct err *err) {
    struct gate_check *check;

    DL_FOREACH(gate->tried, check) {
        check->result = result;
        check->err = *err;
    }
    DL_CONCAT(gate->answered, gate->tried);
    gate->tried = NULL;
}

/* What the server answers to one that it knows is no matter: a user that may not review itself and
 * a server that has no such review have found the token good all the same. */
static int check_token(const struct gate *gate, const char *token, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct api_login login = gate->cluster;
    struct json answer;

    login.token = token;
    login_use(&login);
    int r = api_create(PATH, REVIEW, &parser, &answer, err);
    login_use(NULL);
    return r == -EACCES || r == -ENOENT ? 0 : r;
}

static void *run(void *arg) {
    struct gate *gate = arg;

    api_hurry(CHECK_MS);
    for (;;) {
        (void) pthread_mutex_lock(&gate->lock);
        while (!gate->asked)
            (void) pthread_cond_wait(&gate->changed, &gate->lock);
        take_next(gate);
        (void) pthread_mutex_unlock(&gate->lock);
        struct err err = {0};
        int r = check_token(gate, gate->tried->token, &err);
        (void) pthread_mutex_lock(&gate->lock);
        give_answer(gate, r, &err);
        bool rests = !gate->asked;
        (void) pthread_mutex_unlock(&gate->lock);
        if (rests) /* a server that has closed an idle connection would fail the next one */
            api_close();
        gate->news(gate->userdata);
    }
    return NULL;
}

int gate_start(const struct api_login *cluster, void (*news)(void *userdata), void *userdata,
               struct gate **ret, struct err *err) {
    struct gate *gate = calloc(1, sizeof(*gate));

    if (!gate)
        return err_errno(err, ENOMEM, "cannot start");
    *gate = (struct gate){.cluster = *cluster, .news = news, .userdata = userdata};
    (void) pthread_mutex_init(&gate->lock, NULL);
    (void) pthread_cond_init(&gate->changed, NULL);
    int r = thread_start(&gate->thread, run, gate);
    if (r < 0) {
        free(gate);
        return err_errno(err, -r, "cannot start");
    }
    *ret = gate;
    return 0;
}

static bool is_from(const struct gate_check *check, const struct in6_addr *client) {
    return memcmp(&check->client, client, sizeof(*client)) == 0;
}

static unsigned count_from(const struct gate *gate, const struct in6_addr *client) {
    const struct gate_check *check;
    unsigned n = 0;

    DL_FOREACH(gate->asked, check)
        n += is_from(check, client);
    DL_FOREACH(gate->tried, check)
        n += is_from(check, client);
    DL_FOREACH(gate->answered, check)
        n += is_from(check, client);
    return n;
}

int gate_ask(struct gate *gate, struct gate_check *check) {
    int r = 0;

    (void) pthread_mutex_lock(&gate->lock);
    if (gate->n == GATE_MAX || count_from(gate, &check->client) >= GATE_MAX_EACH) {
        r = -EBUSY;
    } else {
        gate->n++;
        DL_APPEND(gate->asked, check);
        (void) pthread_cond_signal(&gate->changed);
    }
    (void) pthread_mutex_unlock(&gate->lock);
    return r;
}

struct gate_check *gate_answered(struct gate *gate) {
    (void) pthread_mutex_lock(&gate->lock);
    struct gate_check *check = gate->answered;
    if (check) {
        gate->n--;
        DL_DELETE(gate->answered, check);
    }
    (void) pthread_mutex_unlock(&gate->lock);
    return check;
}
