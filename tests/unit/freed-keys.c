/* SPDX-License-Identifier: Apache-2.0 */
#include "freed-keys.h"

#include <malloc.h>
#include <string.h>

static const char mark[] = "PRIVATE KEY-----";
static unsigned freed;

void __real_free(void *p);
void __wrap_free(void *p);

void __wrap_free(void *p) {
    size_t len = p ? strnlen(p, malloc_usable_size(p)) : 0;
    freed += len > 0 && memmem(p, len, mark, sizeof(mark) - 1);
    __real_free(p);
}

unsigned freed_keys(void) {
    unsigned n = freed;
    freed = 0;
    return n;
}
