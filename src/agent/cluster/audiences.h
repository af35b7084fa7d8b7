/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The audiences of the API server, by the token that it gave the agent. */

struct json_writer;

/* Appends the audiences of the token in that file to the array that is open in `w`, and returns how
 * many: 0 where there is no file (NULL, too) or its token names none, as one without an end. The
 * signature is not checked: the token is the agent's own. */
unsigned audiences_put(const char *token_file, struct json_writer *w);
