/* SPDX-License-Identifier: Apache-2.0 */

/* Tokens. Values of strings are written to the lexer's buffer, which has room for as many bytes as
 * the expression: an escape is never shorter than what it stands for. */

#include <inttypes.h>
#include <string.h>

#include "cel/internal.h"

#define CODE_POINT_MAX 0x10ffff

static bool fail(struct cel_lexer *l, const char *at, const char *what) {
    (void) err_set(l->err, EINVAL, "%s at column %u", what, (unsigned) (at - l->start) + 1);
    return false;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int digit_of(char c) {
    return is_digit(c)              ? c - '0'
           : (c >= 'a' && c <= 'f') ? c - 'a' + 10
           : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                    : 99;
}

static void skip_blanks(struct cel_lexer *l) {
    for (;;) {
        l->at += strspn(l->at, " \t\r\n\f");
        if (l->at[0] != '/' || l->at[1] != '/')
            return;
        l->at += strcspn(l->at, "\n");
    }
}

static bool lex_int(struct cel_lexer *l) {
    const char *start = l->at;
    int base = 10;
    uint64_t n = 0;
    if (l->at[0] == '0' && (l->at[1] == 'x' || l->at[1] == 'X')) {
        base = 16;
        l->at += 2;
        if (digit_of(*l->at) >= base)
            return fail(l, start, "a number without digits");
    }
    for (; digit_of(*l->at) < base; l->at++)
        if (__builtin_mul_overflow(n, base, &n) ||
            __builtin_add_overflow(n, (unsigned) digit_of(*l->at), &n))
            return fail(l, start, "a number of more than 64 bits");
    if (*l->at == 'u' || *l->at == 'U')
        return fail(l, start, "an unsigned number");
    if (begins_name(*l->at) || (*l->at == '.' && is_digit(l->at[1])))
        return fail(l, start, "a number that is no integer");
    l->token.kind = CEL_TOKEN_INT;
    l->token.number = n;
    return true;
}

static void put_code_point(struct cel_lexer *l, uint32_t code) {
    if (code < 0x80) {
        *l->texts++ = (char) code;
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
    *l->texts++ = (char) (heads[more] | code >> (6 * more));
    while (more-- > 0)
        *l->texts++ = (char) (0x80 | (code >> (6 * more) & 0x3f));
}

/* What is behind the backslash at `at`. */
static bool lex_escape(struct cel_lexer *l) {
    static const char plain[] = "abfnrtv\\'\"`?", values[] = "\a\b\f\n\r\t\v\\'\"`?";
    const char *start = l->at - 1;
    const char *found = *l->at ? strchr(plain, *l->at) : NULL;
    if (found) {
        *l->texts++ = values[found - plain];
        l->at++;
        return true;
    }
    int base = 16, digits = 0;
    if (*l->at == 'x' || *l->at == 'X')
        digits = 2;
    else if (*l->at == 'u')
        digits = 4;
    else if (*l->at == 'U')
        digits = 8;
    else if (*l->at >= '0' && *l->at <= '3')
        base = 8, digits = 3;
    else
        return fail(l, start, "an unknown escape");
    l->at += base == 16;
    uint64_t code = 0;
    for (; digits > 0; digits--, l->at++) {
        if (digit_of(*l->at) >= base)
            return fail(l, start, "an escape without digits");
        code = code * (unsigned) base + (unsigned) digit_of(*l->at);
    }
    if (code > CODE_POINT_MAX || (code >= 0xd800 && code <= 0xdfff))
        return fail(l, start, "an escape of no character");
    put_code_point(l, (uint32_t) code);
    return true;
}

static bool lex_string(struct cel_lexer *l, bool raw) {
    const char *start = l->at;
    const char quote = *l->at;
    if (l->at[1] == quote && l->at[2] == quote)
        return fail(l, start, "a string in triple quotes");
    l->token.kind = CEL_TOKEN_STRING;
    l->token.text.data = l->texts;
    for (l->at++; *l->at != quote;) {
        if (*l->at == '\0' || *l->at == '\n' || *l->at == '\r')
            return fail(l, start, "a string without its end");
        if (*l->at != '\\' || raw) {
            *l->texts++ = *l->at++;
            continue;
        }
        l->at++;
        if (!lex_escape(l))
            return false;
    }
    l->at++;
    l->token.text.len = (size_t) (l->texts - l->token.text.data);
    return true;
}

static bool lex_op(struct cel_lexer *l) {
    static const char *const pairs[] = {"&&", "||", "<=", ">=", "==", "!=", "?.", "[?"};
    const char *start = l->at;
    size_t len = 1;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (strncmp(start, pairs[i], 2) == 0)
            len = 2;
    if (len == 1 && !strchr("()[],.?:+-*/%<>!", *start))
        return fail(l, start, *start == '{' ? "a map or message" : "an unknown character");
    if (memchr(start, '?', len) && len == 2)
        return fail(l, start, "an optional field");
    l->token.kind = CEL_TOKEN_OP;
    l->at += len;
    return true;
}

static bool lex_name(struct cel_lexer *l) {
    while (begins_name(*l->at) || is_digit(*l->at))
        l->at++;
    if (*l->at == '"' || *l->at == '\'') {
        size_t len = (size_t) (l->at - (l->start + l->token.column - 1));
        if (len != 1 || (l->at[-1] != 'r' && l->at[-1] != 'R'))
            return fail(l, l->at - len, "a string of bytes");
        return lex_string(l, true);
    }
    l->token.kind = CEL_TOKEN_NAME;
    return true;
}

bool cel_lex(struct cel_lexer *l) {
    skip_blanks(l);
    const char *start = l->at;
    l->token = (struct cel_token){.column = (uint32_t) (start - l->start) + 1};
    if (*start == '\0')
        return true;
    bool ok = begins_name(*start)               ? lex_name(l)
              : is_digit(*start)                ? lex_int(l)
              : *start == '"' || *start == '\'' ? lex_string(l, false)
                                                : lex_op(l);
    if (ok && l->token.kind != CEL_TOKEN_STRING)
        l->token.text = (struct cel_text){start, (size_t) (l->at - start)};
    return ok;
}
