/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/agent_token.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cluster/api.h"

#define ACCOUNT "aliquot-figures"
#define ROLE "aliquot-viewer"
#define TOKEN_MAX 8192
#define LIFE_S "600"            /* that is requested, the shortest that Kubernetes allows */
#define KEEP_MS (8 * 60 * 1000) /* of it */
#define REQUEST                                                                                    \
    "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenRequest\","                      \
    "\"spec\":{\"audiences\":[\"aliquot-agent\"],\"expirationSeconds\":" LIFE_S "}}"
/* Of tokens, as RFC 6750 has them. */
#define TOKEN_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

static struct {
    char text[TOKEN_MAX]; /* "": none */
    char system[API_NAME_MAX + 1];
    uint64_t until; /* milliseconds */
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
    if (r < 0)
        return explain(r, system, err);
    text = json_string_or(JSON_PATH(answer, "status", "token"), "");
    if (!text[0] || strlen(text) >= TOKEN_MAX || strspn(text, TOKEN_LETTERS) != strlen(text))
        return err_set(err, EBADMSG, "the API server has answered a request of a token with none");
    text_copy(token.text, sizeof(token.text), text);
    text_copy(token.system, sizeof(token.system), system);
    token.until = clock_ms(CLOCK_MONOTONIC) + KEEP_MS;
    return 0;
}

const char *agent_token(const char *system, struct err *err) {
    if (token.text[0] && strcmp(token.system, system) == 0 &&
        clock_ms(CLOCK_MONOTONIC) < token.until)
        return token.text;
    agent_token_forget();
    return request_token(system, err) < 0 ? NULL : token.text;
}

void agent_token_forget(void) {
    token.text[0] = '\0';
}
