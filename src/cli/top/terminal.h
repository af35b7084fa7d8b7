/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The terminal as one screen: keys as they are pressed, its size, and what it was before. */

#include <stdbool.h>

enum key {
    KEY_NONE = -1, /* another size, or something else is readable */
    KEY_END = -2,  /* the terminal is gone */
    /* otherwise a byte, or: */
    KEY_UP = 256,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_FIRST,
    KEY_LAST,
    KEY_ESCAPE,
};

/* Takes the terminal over. Until terminal_leave() each end of the process by a signal that can be
 * caught, and each stop, gives it back as it was. 0 or a negative errno. */
int terminal_enter(void);
void terminal_leave(void);

/* Columns and lines; 80 and 24 where it does not say so. */
void terminal_size(int *ret_columns, int *ret_lines);

/* Waits for a key, for another size, or for one of the others (-1: none) to be readable. */
int terminal_key(int one, int other);
