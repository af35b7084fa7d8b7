/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/mig/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(text)                                                                                \
    do {                                                                                           \
        if (!memchr(text, 0, sizeof(text)))                                                        \
            abort();                                                                               \
    } while (0)

static void use_held(const struct gpu_mig_held *held) {
    if (held->n > GPU_MIG_HELD_MAX)
        abort();
    for (uint32_t i = 0; i < held->n; i++) {
        CHECK(held->list[i].uuid);
        CHECK(held->list[i].by);
    }
}

static void use_begin(const struct gpu_mig_begin *begin) {
    if (begin->n > GPU_MIG_ENDED_MAX)
        abort();
    CHECK(begin->card);
    for (uint32_t i = 0; i < begin->n; i++)
        CHECK(begin->ended[i]);
}

/* As the agent uses a card: the names of the profiles of its instances. */
static void use_card(const struct gpu_mig_card *c) {
    char name[MIG_PROFILE_NAME_MAX];

    CHECK(c->uuid);
    CHECK(c->error);
    CHECK(c->result.reason);
    CHECK(c->result.lost);
    for (uint32_t i = 0; c->known && i < c->card.ninstances; i++) {
        const struct mig_instance *gi = &c->card.instances[i];

        (void) mig_name_format(&c->card.profiles[gi->profile].name, name);
        CHECK(name);
        CHECK(gi->holders);
    }
}

/* A packet of the child, whose header is made right: a type, and what follows it, repeated up to
 * the size of that type. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static union gpu_mig_message m;
    static const size_t sizes[] = {
        [GPU_MIG_ORDER] = sizeof(m.order), [GPU_MIG_HELD] = sizeof(m.held),
        [GPU_MIG_BEGIN] = sizeof(m.begin), [GPU_MIG_STEP] = sizeof(m.step),
        [GPU_MIG_CARD] = sizeof(m.card),   [GPU_MIG_END] = sizeof(m.end)};
    size_t type = size > 0 ? data[0] % (GPU_MIG_END + 2) : 0, len;

    if (type == 0 || size < 2)
        return 0;
    len = type <= GPU_MIG_END ? sizes[type] : sizeof(m);
    memset(&m, 0, sizeof(m));
    m.header = (struct gpu_mig_header){GPU_MIG_MAGIC, (uint32_t) type};
    for (size_t i = 0; i < len - sizeof(m.header); i++)
        ((unsigned char *) &m)[sizeof(m.header) + i] = data[1 + i % (size - 1)];
    if (gpu_mig_message_check(&m, len - 1) >= 0 || gpu_mig_message_check(&m, 4) >= 0)
        abort();
    switch (gpu_mig_message_check(&m, len)) {
    case GPU_MIG_HELD:
        use_held(&m.held);
        break;
    case GPU_MIG_BEGIN:
        use_begin(&m.begin);
        break;
    case GPU_MIG_STEP:
        CHECK(m.step.text);
        break;
    case GPU_MIG_CARD:
        use_card(&m.card);
        break;
    case GPU_MIG_END:
        CHECK(m.end.error);
        break;
    default:
        break;
    }
    return 0;
}
