/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's Events: what the rate holds back is written later, and one pod does not use up what
 * the others have. The test is the API server. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "agent/cluster/pod_events.h"
#include "base/err.h"
#include "kube/api/client.h"
#include "kube/api/event_writer.h"

#define PODS 30

static struct {
    unsigned posts, patches;
    bool told[PODS]; /* a neighbour's Event was written */
    char last[2048]; /* the latest body about the noisy pod */
} api;

static struct {
    kube_response_cb callback;
    void *userdata;
} open_requests[64];
static size_t nopen;

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    const char *pod = strstr(body, "\"name\":\"pod-");
    unsigned n;
    (void) client, (void) path, (void) content_type, (void) timeout_ms, (void) ret_call, (void) err;
    *(strcmp(method, "POST") == 0 ? &api.posts : &api.patches) += 1;
    if (pod && sscanf(pod, "\"name\":\"pod-%u.", &n) == 1 && n < PODS)
        api.told[n] = true;
    else
        (void) snprintf(api.last, sizeof(api.last), "%.*s", (int) size, body);
    assert_in_range(nopen, 0, 63);
    open_requests[nopen].callback = on_response;
    open_requests[nopen++].userdata = userdata;
    return 0;
}

static void answer(void) {
    const struct kube_response ok = {.status = 200, .text = "", .reason = ""};
    while (nopen > 0) {
        nopen--;
        open_requests[nopen].callback(&ok, open_requests[nopen].userdata);
    }
}

/* The agent's beats of that many seconds, which nothing waits for. */
static void beat(struct pod_events *p, unsigned seconds) {
    for (unsigned i = 1; i <= seconds; i++) {
        event_writer_run(p->writer, uv_now(p->loop) + i * 1000);
        answer();
    }
}

static void test_each_pod_has_its_turn(void **state) {
    static struct pod_events p;
    uv_loop_t loop;
    char name[32], uid[32], text[64];
    (void) state;
    assert_int_equal(uv_loop_init(&loop), 0);
    p.client = (struct kube_client *) &p; /* only handed on to the API server of this test */
    pod_events_start(&p, &loop);
    assert_non_null(p.writer);
    for (unsigned i = 0; i < 200; i++) {
        (void) snprintf(text, sizeof(text), "process %u of this pod", i);
        pod_events_pod(&p, "ns", "noisy", "uid-noisy", "GPUWithoutShare", text);
    }
    for (unsigned i = 0; i < PODS; i++) {
        (void) snprintf(name, sizeof(name), "pod-%u", i);
        (void) snprintf(uid, sizeof(uid), "uid-%u", i);
        pod_events_container(&p, "ns", name, uid, "main", "GPUMemoryOveruse", "holds too much");
    }
    answer();
    beat(&p, 6);
    for (unsigned i = 0; i < PODS; i++)
        if (!api.told[i])
            fail_msg("nothing was written about pod %u", i);
    assert_int_equal(api.posts, PODS + 1);
    assert_int_equal(api.patches, 1);
    assert_non_null(strstr(api.last, "process 199 of this pod"));
    assert_non_null(strstr(api.last, "\"count\":200"));
    event_writer_free(p.writer);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_pod_has_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
