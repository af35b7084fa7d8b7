/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/card_share.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "cli/clean.h"
#include "cli/cluster/cards.h"

void card_print_sharing(const struct card *card, const char *uid) {
    const char *last = uid;
    char bytes[24];
    clean_print(stdout, "GPU %s (%s, %s):", card->name, card->model, card->state);
    for (size_t i = 0; i < card->nholders; i++) {
        const struct holder *h = &card->holders[i];
        if (strcmp(h->uid, uid) == 0 || strcmp(h->uid, last) == 0)
            continue;
        clean_print(stdout, "%s %s/%s%s", last == uid ? " shared with" : ",", h->namespace,
                    h->claim[0] ? h->claim : h->pod, h->claim[0] ? " (ResourceClaim)" : "");
        last = h->uid;
    }
    printf("%s", last == uid ? " not shared" : "");
    if (card->unattributed > 0)
        printf("; %s unattributed", num_format_bytes(card->unattributed, bytes));
    puts("");
}
