/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What all API objects have, as JSON for requests to the API server. */

#include <stdbool.h>
#include <time.h>

#include "wire/json.h"

struct json_writer;

/* Begins an object and its metadata; the caller ends both. `namespace` NULL: not written. */
void object_begin(struct json_writer *w, const char *api_version, const char *kind,
                  const char *name, const char *namespace);

/* Writes the Eviction of one pod, and of no later one of its name. */
void eviction_write(struct json_writer *w, const char *pod, const char *namespace, const char *uid);

/* Puts the one owner of an object into its metadata; the owner is of the API version v1. */
void object_put_owner(struct json_writer *w, const char *kind, const char *name, const char *uid,
                      bool controller);

/* Puts the terms of a node selector that one node matches. */
void object_put_node_terms(struct json_writer *w, const char *node);

/* Puts a condition into the array of them. `since`: the time at which its status became what it is;
 * `heartbeat`: that of the last report, for conditions of nodes; else NULL. */
void object_put_condition(struct json_writer *w, const char *type, bool status, const char *reason,
                          const char *message, const char *since, const char *heartbeat);

/* The time since which the condition has that status, "": it has another one, or is absent. */
#define OBJECT_TIME_SIZE 32
void object_condition_since(struct json condition, bool status, char ret[static OBJECT_TIME_SIZE]);

/* Writes a time, or that of now, as the API server writes times, "2026-01-31T12:34:56Z". */
void object_time(time_t when, char ret[static OBJECT_TIME_SIZE]);
void object_now(char ret[static OBJECT_TIME_SIZE]);
