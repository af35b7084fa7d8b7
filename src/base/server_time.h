/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The time of the API server, as its answers tell it. What is written to objects, compared with
 * times in objects, or says how long a certificate is valid, must not depend on the clock of one
 * machine. All threads. */

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* `date`: of the header field Date of an answer. Returns by how many seconds the clock of this
 * machine is ahead of it; 0 for what is no date, which is ignored. */
int64_t server_time_heard(const char *date);

/* Seconds since 1970, about a second behind. Until something was heard it is the time of this
 * machine. */
int64_t server_time(void);

/* By how many seconds the clock of this machine is ahead of that time; 0 while both agree. */
int64_t server_time_ahead(void);

/* server_time() as time(), for libraries. */
time_t server_time_as_time(time_t *ret);
