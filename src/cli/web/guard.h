/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which requests the server of `aliquot web` answers: those of the page that has its token. The
 * page gets it for the code of the address that was opened, which is good once, because addresses
 * stay in a browser's history. Any web page can make a browser send requests to 127.0.0.1, and a
 * name that leads there (DNS rebinding) makes them look like the page's own; so Host and Origin are
 * compared, too. The token is in a header: a cookie would go to the servers of all ports of
 * 127.0.0.1. No I/O. */

/* In a cluster the page has the names by which it is reached there, and the token is one of
 * Kubernetes, about which the API server decides. */

#include <stdbool.h>

#define GUARD_TOKEN_LEN 43 /* 32 random bytes, as base64url */

struct guard {
    unsigned port;
    char token[GUARD_TOKEN_LEN + 1];
    char code[GUARD_TOKEN_LEN + 1]; /* of the address */
    /* Names of Host, separated by commas, of any port where they name none; "": only those of this
     * host, for port-forward. NULL: it is not in a cluster. */
    const char *hosts;
};

/* Texts of a request; NULL: it has none. */
struct guard_request {
    const char *host, *origin;
    const char *site;  /* Sec-Fetch-Site */
    const char *token; /* X-Aliquot-Token */
    bool is_page;      /* of what is opened from elsewhere: a link can lead to it */
    bool is_file;      /* of the page's own files, which hold no secret */
};

/* With a fresh token and code. 0 or a negative errno. */
int guard_init(struct guard *guard, unsigned port);

/* In a cluster. -EINVAL: `hosts`, which is borrowed, has no names of hosts. */
int guard_init_cluster(struct guard *guard, const char *hosts);

/* Whether the text, or NULL, is the code. It has a successor then. */
bool guard_take_code(struct guard *guard, const char *text);

/* 0, or the status of the refusal with a text that names the cause. */
unsigned guard_check(const struct guard *guard, const struct guard_request *request,
                     const char **ret_text);
