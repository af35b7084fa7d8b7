/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/agent_token.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cluster/api.h"
#include "cli/login.h"

#define ACCOUNT "aliquot-figures"
#define ROLE "aliquot-viewer"
#define TOKEN_MAX 8192
#define LIFE_S "600"             /* that is requested, the shortest that Kubernetes allows */
#define KEEP_MS UINT64_C(480000) /* of it */
#define FRESH_MS UINT64_C(60000) /* so long another request would do no better */
#define REQUEST                                                                                    \
    "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenRequest\","                      \
    "\"spec\":{\"audiences\":[\"aliquot-agent\"],\"expirationSeconds\":" LIFE_S "}}"

static _Thread_local struct {
    char text[TOKEN_MAX]; /* "": none */
    struct err refusal;   /* why there can be none; code 0: nothing is known of that */
    char system[API_NAME_MAX + 1];
    uint64_t since; /* milliseconds */
} token;

static int explain(int r, const char *system, struct err *err) {
    if (r == -ENOENT)
        return err_set(err, ENOENT,
                       "there is no ServiceAccount " ACCOUNT " in namespace %s: apply the "
                       "manifests of this version",
                       system);
    if (r == -EACCES)
        return err_set(err, EACCES,
                       "you may not request a token of ServiceAccount " ACCOUNT ": an "
                       "administrator gives the right by `kubectl create rolebinding viewers -n %s "
                       "--role=" ROLE " --user=YOU`",
                       system);
    return err_wrap(err, "cannot request a token of ServiceAccount " ACCOUNT);
}

static int request_token(const char *system, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    char path[API_NAME_MAX + 128];
    struct json answer;
    const char *text;

    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/serviceaccounts/" ACCOUNT "/token",
                    system);
    int r = api_create(path, REQUEST, &parser, &answer, err);
    token.since = clock_ms(CLOCK_MONOTONIC);
    text_copy(token.system, sizeof(token.system), system);
    if (r < 0)
        return explain(r, system, err);
    text = json_string_or(JSON_PATH(answer, "status", "token"), "");
    if (!text[0] || strlen(text) >= TOKEN_MAX || !login_is_token(text))
        return err_set(err, EBADMSG, "the API server has answered a request of a token with none");
    text_copy(token.text, sizeof(token.text), text);
    return 0;
}

static uint64_t age_ms(void) {
    return clock_ms(CLOCK_MONOTONIC) - token.since;
}

const char *agent_token(const char *system, struct err *err) {
    struct err why = {0};
    bool same = strcmp(token.system, system) == 0;

    if (same && token.text[0] && age_ms() < KEEP_MS)
        return token.text;
    token.text[0] = '\0';
    if (same && token.refusal.code && age_ms() < FRESH_MS)
        why = token.refusal;
    else if (request_token(system, &why) == 0)
        why = (struct err){0};
    token.refusal = why.code == EACCES || why.code == ENOENT ? why : (struct err){0};
    if (err)
        *err = why;
    return token.text[0] ? token.text : NULL;
}

void agent_token_refused(void) {
    if (age_ms() >= FRESH_MS)
        token.text[0] = '\0';
}

void agent_token_forget(void) {
    explicit_bzero(&token, sizeof(token));
}
