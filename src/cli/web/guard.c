/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/guard.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/text.h"

#define TOKEN_BYTES 32
#define HOST_MAX 253

static int make_secret(char secret[static GUARD_TOKEN_LEN + 1]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char random[TOKEN_BYTES + 1] = {0};

    if (getrandom(random, TOKEN_BYTES, 0) != TOKEN_BYTES)
        return -EIO;
    for (unsigned i = 0, bit = 0; i < GUARD_TOKEN_LEN; i++, bit += 6) {
        unsigned pair = (unsigned) random[bit / 8] << 8 | random[bit / 8 + (bit / 8 < TOKEN_BYTES)];
        secret[i] = digits[pair >> (10 - bit % 8) & 63];
    }
    return 0;
}

int guard_init(struct guard *guard, unsigned port) {
    *guard = (struct guard){.port = port};
    int r = make_secret(guard->token);
    return r < 0 ? r : make_secret(guard->code);
}

int guard_init_cluster(struct guard *guard, const char *hosts) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:[]";

    *guard = (struct guard){.hosts = hosts};
    for (const char *name = hosts; *name;) {
        size_t len = strspn(name, letters);
        if (len == 0 || len > HOST_MAX || (name[len] && (name[len] != ',' || !name[len + 1])))
            return -EINVAL;
        name += len + (name[len] == ',');
    }
    return 0;
}

static bool is_secret(const char *secret, const char *text) {
    return text && strlen(text) == GUARD_TOKEN_LEN && text_is_same_secret(secret, text);
}

bool guard_take_code(struct guard *guard, const char *text) {
    return is_secret(guard->code, text) && make_secret(guard->code) == 0;
}

/* The names by which a browser of this machine can have been sent here. */
static bool is_own(const struct guard *guard, const char *prefix, const char *text) {
    static const char *const names[] = {"127.0.0.1", "localhost"};
    char own[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void) snprintf(own, sizeof(own), "%s%s:%u", prefix, names[i], guard->port);
        if (strcmp(own, text) == 0)
            return true;
    }
    return false;
}

/* ---- in a cluster ---- */

/* A name as it was allowed; one without a port is allowed with every port. */
static bool is_allowed(const char *allowed, size_t len, const char *host) {
    bool has_port = memchr(allowed, ':', len) && allowed[len - 1] != ']';

    if (strncasecmp(allowed, host, len) != 0)
        return false;
    host += len;
    return !*host ||
           (!has_port && *host == ':' && host[1] && !host[1 + strspn(host + 1, "0123456789")]);
}

static bool is_in(const char *names, const char *host) {
    while (*names) {
        size_t len = strcspn(names, ",");
        if (is_allowed(names, len, host))
            return true;
        names += len + (names[len] == ',');
    }
    return false;
}

/* No other site can have these names in a browser that is forwarded to the page. */
static bool is_known(const struct guard *guard, const char *host) {
    return is_in("localhost,127.0.0.1,[::1]", host) || is_in(guard->hosts, host);
}

/* Whether a page of the same host has sent it; a proxy in front can have taken TLS off. */
static bool is_origin(const char *origin, const char *host) {
    static const char *const schemes[] = {"https://", "http://"};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(origin, schemes[i], strlen(schemes[i])) == 0)
            return strcasecmp(origin + strlen(schemes[i]), host) == 0;
    return false;
}

/* ---- all of it ---- */

static bool is_host(const struct guard *guard, const char *host) {
    return guard->hosts ? is_known(guard, host) : is_own(guard, "", host);
}

static bool is_foreign_origin(const struct guard *guard, const struct guard_request *request) {
    if (!request->origin)
        return false;
    return guard->hosts ? !is_origin(request->origin, request->host)
                        : !is_own(guard, "http://", request->origin);
}

/* In a cluster the API server decides about what there is. */
static bool has_token(const struct guard *guard, const struct guard_request *request) {
    return guard->hosts ? request->token && request->token[0]
                        : is_secret(guard->token, request->token);
}

static bool is_foreign_site(const struct guard_request *request) {
    return request->site && !request->is_page && strcmp(request->site, "same-origin") != 0 &&
           strcmp(request->site, "none") != 0;
}

unsigned guard_check(const struct guard *guard, const struct guard_request *request,
                     const char **ret_text) {
    if (!request->host || !is_host(guard, request->host)) {
        *ret_text = guard->hosts
                        ? "Host is no name that this page is served under: name it with --host "
                          "(chart: web.hosts)\n"
                        : "Host is another server's: open http://127.0.0.1 with the port and the "
                          "token that `aliquot web` has printed\n";
        return 403;
    }
    if (is_foreign_origin(guard, request) || is_foreign_site(request)) {
        *ret_text = "another site's page has sent this request\n";
        return 403;
    }
    if (!request->is_page && !request->is_file && !has_token(guard, request)) {
        *ret_text = guard->hosts ? "a token is missing: sign in\n"
                                 : "the token is missing or of an earlier start: open the address "
                                   "that `aliquot web` has printed\n";
        return 401;
    }
    return 0;
}
