/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How two cards of a machine are connected, in the words of `nvidia-smi topo -m`. More is better.
 */

#include <stdint.h>

enum gpu_link {
    LINK_UNKNOWN,
    LINK_SYSTEM,   /* SYS: over the connection between sockets */
    LINK_NODE,     /* NODE: between host bridges of one NUMA node */
    LINK_HOST,     /* PHB: over one host bridge */
    LINK_SWITCHES, /* PXB: over several PCIe switches */
    LINK_SWITCH,   /* PIX: over one PCIe switch */
    LINK_BOARD,    /* PSB: on one board */
    LINK_NVLINK,   /* NVn: n NVLinks, as LINK_NVLINK + n - 1 */
};
#define LINK_NVLINKS_MAX 64

#define GPU_LINK_TEXT_MAX 8

/* Writes the word; returns `out`. */
const char *gpu_link_format(uint8_t link, char out[static GPU_LINK_TEXT_MAX]);

/* LINK_UNKNOWN for any other text. */
uint8_t gpu_link_parse(const char *text);
