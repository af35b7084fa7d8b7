/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which clients of a TLS server are trusted: those with a certificate for TLS clients that an
 * authority of a given bundle has issued for one of the given common names. The bundle and the
 * names can be replaced at any time; each check is against those of that moment. One thread. */

#include "wire/json.h"

struct client_trust;
struct gnutls_session_int; /* what gnutls_session_t points to */

/* Trusts no client at first. NULL: out of memory. */
struct client_trust *client_trust_new(void);
struct client_trust *client_trust_free(struct client_trust *t); /* takes NULL, returns NULL */

/* `bundle`: certificates of authorities, PEM. `names`: a list of strings; an empty one: every name.
 * On an error no client is trusted; the text names the cause. */
int client_trust_set(struct client_trust *t, const char *bundle, struct json names,
                     struct err *err);

/* The peer of an established session (http_tls_session()). -EACCES with the reason where it is not
 * trusted, also without a session or a certificate. */
int client_trust_check(const struct client_trust *t, struct gnutls_session_int *session,
                       struct err *err);
