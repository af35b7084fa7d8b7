/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an XID does to a card and to the processes on it, after NVIDIA's XID catalogue
 * (docs.nvidia.com/deploy/xid-errors). */

#include <stdint.h>

enum xid_effect {
    XID_TOLD,    /* an event, and nothing else */
    XID_CONTEXT, /* contexts die */
    XID_RESET,   /* all contexts die, and the card takes no work until it is reset */
    XID_LOST,    /* the card is gone */
};

/* `ret_result`: the CUresult that contexts die of. An XID that is not listed is told. */
enum xid_effect xid_effect(uint32_t xid, uint32_t *ret_result);
