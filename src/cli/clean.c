/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/clean.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/cleanup.h"

static bool is_control(unsigned char c) {
    return c < ' ' || c == 0x7f;
}

char *clean_text(char *text, bool keeps_lines) {
    for (char *c = text; *c; c++) {
        unsigned char first = (unsigned char) c[0], second = (unsigned char) c[1];
        if (is_control(first) && !(keeps_lines && *c == '\n'))
            *c = '?';
        else if (first == 0xc2 && second >= 0x80 && second < 0xa0)
            c[0] = c[1] = '?';
    }
    return text;
}

void clean_print(FILE *out, const char *format, ...) {
    _cleanup_free_ char *text = NULL;
    va_list ap;

    va_start(ap, format);
    int n = vasprintf(&text, format, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return;
    }
    (void) fputs(clean_text(text, true), out);
}
