/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent/backends/resource.h"
#include "gpu/device.h"

static uint32_t list(const struct resource *r, const struct gpu_snapshot *s) {
    uint32_t cards = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        cards += gpu_gives_shares(&s->devices[i]);
    while (cards > 0 && resource_message_size(r, cards * r->per_card) > RESOURCE_MESSAGE_MAX)
        cards--;
    return cards * r->per_card;
}

/* IDs belong to no card: for an unhealthy card the last ones that no container has. */
static void health(const struct resource *r, const struct gpu_snapshot *s, uint32_t count,
                   const bool *held, bool *ret_sick) {
    uint32_t want = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        want += gpu_gives_shares(&s->devices[i]) && !s->devices[i].healthy ? r->per_card : 0;
    for (uint32_t i = count; i > 0 && want > 0; i--) {
        if (held[i - 1])
            continue;
        ret_sick[i - 1] = true;
        want--;
    }
}

static bool listed(char *const *ids, size_t n, const char *id) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

/* What must be in, then the first that are free. */
static size_t prefer(const struct backend_choice *c, char **ret) {
    size_t n = 0;

    for (size_t i = 0; i < c->nmust; i++)
        ret[n++] = c->must[i];
    for (size_t i = 0; i < c->navailable && n < c->want; i++)
        if (!listed(c->must, c->nmust, c->available[i]))
            ret[n++] = c->available[i];
    return n;
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

static int allocate(char ret_name[static BACKEND_CDI_NAME_MAX]) {
    char nonce[NONCE_LEN + 1];
    int r = make_nonce(nonce);

    if (r == 0)
        (void) snprintf(ret_name, BACKEND_CDI_NAME_MAX, CDI_PREFIX "%s", nonce);
    return r;
}

const struct backend backend_shares = {
    .list = list,
    .health = health,
    .prefer = prefer,
    .allocate = allocate,
    .prepare = provision,
};
