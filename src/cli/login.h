/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* As whom a thread asks the API server where it is not the user of a kubeconfig: by a bearer token,
 * and without kubectl. What a thread has of one login (connections, the token for agents) is its
 * own, so that threads of several logins share nothing. */

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define LOGIN_TOKEN_MAX 16384

struct api_login {
    const char *server;  /* "https://10.96.0.1:443" */
    const char *ca_file; /* PEM, by which the server shows itself */
    const char *token;   /* login_is_token() */
};

/* Requests of this thread are from now on made so; `login` is borrowed. NULL: by `kubectl proxy`,
 * with which every thread begins, but in a process that was started by login_pass(). */
void login_use(const struct api_login *login);
const struct api_login *login_used(void);

/* Whether it can be sent: letters of a token by RFC 6750, and not too many. */
bool login_is_token(const char *text);

/* Frees a token and leaves nothing of it in memory. NULL is fine. Returns NULL. */
char *login_erase(char *token);

/* What the standard input of another `aliquot` is to be, whose environment has LOGIN_VARIABLE, so
 * that all of its requests are made with the login: no argument and no variable has the token. */
#define LOGIN_VARIABLE "ALIQUOT_LOGIN=stdin"
void login_pass(const struct api_login *login, struct buf *ret);

/* In that process: reads it. 0 as well where there is nothing to read. */
int login_receive(struct err *err);
