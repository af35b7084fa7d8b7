/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/proc_value.h"

#include <stdio.h>
#include <string.h>

#define BLANKS " \t"

bool proc_value(const char *text, const char *key, char *ret, size_t size) {
    size_t len = strlen(key);

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t blanks;

        if (strncmp(line, key, len) != 0)
            continue;
        blanks = strspn(line + len, BLANKS);
        if (blanks == 0)
            continue;
        line += len + blanks;
        (void) snprintf(ret, size, "%.*s", (int) strcspn(line, "\n"), line);
        return true;
    }
    return false;
}
