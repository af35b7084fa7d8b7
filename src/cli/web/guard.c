/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/guard.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TOKEN_BYTES 32

int guard_init(struct guard *guard, unsigned port) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char random[TOKEN_BYTES + 1] = {0};

    *guard = (struct guard){.port = port};
    if (getrandom(random, TOKEN_BYTES, 0) != TOKEN_BYTES)
        return -EIO;
    for (unsigned i = 0, bit = 0; i < GUARD_TOKEN_LEN; i++, bit += 6) {
        unsigned pair = (unsigned) random[bit / 8] << 8 | random[bit / 8 + (bit / 8 < TOKEN_BYTES)];
        guard->token[i] = digits[pair >> (10 - bit % 8) & 63];
    }
    return 0;
}

/* In a time that does not depend on where they differ. */
static bool is_token(const struct guard *guard, const char *text) {
    unsigned differ = 0;

    if (!text || strlen(text) != GUARD_TOKEN_LEN)
        return false;
    for (unsigned i = 0; i < GUARD_TOKEN_LEN; i++)
        differ |= (unsigned) (guard->token[i] ^ text[i]);
    return differ == 0;
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

static bool is_foreign_site(const struct guard_request *request) {
    return request->site && !request->is_page && strcmp(request->site, "same-origin") != 0 &&
           strcmp(request->site, "none") != 0;
}

unsigned guard_check(const struct guard *guard, const struct guard_request *request,
                     const char **ret_text) {
    if (!request->host || !is_own(guard, "", request->host)) {
        *ret_text = "Host is another server's: open http://127.0.0.1 with the port and the token "
                    "that `aliquot web` has printed\n";
        return 403;
    }
    if ((request->origin && !is_own(guard, "http://", request->origin)) ||
        is_foreign_site(request)) {
        *ret_text = "another site's page has sent this request\n";
        return 403;
    }
    if (!request->is_page && !request->is_file && !is_token(guard, request->token)) {
        *ret_text = "the token is missing or of an earlier start: open the address that "
                    "`aliquot web` has printed\n";
        return 401;
    }
    return 0;
}
