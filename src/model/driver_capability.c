/* SPDX-License-Identifier: Apache-2.0 */
#include "model/driver_capability.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *word;
    uint8_t bits;
} words[] = {
    {"compute", DRIVER_COMPUTE},   {"utility", DRIVER_UTILITY},      {"video", DRIVER_VIDEO},
    {"graphics", DRIVER_GRAPHICS}, {"display", DRIVER_DISPLAY},      {"ngx", DRIVER_NGX},
    {"compat32", DRIVER_COMPAT32}, {"all", DRIVER_CAPABILITIES_ALL},
};

static uint8_t bits_of(const char *word, size_t len) {
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0)
            return words[i].bits;
    return 0;
}

uint8_t driver_capabilities_parse(const char *list) {
    uint8_t bits = 0;
    while (*list) {
        size_t gap = strspn(list, ", "), len = strcspn(list + gap, ", ");
        uint8_t more = bits_of(list + gap, len);
        if (len > 0 && more == 0)
            return DRIVER_CAPABILITIES_UNSAID;
        bits |= more;
        list += gap + len;
    }
    return bits;
}
