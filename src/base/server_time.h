/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The time of the API server, as its answers tell it. What is written to objects, compared with
 * times in objects, or says how long a certificate is valid, must not depend on the clock of one
 * machine. All threads. */

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* `date`: of the header field Date of an answer. One that does not agree with the time so far
 * counts when a later answer has agreed with it for SERVER_TIME_AGREED_S: of several API servers
 * one can have a wrong clock. Returns by how many seconds the clock of this machine is ahead of
 * `date`; 0 for what is no date, which is ignored. */
int64_t server_time_heard(const char *date);

#define SERVER_TIME_AGREED_S 10

/* Goes by the clock of this machine until the next answer: by the time that was heard a certificate
 * is not valid, and without a connection no other time would be heard. */
void server_time_forget(void);

/* Seconds since 1970, about a second behind. Until something was heard it is the time of this
 * machine. */
int64_t server_time(void);

/* By how many seconds the clock of this machine is ahead of that time; 0 while both agree. */
int64_t server_time_ahead(void);

/* server_time() as time(), for libraries. */
time_t server_time_as_time(time_t *ret);
