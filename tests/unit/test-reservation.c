/* SPDX-License-Identifier: Apache-2.0 */

/* Reservations: held for their owners, against all others, for their time, over restarts. */

#include "scheduler-world.h"

#include <errno.h>

#include "fail-malloc.h"
#include "kube/objects/reservation_object.h"
#include "scheduler/gates/reservation.h"

#define NOW INT64_C(1767225600) /* 2026-01-01T00:00:00Z */
#define OWNER "\"owners\":[{\"namespace\":\"d\",\"queue\":\"fast\"}]"
#define HALF_CARD "\"resources\":{\"elasticgpu.io/gpu-core\":50}"
#define FAST "elasticgpu.io/queue=fast,"

struct kept {
    struct world *w;
    struct reservations r;
    struct gates gates;
    char status[4096]; /* the last that was to be written */
    int patches;
};

static void on_patch(const char *name, const struct reservation_status *status, void *userdata) {
    struct kept *k = userdata;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    (void) name;
    reservation_encode_status(status, &text);
    snprintf(k->status, sizeof(k->status), "%s", buf_str(&text));
    k->patches++;
}

static void begin(struct kept *k, struct world *w) {
    *k = (struct kept){.w = w, .r = {.state = w->state}};
    const struct state_selector selector = reservations_selector(&k->r);
    assert_int_equal(state_add_selector(w->state, &selector), 0);
    k->gates.rows[k->gates.n++] = (struct gate){"reservation", &k->r, reservations_open};
    w->extender.gates = w->binder.gates = &k->gates;
}

static void end(struct kept *k) {
    reservations_done(&k->r);
    k->w->state->nselectors--;
    k->w->extender.gates = k->w->binder.gates = NULL;
}

static void show(struct kept *k, const char *name, const char *spec, const char *status) {
    struct reservation_object object;
    struct json json;
    struct err err;
    char text[8192];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},"
             "\"spec\":{%s},\"status\":%s}",
             name, spec, status);
    assert_int_equal(json_parse(k->w->parser, text, strlen(text), &json, &err), 0);
    assert_int_equal(reservation_object_parse(json, &object, &err), 0);
    assert_int_equal(reservations_seen(&k->r, &object), 0);
}

static void tick(struct kept *k, int64_t now) {
    reservations_tick(&k->r, now, 16, on_patch, k);
}

/* A pod of namespace "d" in a queue, or in none ("main" alone without labels). */
static const char *ask(struct world *w, const char *uid, const char *queue, const char *resources) {
    static char out[512];
    _cleanup_buf_ struct buf pod = BUF_INIT(0), body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root, value;
    buf_printf(
        &pod,
        "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"d\",\"uid\":\"%s\",\"labels\":{%s},"
        "\"creationTimestamp\":\"2026-01-01T00:00:01Z\"},"
        "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{%s}}}]},"
        "\"status\":{}}",
        uid, uid, queue, resources);
    show_text(w, buf_str(&pod));
    buf_printf(&body, "{\"Pod\":%s,\"NodeNames\":[\"n\",\"m\"]}", buf_str(&pod));
    extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    struct json_iter it = json_iter(json_get(root, "NodeNames"));
    size_t len = 0;
    out[0] = '\0';
    while (json_next(&it, NULL, &value))
        len += (size_t) snprintf(out + len, sizeof(out) - len, "%s", json_string(value));
    if (len == 0)
        snprintf(out, sizeof(out), "-%s", json_string(json_get(root, "Error")));
    return out;
}

/* Asks, and has the pod bound to the one node that will do. */
static void run(struct world *w, const char *uid, const char *queue, const char *node) {
    assert_string_equal(ask(w, uid, queue, HALF), node);
    struct state_pod *pod = state_pod_find(w->state, uid);
    assert_int_equal(pod->stage, POD_ASSUMED);
    state_pod_stage(pod, POD_BOUND, w->now);
}

#define QUEUE "\"elasticgpu.io/queue\":\"fast\""
#define KUEUE "\"kueue.x-k8s.io/queue-name\":\"fast\""

static void test_owners(void **state) {
    struct world *w = *state;
    struct reservation_object o;
    struct json json;
    struct err err;
    const char *text = "{\"metadata\":{\"name\":\"r\"},\"spec\":{" HALF_CARD ",\"owners\":["
                       "{\"namespace\":\"a\"},{\"namespace\":\"b\",\"pod\":\"x\"},"
                       "{\"namespace\":\"c\",\"labels\":{\"k\":\"v\",\"l\":\"\"},"
                       "\"queue\":\"fast\"}]}}";
    assert_int_equal(json_parse(w->parser, text, strlen(text), &json, &err), 0);
    assert_int_equal(reservation_object_parse(json, &o, &err), 0);
    assert_true(reservation_is_for(&o, "a", "any", NULL));
    assert_true(reservation_is_for(&o, "b", "x", NULL));
    assert_false(reservation_is_for(&o, "b", "y", NULL));
    assert_true(reservation_is_for(&o, "c", "y", "k=v,l=,m=n," FAST));
    assert_true(reservation_is_for(&o, "c", "y", "kueue.x-k8s.io/queue-name=fast,l=,k=v,"));
    assert_false(reservation_is_for(&o, "c", "y", "k=v,l=,elasticgpu.io/queue=faster,"));
    assert_false(reservation_is_for(&o, "c", "y", "k=vv,l=," FAST));
    assert_false(reservation_is_for(&o, "c", "y", "k=v," FAST));
    assert_false(reservation_is_for(&o, "c", "y", NULL));
    assert_false(reservation_is_for(&o, "e", "x", "k=v,l=," FAST));
    reservation_object_done(&o);
}

/* One that cannot be read says so, is for no pod, and goes when it is deleted. */
static void test_unreadable(void **state) {
    struct world *w = *state;
    struct kept k;
    char spec[1200];
    begin(&k, w);
    show_node(w, "n", 1);
    snprintf(spec, sizeof(spec),
             HALF_CARD ",\"owners\":[{\"namespace\":\"default\",\"labels\":{\"k\":\"%0600d\"}}]",
             0);
    show(&k, "r", spec, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"phase\":\"Pending\",\"message\":\"its owners"));
    show(&k, "s", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    assert_int_equal(free_core(w, "n", 0), 50);
    show(&k, "s", spec, "null");
    assert_int_equal(free_core(w, "n", 0), 50);
    reservations_gone(&k.r, "s");
    assert_int_equal(free_core(w, "n", 0), 100);
    end(&k);
}

static void test_kept_for_its_owner(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"phase\":\"Held\""));
    assert_non_null(strstr(k.status, "\"node\":\"n\""));
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_string_equal(ask(w, "big", "", WHOLE), "-");
    run(w, "other", "", "n"); /* the other half */
    assert_string_equal(ask(w, "late", "", HALF), "-");
    assert_int_equal(free_core(w, "n", 0), 0);
    run(w, "mine", QUEUE, "n");
    assert_int_equal(free_core(w, "n", 0), 0);
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"usedBy\":[\"d/pod-mine\"],\"users\":\"d/pod-mine\""));
    assert_string_equal(ask(w, "mine2", KUEUE, HALF), "-"); /* there is no more of it */
    state_pod_gone(w->state, "mine");
    assert_int_equal(free_core(w, "n", 0), 0); /* kept for the next one */
    assert_string_equal(ask(w, "late", "", HALF), "-");
    run(w, "mine2", KUEUE, "n");
    end(&k);
}

/* It is kept where the policy puts such a share: here on the card that is in use already, whichever
 * node comes first. */
static void test_kept_on_the_best_node(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    run(w, "other", "", "n");
    show_node(w, "m", 1);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"node\":\"n\""));
    end(&k);
}

/* The owner goes where its share is kept, though the policy likes another node as much; and
 * elsewhere when it does not fit there. */
static void test_owner_goes_to_it(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    for (int i = 0; i < 2; i++) {
        const char *node = i ? "n" : "m";
        char spec[512];
        snprintf(spec, sizeof(spec), HALF_CARD ",\"nodeName\":\"%s\"," OWNER, node);
        show(&k, "r", spec, "null");
        tick(&k, NOW);
        run(w, "mine", QUEUE, node);
        assert_string_equal(ask(w, "whole", QUEUE, WHOLE), i ? "m" : "n");
        state_pod_gone(w->state, "mine");
        state_pod_gone(w->state, "whole");
        reservations_gone(&k.r, "r");
        assert_int_equal(free_core(w, node, 0), 100);
    }
    end(&k);
}

/* Of several that are for it, the first by name, in whatever order they were seen. */
static void test_first_by_name(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    show(&k, "two", HALF_CARD ",\"nodeName\":\"n\"," OWNER, "null");
    show(&k, "one", HALF_CARD ",\"nodeName\":\"m\"," OWNER, "null");
    tick(&k, NOW);
    assert_string_equal(ask(w, "a", QUEUE, HALF), "m");
    run(w, "b", QUEUE, "m");
    assert_string_equal(ask(w, "c", QUEUE, HALF), "n");
    end(&k);
}

/* One whose node is gone keeps no pod from the next, also before it is placed anew. */
static void test_the_first_whose_node_is_there(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "two", HALF_CARD ",\"nodeName\":\"n\"," OWNER, "null");
    tick(&k, NOW);
    run(w, "other", "", "n");
    show_node(w, "m", 1);
    show(&k, "one", HALF_CARD ",\"nodeName\":\"m\"," OWNER, "null");
    tick(&k, NOW);
    assert_int_equal(free_core(w, "m", 0), 50);
    state_node_gone(w->state, "m");
    assert_int_equal(ask(w, "mine", QUEUE, HALF)[0], 'n');
    end(&k);
}

/* The same for reservations that another process has placed, before the first tick of this one. */
static void test_first_by_name_after_a_restart(void **state) {
    static const char *const names[] = {"two", "one"}, *const nodes[] = {"n", "m"};
    struct world *w = *state;
    struct kept k;
    char status[2][4096], spec[512];
    begin(&k, w);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    for (int i = 0; i < 2; i++) {
        snprintf(spec, sizeof(spec), HALF_CARD ",\"nodeName\":\"%s\"," OWNER, nodes[i]);
        show(&k, names[i], spec, "null");
        tick(&k, NOW);
        snprintf(status[i], sizeof(status[i]), "%s", k.status);
        reservations_gone(&k.r, names[i]);
    }
    reservations_done(&k.r);
    for (int i = 0; i < 2; i++) {
        snprintf(spec, sizeof(spec), HALF_CARD ",\"nodeName\":\"%s\"," OWNER, nodes[i]);
        show(&k, names[i], spec, status[i]);
    }
    assert_string_equal(ask(w, "a", QUEUE, HALF), "m");
    end(&k);
}

/* After a rollback: its cards are held, and what the newer scheduler wrote of them stays. */
static void test_of_a_newer_scheduler(void **state) {
    struct world *w = *state;
    struct kept k;
    char status[4096], *version;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    snprintf(status, sizeof(status), "%s", k.status);
    version = strstr(status, "\\\"v\\\":1");
    assert_non_null(version);
    version[strlen("\\\"v\\\":")] = '2';
    reservations_gone(&k.r, "r");
    show(&k, "r", HALF_CARD "," OWNER, status);
    int patches = k.patches;
    assert_int_equal(free_core(w, "n", 0), 50);
    run(w, "a", QUEUE, "n");
    tick(&k, NOW);
    assert_int_equal(k.patches, patches);
    end(&k);
}

/* What is not kept is freed (address sanitizer). */
static void test_seen_without_memory(void **state) {
    struct world *w = *state;
    struct kept k;
    struct reservation_object object;
    struct json json;
    struct err err;
    char text[8192];
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    reservations_gone(&k.r, "r");
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"r\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},"
             "\"spec\":{" HALF_CARD "," OWNER "},\"status\":%s}",
             k.status);
    assert_int_equal(json_parse(w->parser, text, strlen(text), &json, &err), 0);
    assert_int_equal(reservation_object_parse(json, &object, &err), 0);
    assert_int_equal(object.held.ncontainers, 1);
    fail_malloc_at(1);
    assert_int_equal(reservations_seen(&k.r, &object), -ENOMEM);
    assert_true(fail_malloc_end());
    end(&k);
}

/* A reservation that could not be placed for lack of memory is placed in the next tick. The first
 * allocation of the first round is not of the reservation, but of the node's equivalence class. */
static void test_placed_without_memory(void **state) {
    for (int round = 0; round < 2; round++) {
        bool failed = true;
        for (size_t nth = 1; failed; nth++) {
            struct world *w = *state;
            struct kept k;
            begin(&k, w);
            show_node(w, "n", 1);
            show(&k, "r", HALF_CARD "," OWNER, "null");
            fail_malloc_at(nth);
            tick(&k, NOW);
            failed = fail_malloc_end();
            assert_true(failed || nth > 2);
            tick(&k, NOW);
            assert_non_null(strstr(k.status, "Held"));
            assert_int_equal(free_core(w, "n", 0), 50);
            reservations_gone(&k.r, "r");
            assert_int_equal(free_core(w, "n", 0), 100);
            end(&k);
        }
    }
}

static void test_its_time(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r",
         HALF_CARD "," OWNER ",\"starts\":\"2026-01-01T01:00:00Z\","
                   "\"expires\":\"2026-01-01T02:00:00Z\"",
         "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "Pending\",\"message\":\"it has not started\""));
    assert_int_equal(free_core(w, "n", 0), 100);
    tick(&k, NOW + 3600);
    assert_non_null(strstr(k.status, "Held"));
    run(w, "mine", QUEUE, "n");
    assert_int_equal(free_core(w, "n", 0), 50);
    tick(&k, NOW + 7200);
    assert_non_null(strstr(k.status, "{\"phase\":\"Expired\",\"message\":null,\"node\":null"));
    assert_int_equal(free_core(w, "n", 0), 50); /* who has it keeps it */
    state_pod_gone(w->state, "mine");
    assert_int_equal(free_core(w, "n", 0), 100);
    end(&k);
}

static void test_no_room_and_malformed(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r", "\"model\":\"h200\"," HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "no node has room for it"));
    reservations_gone(&k.r, "r");
    show(&k, "r", "\"resources\":{\"elasticgpu.io/gpu-core\":\"200\"}," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "no node has room for it"));
    show_node(w, "m", 2);
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"node\":\"m\""));
    assert_int_equal(free_core(w, "m", 1), 0);
    reservations_gone(&k.r, "r");
    show(&k, "r", "\"resources\":{\"elasticgpu.io/gpu-core\":\"150\"}," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU request is malformed"));
    show(&k, "s", "\"resources\":{\"cpu\":1}," OWNER, "null");
    tick(&k, NOW);
    end(&k);
}

/* A new process finds it by its status, and who draws on it by their cards. */
static void test_restart(void **state) {
    struct world *w = *state;
    struct kept k;
    char status[4096];
    begin(&k, w);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    show(&k, "r", HALF_CARD ",\"nodeName\":\"n\"," OWNER, "null");
    tick(&k, NOW);
    run(w, "mine", QUEUE, "n");
    tick(&k, NOW);
    snprintf(status, sizeof(status), "%s", k.status);
    show(&k, "r", HALF_CARD ",\"nodeName\":\"n\"," OWNER, status);
    int before = k.patches;
    tick(&k, NOW);
    assert_int_equal(k.patches, before); /* what is written is not written again */
    /* An event from before says nothing. */
    show(&k, "r", HALF_CARD ",\"nodeName\":\"n\"," OWNER, "null");
    assert_int_equal(free_core(w, "n", 0), 50);
    reservations_done(&k.r);
    assert_int_equal(state_draw(state_pod_find(w->state, "mine"), NULL, NULL), 0);
    assert_int_equal(free_core(w, "n", 0), 50);
    show(&k, "r", HALF_CARD ",\"nodeName\":\"n\"," OWNER, status); /* before any tick */
    assert_int_equal(free_core(w, "n", 0), 0);
    tick(&k, NOW);
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_int_equal(k.patches, before);
    end(&k);
}

/* A node that goes takes its reservation with it, to another one, unless a pod uses it. */
static void test_node_goes(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    show_node(w, "m", 1);
    run(w, "mine", QUEUE, "n");
    state_node_gone(w->state, "n");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"node\":\"n\""));
    state_pod_gone(w->state, "mine");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "\"node\":\"m\""));
    assert_int_equal(free_core(w, "m", 0), 50);
    reservations_sync_begin(&k.r);
    reservations_sync_end(&k.r);
    assert_int_equal(free_core(w, "m", 0), 100);
    end(&k);
}

/* A card that breaks, or goes, while its reserved part is unused. */
static void test_card_breaks(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 2);
    show(&k, "r", HALF_CARD "," OWNER, "null");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU-n-0"));
    run(w, "mine", QUEUE, "n");
    show_gpu(w, "n", 0, false);
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU-n-0")); /* in use */
    state_pod_gone(w->state, "mine");
    run(w, "other", "", "n");
    run(w, "others", "", "n");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU-n-0")); /* there is no better place yet */
    state_pod_gone(w->state, "other");
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU-n-1"));
    assert_null(strstr(k.status, "GPU-n-0"));
    assert_int_equal(free_core(w, "n", 1), 0);
    show_gpu(w, "n", 0, true);
    assert_int_equal(free_core(w, "n", 0), 100);
    tick(&k, NOW);
    assert_non_null(strstr(k.status, "GPU-n-1")); /* and there it stays */
    end(&k);
}

/* Thousands for which there is no room: a tick is short, and the one that fits has its turn. */
static void test_many_in_vain(void **state) {
    struct world *w = *state;
    struct kept k;
    char name[16];
    int ticks = 0;
    begin(&k, w);
    show_node(w, "n", 1);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "a%04d", i);
        show(&k, name, "\"resources\":{\"elasticgpu.io/gpu-core\":\"200\"}," OWNER, "null");
    }
    show(&k, "z", HALF_CARD "," OWNER, "null");
    for (; ticks < 60 && free_core(w, "n", 0) == 100; ticks++) {
        tick(&k, NOW);
        assert_in_range(k.r.placed, 1, 64);
    }
    assert_int_equal(ticks, 47); /* 3,001 of 64 each */
    reservations_gone(&k.r, "z");
    show(&k, "z", HALF_CARD "," OWNER, "null");
    for (ticks = 0; ticks < 60 && free_core(w, "n", 0) == 100; ticks++)
        tick(&k, NOW);
    assert_true(ticks <= 48); /* and again */
    end(&k);
}

/* In any order of what happens, others never get what is kept, and nothing is counted twice. */
static void test_in_any_order(void **state) {
    struct world *w = *state;
    uint32_t seed = 3;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 2);
    for (int step = 0; step < 4000; step++) {
        seed = seed * 1664525 + 1013904223;
        unsigned what = seed >> 16;
        char uid[8], name[2] = {(char) ('r' + what % 2), 0};
        bool owner = what >> 8 & 1;
        snprintf(uid, sizeof(uid), "%c%u", owner ? 'o' : 'x', what >> 9 & 3);
        struct state_pod *pod = state_pod_find(w->state, uid);
        switch (what % 6) {
        case 0:
            show(&k, name, HALF_CARD "," OWNER, "null");
            break;
        case 1:
            reservations_gone(&k.r, name);
            break;
        case 2:
        case 3:
            if (!pod || pod->stage <= POD_ASSUMED)
                (void) ask(w, uid, owner ? QUEUE : "", HALF);
            if ((pod = state_pod_find(w->state, uid)) && pod->stage == POD_ASSUMED)
                state_pod_stage(pod, POD_BOUND, w->now);
            break;
        case 4:
            state_pod_gone(w->state, uid);
            break;
        default:
            tick(&k, NOW);
        }
        unsigned held = 0, others = 0, drawn = 0;
        for (struct state_reserved *kept = w->state->reserved; kept; kept = kept->hh.next)
            held += 50;
        for (struct state_pod *p = w->state->pods; p; p = p->hh.next) {
            drawn += p->nallocations > 0 && p->draws && state_reserved_find(w->state, p->draws->id)
                         ? 50
                         : 0;
            others += p->nallocations > 0 ? 50 : 0;
        }
        assert_in_range(free_core(w, "n", 0) + free_core(w, "n", 1), 0, 200);
        assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1),
                         200 - others - (held > drawn ? held - drawn : 0));
    }
    end(&k);
}

/* Of two of which one may be written at a time, one fails always. */
static void test_nobody_starves(void **state) {
    struct world *w = *state;
    struct kept k;
    int of_both = 0;
    begin(&k, w);
    show_node(w, "n", 2);
    show(&k, "a", HALF_CARD "," OWNER, "{}");
    show(&k, "b", "\"resources\":{\"elasticgpu.io/gpu-core\":20}," OWNER, "{}");
    for (int i = 0; i < 4; i++) {
        reservations_tick(&k.r, NOW, 1, on_patch, &k);
        assert_in_range(k.patches, 0, i + 1);
        of_both |= strstr(k.status, "\\\"core\\\":50") ? 1 : 2;
    }
    assert_int_equal(of_both, 3);
    end(&k);
}

/* While not all that may be written is, each change is written at once. */
static void test_one_change_after_the_other(void **state) {
    struct world *w = *state;
    struct kept k;
    begin(&k, w);
    show_node(w, "n", 1);
    show(&k, "a", HALF_CARD "," OWNER ",\"expires\":\"2026-01-01T02:00:00Z\"", "{}");
    reservations_tick(&k.r, NOW, 2, on_patch, &k);
    assert_non_null(strstr(k.status, "Held"));
    reservations_tick(&k.r, NOW + 7200, 2, on_patch, &k);
    assert_non_null(strstr(k.status, "Expired"));
    assert_int_equal(k.patches, 2);
    end(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_unreadable),
        T(test_owners),
        T(test_kept_for_its_owner),
        T(test_kept_on_the_best_node),
        T(test_owner_goes_to_it),
        T(test_first_by_name),
        T(test_the_first_whose_node_is_there),
        T(test_first_by_name_after_a_restart),
        T(test_of_a_newer_scheduler),
        T(test_seen_without_memory),
        T(test_placed_without_memory),
        T(test_its_time),
        T(test_no_room_and_malformed),
        T(test_restart),
        T(test_node_goes),
        T(test_in_any_order),
        T(test_nobody_starves),
        T(test_one_change_after_the_other),
        T(test_card_breaks),
        T(test_many_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
