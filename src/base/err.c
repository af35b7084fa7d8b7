/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

static int fill(struct err *e, int code, const char *format, va_list ap) {
    code = code > 0 ? code : EIO;
    if (e) {
        e->code = code;
        (void) vsnprintf(e->text, sizeof(e->text), format, ap);
    }
    return -code;
}

int(err_set)(struct err *e, int code, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int r = fill(e, code, format, ap);
    va_end(ap);
    return r;
}

int(err_errno)(struct err *e, int code, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int r = fill(e, code, format, ap);
    va_end(ap);
    if (e) {
        char reason[64];
        size_t len = strlen(e->text);
        (void) snprintf(e->text + len, sizeof(e->text) - len, ": %s",
                        strerror_r(-r, reason, sizeof(reason)));
    }
    return r;
}

int(err_wrap)(struct err *e, const char *format, ...) {
    if (!e)
        return -EIO;

    char cause[ERR_TEXT_MAX];
    memcpy(cause, e->text, sizeof(cause));

    va_list ap;
    va_start(ap, format);
    int r = fill(e, e->code, format, ap);
    va_end(ap);

    size_t len = strlen(e->text);
    (void) snprintf(e->text + len, sizeof(e->text) - len, ": %s", cause);
    return r;
}
