/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent/backends/resource.h"

bool backend_is_whole(const struct resource *r) {
    const struct backend *b = r->backend;

    return r->name && r->name[0] && r->socket && r->socket[0] &&
           strlen(r->socket) <= RESOURCE_SOCKET_MAX && b && b->list && b->id && b->number &&
           b->health && b->numa && b->prefer && b->allocate && b->prepare;
}

static int make_nonce(char ret[static NONCE_LEN + 1]) {
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[NONCE_LEN / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t) sizeof(bytes))
        return -EAGAIN;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        ret[2 * i] = hex[bytes[i] >> 4];
        ret[2 * i + 1] = hex[bytes[i] & 15];
    }
    ret[NONCE_LEN] = 0;
    return 0;
}

int backend_slot_name(char ret_name[static BACKEND_CDI_NAME_MAX]) {
    char nonce[NONCE_LEN + 1];
    int r = make_nonce(nonce);

    if (r == 0)
        (void) snprintf(ret_name, BACKEND_CDI_NAME_MAX, CDI_PREFIX "%s", nonce);
    return r;
}
