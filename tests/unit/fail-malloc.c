/* SPDX-License-Identifier: Apache-2.0 */
#include "fail-malloc.h"

#include <stdlib.h>
#include <string.h>

static size_t countdown;
static bool failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *text);

static bool fails(void) {
    if (countdown == 0 || --countdown > 0)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size) {
    return fails() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = fails() ? NULL : __real_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void fail_malloc_at(size_t nth) {
    countdown = nth;
    failed = false;
}

bool fail_malloc_end(void) {
    countdown = 0;
    return failed;
}
