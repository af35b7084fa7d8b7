/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The effect of an XID on a card and its processes, after NVIDIA's XID catalogue
 * (docs.nvidia.com/deploy/xid-errors). */

#include <stdint.h>

enum xid_effect {
    XID_TOLD,    /* an event, and nothing else */
    XID_CONTEXT, /* contexts end */
    XID_RESET,   /* all contexts end, and the card takes no work until it is reset */
    XID_LOST,    /* the card is gone */
};

/* `ret_result`: the CUresult that ends contexts. An XID that is not listed is only reported. */
enum xid_effect xid_effect(uint32_t xid, uint32_t *ret_result);
