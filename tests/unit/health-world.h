/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One card in virtual time, for the tests of its states. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/verdicts/health.h"

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)

/* One card, and what its driver reports. */
static struct world {
    struct health_options options;
    struct health card;
    struct health_reading reading;
    uint64_t now;
} w;

static inline void start(void) {
    memset(&w, 0, sizeof(w));
    w.options = health_defaults;
    w.now = 12345678;
}

static inline void poll_after(uint64_t ms) {
    w.now += ms;
    health_read(&w.card, &w.options, &w.reading, w.now);
}

static inline void xid(uint32_t code) {
    health_take_xid(&w.card, &w.options, code, w.now);
}

static inline void order(enum health_order o) {
    health_take_order(&w.card, &w.options, o, "by order", w.now);
}

static inline void done(enum health_work work, const char *error) {
    health_work_done(&w.card, &w.options, work, error, w.now);
}

static inline void expect(enum health_state state, const char *reason) {
    assert_string_equal(health_state_name(w.card.state), health_state_name(state));
    assert_string_equal(w.card.reason, reason);
}

static inline void expect_work(enum health_work work) {
    assert_int_equal(health_work(&w.card), work);
}

static inline void start_healthy(void) {
    start();
    poll_after(0);
    expect(HEALTH_HEALTHY, "");
}

#define XID_48 "XID 48 (double-bit ECC error): the card needs a reset"
#define OVER "; it is over; the card waits for annotation elasticgpu.io/set-healthy"
#define XID_79 "XID 79 (the GPU has fallen off the bus): the node needs a restart"
