/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/resource.h"

#include <stdio.h>
#include <string.h>

#include "agent/backends/backend.h"
#include "base/hash.h"
#include "base/num.h"
#include "model/dialect.h"

/* The order decides which of several IDs of one container carries its share. */
const struct resource resources[] = {
    {.name = RESOURCE_CORE,
     .socket = "gpu-core",
     .letter = 'c',
     .per_card = CORE_PER_CARD,
     .backend = &backend_shares},
    {.name = RESOURCE_QGPU_CORE,
     .socket = "qgpu-core",
     .letter = 'q',
     .per_card = CORE_PER_CARD,
     .backend = &backend_shares},
    /* The carrier of shares without compute, and of shares with compute in dialects whose resource
       the agent does not offer: at most this many fit on a card. */
    {.name = RESOURCE_SLOT,
     .socket = "slot",
     .letter = 's',
     .per_card = SLOTS_PER_CARD + CORE_PER_CARD,
     .backend = &backend_shares},
};
const size_t resources_count = sizeof(resources) / sizeof(resources[0]);

#define SOCKET_SHOWN (RESOURCE_SOCKET_MAX - 9) /* characters before the hash */

void resource_socket(const char *name, char ret[static RESOURCE_SOCKET_MAX + 1]) {
    const char *slash = strrchr(name, '/');
    uint64_t hash = hash_text(HASH_START, name);

    (void) snprintf(ret, RESOURCE_SOCKET_MAX + 1, "%.*s-%08x", SOCKET_SHOWN,
                    slash ? slash + 1 : name, (unsigned) (hash ^ hash >> 32));
}

void resource_id(const struct resource *r, uint32_t n, char ret[static RESOURCE_ID_SIZE]) {
    (void) snprintf(ret, RESOURCE_ID_SIZE, "%c-%04u", r->letter, n + 1);
}

uint32_t resource_id_number(const struct resource *r, const char *id) {
    uint64_t n;

    if (id[0] != r->letter || id[1] != '-' || num_parse_u64(id + 2, UINT32_MAX - 1, &n) < 0 ||
        n == 0)
        return UINT32_MAX;
    return (uint32_t) n - 1;
}

#define TOPOLOGY_SIZE 6 /* two messages, and a NUMA node below 128 */

/* Of each device: tag and length of the message, of its ID and of its health, and the texts; the
 * longest health is "Unhealthy". Every length is below 128 and takes one byte. */
size_t resource_message_size(const struct resource *r, uint32_t n) {
    char id[RESOURCE_ID_SIZE];
    size_t size = 0;

    for (uint32_t i = 0; i < n; i++) {
        resource_id(r, i, id);
        size += 2 + 2 + strlen(id) + 2 + strlen("Unhealthy") + TOPOLOGY_SIZE;
    }
    return size;
}
