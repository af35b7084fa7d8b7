/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What viewers are shown: a text for each key, in the order of their last changes. A viewer has a
 * place in that order, and reads on from it: what has changed twice meanwhile comes once, and a
 * slow one costs no memory. What there was at its beginning comes before all changes, in the order
 * in which the keys came to be, but for the key "state", which is its end: a viewer that has read
 * it has been told of everything. No I/O. All calls may come from any thread. */

#include <stdbool.h>
#include <stddef.h>

struct journal;
struct journal_reader;

/* Holds so many bytes; 0: any number. NULL without memory. */
struct journal *journal_new(size_t max);
/* All readers must have ended. NULL is fine. */
void journal_free(struct journal *journal);

/* The text of a key, which is a line of JSON with the key in it; nothing happens where it is what
 * the key has already. 0, -ENOMEM, or -ENOSPC: the journal holds no more. */
int journal_put(struct journal *journal, const char *key, const char *text);

/* Begins a reading of the keys with a prefix. At its end those that were not put since are removed:
 * readers get {"k":KEY,"gone":true}. */
void journal_begin(struct journal *journal, const char *prefix);
void journal_end(struct journal *journal, const char *prefix);

/* Whether the key was put in the reading that is under way. */
bool journal_is_put(struct journal *journal, const char *key);

/* A reader that has read nothing, or NULL without memory. */
struct journal_reader *journal_reader_new(struct journal *journal);
void journal_reader_free(struct journal_reader *reader);

/* Writes the next texts as server-sent events, a line of an event for each: up to `max` bytes of
 * them, and the call that follows goes on from there. 0 where there is nothing new. */
size_t journal_read(struct journal_reader *reader, char *to, size_t max);

/* How many texts it could not hold since this was last asked. */
size_t journal_refused(struct journal *journal);

size_t journal_keys(struct journal *journal); /* how many there are, removed ones included */
