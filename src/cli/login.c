/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/login.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define LINE_LEN (LOGIN_TOKEN_MAX + 2)
#define TOKEN_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

static _Thread_local const struct api_login *used;

void login_use(const struct api_login *login) {
    used = login;
}

const struct api_login *login_used(void) {
    return used;
}

bool login_is_token(const char *text) {
    size_t len = strspn(text, TOKEN_LETTERS);

    return len > 0 && len <= LOGIN_TOKEN_MAX && text[len] == '\0';
}

char *login_erase(char *token) {
    text_wipe(token);
    return NULL;
}

void login_pass(const struct api_login *login, struct buf *ret) {
    buf_printf(ret, "%s\n%s\n%s\n", login->server, login->ca_file, login->token);
}

/* A line without its end. */
static bool read_line(char *ret) {
    if (!fgets(ret, LINE_LEN, stdin))
        return false;
    ret[strcspn(ret, "\n")] = '\0';
    return true;
}

int login_receive(struct err *err) {
    static char server[LINE_LEN], ca_file[LINE_LEN], token[LINE_LEN];
    static const struct api_login login = {server, ca_file, token};
    const char *variable = strchr(LOGIN_VARIABLE, '=') + 1;
    const char *given = getenv("ALIQUOT_LOGIN");

    if (!given || strcmp(given, variable) != 0)
        return 0;
    if (!read_line(server) || !read_line(ca_file) || !read_line(token) || !login_is_token(token))
        return err_set(err, EINVAL, "standard input is no login");
    login_use(&login);
    return 0;
}
