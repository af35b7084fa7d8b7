/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/wants.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/num.h"

/* Whether x is more than y: whole cards before shares, more cards, more of each. */
static bool is_more(const struct container_request *x, const struct container_request *y) {
    if (x->whole != y->whole)
        return x->whole;
    if (x->cards != y->cards)
        return x->cards > y->cards;
    return x->core != y->core ? x->core > y->core : x->memory > y->memory;
}

const char *request_wants(const struct gpu_request *request, char ret[static WANTS_SIZE]) {
    const struct container_request *most = &request->containers[0];
    char memory[24], times[16] = "";

    for (uint32_t i = 1; i < request->n; i++)
        if (is_more(&request->containers[i], most))
            most = &request->containers[i];
    (void) num_format_bytes(most->memory, memory);
    if (most->cards > 1)
        (void) snprintf(times, sizeof(times), "%" PRIu32 " x ", most->cards);
    if (most->whole)
        (void) snprintf(ret, WANTS_SIZE, "%" PRIu32 " whole", most->cards);
    else if (most->core == 0 && most->memory == 0)
        (void) snprintf(ret, WANTS_SIZE, "%sa part", times);
    else if (most->memory == 0)
        (void) snprintf(ret, WANTS_SIZE, "%s%" PRIu32 " %%", times, most->core);
    else if (most->core == 0)
        (void) snprintf(ret, WANTS_SIZE, "%s%s", times, memory);
    else
        (void) snprintf(ret, WANTS_SIZE, "%s%" PRIu32 " %% %s", times, most->core, memory);
    return ret;
}
