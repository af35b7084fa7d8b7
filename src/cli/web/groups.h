/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Viewers that are shown one reading, because their tokens have the same rights: a journal, and a
 * thread that reads with the token of one member, the acting one. It reads nothing but what these
 * rights cover, whatever else that token may read. A viewer whose rights are not proved is a group
 * alone. Who may be in a group is the caller's to know. All calls are made on one thread. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/web/journal.h"
#include "cli/web/worker.h"

struct group;
struct groups;

struct member {
    struct member *prev, *next;
    struct group *group; /* NULL: in none */
    const char *token;   /* NULL: the user of kubectl's context; borrowed */
    unsigned viewers;
    bool is_doubted; /* the API server has refused what its rights allow: it does not act */
    bool is_lenient; /* it has proved them again all the same */
    void *userdata;
};

/* What the members have in common. */
struct group_key {
    const char *namespace; /* copied; NULL: all */
    bool is_shared;        /* false: no other joins */
    unsigned rights;       /* RIGHT_..., where it is shared */
};

struct groups_options {
    struct worker_source source;  /* but namespace and rights */
    size_t max;                   /* groups, those that are ending included */
    size_t journal_max;           /* bytes of each; 0: any number */
    void (*wake)(void *userdata); /* from any thread: groups_look() is to be called */
    /* Called by groups_look(), which goes on with what they leave: */
    void (*news)(void *userdata, struct member *member);
    void (*refused)(void *userdata, struct member *member); /* its token is not taken any more */
    void (*doubt)(void *userdata, struct member *member);   /* it is to prove its rights again */
    void *userdata;
};

/* As long as the process. NULL without memory. */
struct groups *groups_new(const struct groups_options *options);

/* The member is in no group. -EUSERS: there are too many. */
int groups_join(struct groups *groups, struct member *member, const struct group_key *key,
                struct err *err);
void groups_leave(struct member *member); /* of whichever group; of none is fine */
bool groups_is_of(const struct group *group, const struct group_key *key);
bool groups_is_same_namespace(const char *a, const char *b); /* NULL: all */
bool group_is_shared(const struct group *group);

/* How many pages of the member watch. */
void group_watch(struct member *member, unsigned viewers);

/* A member has proved that it has the rights of its group. */
void group_trust(struct member *member);

/* A reader of what the group is shown, which holds the group until it is freed. NULL without
 * memory. */
struct journal_reader *group_reader_new(struct group *group);
void group_reader_free(struct group *group, struct journal_reader *reader);

void groups_look(struct groups *groups);

/* Waits for all threads. */
void groups_stop(struct groups *groups);
