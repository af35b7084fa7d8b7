/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Arrays that grow. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `n` elements at least. `array` points to the pointer to the first, from malloc()
 * or NULL; there is room for `*room` elements of that size. 0, or -ENOMEM and nothing changes. */
static inline int array_reserve(void *array, size_t *room, size_t n, size_t element) {
    size_t more = *room > 0 ? 2 * *room : 8, bytes;
    void *old, *at;

    if (n <= *room)
        return 0;
    more = more > n ? more : n;
    /* reallocarray() under the address sanitizer ends the program instead. */
    if (__builtin_mul_overflow(more, element, &bytes))
        return -ENOMEM;
    memcpy(&old, array, sizeof(old));
    at = realloc(old, bytes);
    if (!at)
        return -ENOMEM;
    memcpy(array, &at, sizeof(at));
    *room = more;
    return 0;
}
