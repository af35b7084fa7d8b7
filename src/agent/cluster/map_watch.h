/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One ConfigMap, as the API server has it. One thread, on the client's loop. */

#include <stdbool.h>
#include <stddef.h>

struct err;
struct kube_client;
struct map_watch;

#define MAP_ENTRIES_MAX 256 /* more are not read */

struct map_entries {
    size_t n;
    char *names[MAP_ENTRIES_MAX], *texts[MAP_ENTRIES_MAX];
};

/* `on_change`: what the functions below return can be another. */
int map_watch_start(struct kube_client *client, const char *namespace, const char *name,
                    void (*on_change)(void *userdata), void *userdata, struct map_watch **ret,
                    struct err *err);

/* "namespace/name" */
const char *map_watch_name(const struct map_watch *w);

/* Whether the API server has said what there is. */
bool map_watch_is_known(const struct map_watch *w);

/* Why that is not known; "": no request has failed yet. */
const char *map_watch_trouble(const struct map_watch *w);

/* Whether the last request was refused for lack of a right. */
bool map_watch_is_refused(const struct map_watch *w);

/* NULL: there is no such ConfigMap, or it is not known. Valid until the next change. */
const struct map_entries *map_watch_entries(const struct map_watch *w);

/* The text of an entry; NULL: there is none of this name. */
const char *map_entries_text(const struct map_entries *entries, const char *name);

/* Before the client is closed. Takes NULL. */
void map_watch_stop(struct map_watch *w);
