/* SPDX-License-Identifier: Apache-2.0 */

/* What kubelet may send to the DRA plugin. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/messages.h"
#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    char why[DRA_REGISTER_TEXT_MAX];
    struct dra_claim_ids ids, again;
    bool registered;

    if (dra_message_status(data, size, &registered, why) == 0 && strlen(why) >= sizeof(why))
        abort();
    if (dra_message_claims(data, size, &ids) < 0)
        return 0;
    if (ids.n > DRA_CLAIMS_MAX)
        abort();
    /* Each claim that was asked for has its entry in the answer. An entry's key is where a request
     * has the namespace. */
    for (size_t i = 0; i < ids.n; i++)
        dra_message_unprepared(ids.list[i].uid, ids.list[i].name, &out);
    if (buf_error(&out) == 0) {
        if (dra_message_claims((const uint8_t *) buf_str(&out), out.len, &again) < 0 ||
            again.n != ids.n)
            abort();
        for (size_t i = 0; i < ids.n; i++)
            if (strcmp(again.list[i].namespace, ids.list[i].uid) != 0)
                abort();
        dra_message_claims_done(&again);
    }
    dra_message_claims_done(&ids);
    return 0;
}
