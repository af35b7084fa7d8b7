/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gpu_link.h"

#include <stdio.h>
#include <string.h>

static const char *const words[LINK_NVLINK] = {"?", "SYS", "NODE", "PHB", "PXB", "PIX", "PSB"};

const char *gpu_link_format(uint8_t link, char out[static GPU_LINK_TEXT_MAX]) {
    if (link < LINK_NVLINK)
        (void) snprintf(out, GPU_LINK_TEXT_MAX, "%s", words[link]);
    else
        (void) snprintf(out, GPU_LINK_TEXT_MAX, "NV%d", link - LINK_NVLINK + 1);
    return out;
}

uint8_t gpu_link_parse(const char *text) {
    unsigned n = 0;
    for (uint8_t i = LINK_SYSTEM; i < LINK_NVLINK; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    if (strncmp(text, "NV", 2) != 0 || text[2] == '\0' || strlen(text) > 4)
        return LINK_UNKNOWN;
    for (const char *at = text + 2; *at; at++) {
        if (*at < '0' || *at > '9')
            return LINK_UNKNOWN;
        n = n * 10 + (unsigned) (*at - '0');
    }
    return n >= 1 && n <= LINK_NVLINKS_MAX ? (uint8_t) (LINK_NVLINK + n - 1) : LINK_UNKNOWN;
}
