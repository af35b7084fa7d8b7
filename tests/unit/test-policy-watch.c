/* SPDX-License-Identifier: Apache-2.0 */

/* The status of quotas and reservations, written through an API server whose CRD of quotas drops
 * the part of claims. */

#include "scheduler-world.h"

#include <errno.h>

#include "scheduler/daemon/scheduler.h"
#include "scheduler/state/namespace_usage.h"

uint64_t scheduler_now(const struct scheduler *s) {
    (void) s;
    return 1;
}

void watch_changed(struct scheduler *s) {
    (void) s;
}

void watch_refuse(struct scheduler *s, const char *why) {
    (void) s;
    fail_msg("%s", why);
}

static int cannot_request(void *context, const char *method, const char *path,
                          const char *content_type, const char *body, size_t size,
                          unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                          struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) on_response, (void) userdata;
    return err_set(err, ENOMEM, "test");
}

static void show(struct scheduler *s, struct world *w,
                 void (*see)(struct scheduler *s, enum kube_event event, struct json object),
                 const char *text) {
    struct json object;
    assert_int_equal(json_parse(w->parser, text, strlen(text), &object, NULL), 0);
    see(s, KUBE_MODIFIED, object);
}

/* With a quota whose status has all but the part of claims. */
static struct scheduler *begin(struct world *w) {
    const struct quota_use use = {.of = {[QUOTA_CORE] = 50}};
    struct scheduler *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->state = w->state;
    s->binder.api = (struct api){fake_request, w};
    assert_int_equal(govern_start(s), 0);
    assert_int_equal(state_charge(w->state, "claim", "a", &use), 0);
    show(s, w, govern_quotas.object,
         "{\"metadata\":{\"name\":\"q\",\"namespace\":\"a\"},"
         "\"spec\":{\"max\":{\"elasticgpu.io/gpu-core\":\"100\"}},"
         "\"status\":{\"used\":{\"elasticgpu.io/gpu-core\":\"50\"}}}");
    return s;
}

static void end(struct scheduler *s) {
    state_uncharge(s->state, "claim");
    govern_done(s);
    free(s);
}

static void test_a_status_is_sent_until_it_is_taken(void **state) {
    struct world *w = *state;
    struct scheduler *s = begin(w);

    s->binder.api = (struct api){cannot_request, w};
    govern_tick(s);
    s->binder.api = (struct api){fake_request, w};
    static const int answers[] = {500, 0, 200};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        govern_tick(s); /* those that were sent have their turn again after this */
        govern_tick(s);
        assert_int_equal(w->nasked, 1);
        respond(w, 0, answers[i], false, NULL);
    }
    for (int i = 0; i < 3; i++)
        govern_tick(s);
    assert_int_equal(w->nasked, 0);
    end(s);
}

/* A reservation's status that the API server rejects is no reason to send that of a quota again. */
static void test_a_reservation_that_is_refused(void **state) {
    struct world *w = *state;
    struct scheduler *s = begin(w);
    unsigned quotas = 0, reservations = 0;

    show(s, w, govern_reservations.object,
         "{\"metadata\":{\"name\":\"r\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},"
         "\"spec\":{\"resources\":{\"elasticgpu.io/gpu-core\":\"50\"},"
         "\"owners\":[{\"namespace\":\"a\"}]},\"status\":{}}");
    for (int i = 0; i < 6; i++) {
        govern_tick(s);
        while (w->nasked > 0) {
            bool of_quota = strstr(w->asked[0].path, "/elasticgpuquotas/") != NULL;
            quotas += of_quota;
            reservations += !of_quota;
            respond(w, 0, of_quota ? 200 : 422, false, NULL);
        }
    }
    assert_int_equal(quotas, 1);
    assert_in_range(reservations, 2, 6);
    end(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_a_status_is_sent_until_it_is_taken),
        T(test_a_reservation_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
