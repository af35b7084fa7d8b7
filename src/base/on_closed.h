/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The call that follows the end of an object which its event loop frees later, when the last handle
 * has closed. It is a member of the object. */

#include <stdlib.h>

struct on_closed {
    void (*call)(void *userdata); /* NULL: none */
    void *userdata;
};

/* Frees `object`, of which `then` is a member, and makes the call. */
static inline void on_closed_free(const struct on_closed *then, void *object) {
    struct on_closed copy = *then;
    free(object);
    if (copy.call)
        copy.call(copy.userdata);
}
