/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts of tenants, agents and servers on the user's terminal. */

#include <stdbool.h>
#include <stdio.h>

/* Puts '?' in place of what a terminal could take for an order: the control characters of ASCII,
 * and those of Latin-1 in UTF-8. Returns the text, which is as long as before. */
char *clean_text(char *text, bool keeps_lines);

/* As fprintf(), and cleans what it prints but for line ends. */
void clean_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
