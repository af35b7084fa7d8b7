/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes Events without loading the API server, whatever is reported. Of one reason there is
 * one Event for each object (and container): what is noted again raises its count. The Event is
 * written at once and then at intervals that double from 5 s to 5 min; what is noted in between is
 * written at their end, in its latest form. All objects together get a number of writes per second,
 * one object at most one, and they take turns: no object waits because of the number of Events
 * about another. What is kept is bounded for each object (16 Events, messages of 1,024 bytes) and
 * for all.
 *
 * One thread; pure but for the clock that stamps an Event: time and the way to the API server are
 * the caller's.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/client.h"
#include "kube/api/event.h"

struct event_writer;

struct event_writer_options {
    const char *component;
    /* As kube_request(): answers exactly once and later, unless it returns an error. */
    int (*request)(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err);
    void *context;
    /* Called before an Event is written that was noted with `lapses`: whether it is still true. */
    bool (*holds)(const char *uid, void *userdata);
    /* For logs: the Event that is written, and its count since the start. May be NULL. */
    void (*on_write)(const struct event *e, uint64_t count, void *userdata);
    void *userdata;
    unsigned per_second;  /* writes, for all objects; 0: 10 */
    unsigned objects_max; /* 0: 4096; the one noted longest ago is forgotten first */
};

struct event_writer_stats {
    uint64_t written, failed; /* requests */
    uint64_t dropped;         /* notes for which there was no room or memory */
    uint32_t objects;
};

/* NULL without memory. */
struct event_writer *event_writer_new(const struct event_writer_options *options);
/* No answer may come afterwards. Takes NULL. */
void event_writer_free(struct event_writer *w);

/*
 * Notes that the event is so, now. `component` of it is not read; everything is copied. While `key`
 * is that of the last write, the message that was written stays; 0: the hash of the message.
 * `lapses`: not written once options.holds() returns false. `w` NULL: does nothing.
 */
void event_writer_note(struct event_writer *w, const struct event *e, uint64_t key, bool lapses,
                       uint64_t now_ms);

/* Whether the message with that key is what is written: noting it again needs no message. */
bool event_writer_shows(const struct event_writer *w, const struct event *e, uint64_t key);

/* To be called about once a second: writes what is due. */
void event_writer_run(struct event_writer *w, uint64_t now_ms);

void event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret);
