/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An error that carries its causes. The caller owns it, usually on the stack; nothing is allocated,
 * so it also works when memory is what ran out. A function that takes `struct err *` returns 0 (or
 * a positive result) on success and a negative errno on failure, and has then filled it, so that
 *
 *     struct err err;
 *     if (config_load(path, &cfg, &err) < 0)
 *         log_error("%s", err.text);           "cannot load /etc/x: line 3: unknown key 'foo'"
 */

#include <errno.h>
#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ERR_TEXT_MAX 512

struct err {
    int code; /* positive errno */
    char text[ERR_TEXT_MAX];
};

/* Fills `e` (which may be NULL) with a code and a text; returns -code. A code that is not positive,
 * such as errno after a short write, counts as EIO: failures are always negative. */
int err_set(struct err *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, with ": <strerror(code)>" added. */
int err_errno(struct err *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text that is already there; returns -e->code (-EIO when e is NULL).
 */
int err_wrap(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For static analysis, which does not see into err.c from the callers. */
static inline int err_is_negative(int r) {
    if (r >= 0)
        __builtin_unreachable();
    return r;
}

#define err_set(...) err_is_negative(err_set(__VA_ARGS__))
#define err_errno(...) err_is_negative(err_errno(__VA_ARGS__))
#define err_wrap(...) err_is_negative(err_wrap(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
