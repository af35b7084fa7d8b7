/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

void text_copy(char *to, size_t size, const char *from) {
    size_t len = strnlen(from, size - 1);
    memmove(to, from, len);
    to[len] = '\0';
}
