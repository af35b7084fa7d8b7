/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <stdio.h>
#include <string.h>

#define PF_EXITING 0x4u
#define FLAGS_FIELD 6 /* fields after the state, which is the first behind the name */

bool proc_stat_is_ending(const char *text) {
    /* The name is in parentheses and may contain any character, parentheses too. */
    const char *at = strrchr(text, ')');
    unsigned long flags;

    if (!at || at[1] != ' ' || !at[2])
        return true;
    at += 2;
    if (*at == 'Z' || *at == 'X')
        return true;
    for (int i = 0; i < FLAGS_FIELD; i++) {
        at = strchr(at, ' ');
        if (!at)
            return true;
        at++;
    }
    return sscanf(at, "%lu", &flags) != 1 || (flags & PF_EXITING) != 0;
}
