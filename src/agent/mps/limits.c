/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "base/text.h"
#include "base/units.h"

#define QUERIES                                                                                    \
    "get_default_active_thread_percentage\n"                                                       \
    "get_default_device_pinned_mem_limit 0\n"

uint32_t mps_clients_max(unsigned major) {
    return major >= 7 ? 48 : 16;
}

void mps_limits_commands(const struct mps_limits *l, char ret[static MPS_COMMANDS_MAX]) {
    (void) snprintf(ret, MPS_COMMANDS_MAX,
                    "set_default_active_thread_percentage %u\n"
                    "set_default_device_pinned_mem_limit 0 %lluM\n" QUERIES,
                    l->percent, (unsigned long long) (l->memory / MIB));
}

const char *mps_limits_queries(void) {
    return QUERIES;
}

/* Cuts the last line off; "" when there is none. */
static void take_line(char *text, char *ret, size_t size) {
    size_t len = strlen(text);
    char *end;

    while (len > 0 && text[len - 1] == '\n')
        text[--len] = 0;
    end = strrchr(text, '\n');
    text_copy(ret, size, end ? end + 1 : text);
    if (end)
        *end = 0;
    else
        text[0] = 0;
}

/* "30.0", "30": hundredths are rounding. */
static bool is_percent(const char *text, uint32_t want) {
    char *end;
    double value = strtod(text, &end);

    return end != text && *end == 0 && value > want - 0.05 && value < want + 0.05;
}

/* "2G", "2000M": whole numbers of MiB or GiB. */
static bool is_memory(const char *text, uint64_t want) {
    size_t digits = strspn(text, "0123456789");
    char number[24];
    uint64_t value;

    if (digits == 0 || digits >= sizeof(number))
        return false;
    text_copy(number, digits + 1, text);
    if (num_parse_u64(number, UINT64_MAX / GIB, &value) < 0 ||
        (text[digits] != 'G' && text[digits] != 'M'))
        return false;
    return value * (text[digits] == 'G' ? GIB / MIB : 1) == want / MIB;
}

int mps_limits_check(const struct mps_limits *l, const char *answer, struct err *err) {
    char text[1024], percent[64], memory[64];

    text_copy(text, sizeof(text), answer);
    take_line(text, memory, sizeof(memory));
    take_line(text, percent, sizeof(percent));
    if (is_percent(percent, l->percent) && is_memory(memory, l->memory))
        return 0;
    return err_set(err, EBADMSG,
                   "the MPS control daemon answers '%s' and '%s' for its limits of %u %% and %lluM",
                   percent, memory, l->percent, (unsigned long long) (l->memory / MIB));
}
