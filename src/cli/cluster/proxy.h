/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `kubectl proxy`, which logs in as kubectl does and passes requests on to the API server. One is
 * started when it is first needed, and ends with this process however that ends.
 *
 * Its socket is in a directory that only this user can enter, and both are removed as soon as it
 * listens: the socket is reached by a descriptor that this process holds. */

#include <stddef.h>

#include "base/err.h"

/* A connection to it. A descriptor, or a negative errno with a text that names cause and remedy. */
int proxy_connect(struct err *err);

/* Ends it, and no other one is started: requests of other threads fail from now on. */
void proxy_end(void);

/* To poll while an answer is awaited: kubectl's standard error; -1: there is none. */
int proxy_complaints(void);

/* Reads what is there of it. What a program that kubectl starts to log in says is passed on to the
 * user; kubectl's own log is not. */
void proxy_read_complaints(void);

/* Has `hear` called with what would be passed on, a part of a line at a time, by the thread that
 * reads; NULL: standard error again. To be called while no other thread sends requests. */
void proxy_listen(void (*hear)(void *hearer, const char *text, size_t len), void *hearer);
