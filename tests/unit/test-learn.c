/* SPDX-License-Identifier: Apache-2.0 */

/* What the state reports to the model that policies learn from: arrivals, starts and nodes. */

#include "scheduler-world.h"

#include "place/workload/workload_model.h"
#include "scheduler/state/state_internal.h"

#define EIGHT_CARDS "\"elasticgpu.io/gpu-core\":\"800\""
#define FULL_PRICE 8000 /* of a node of eight cards, in thousandths of a card */

static struct place_model *learn(struct world *w) {
    struct place_model *model = place_model_new();
    assert_non_null(model);
    state_learn_from(w->state, model, 0);
    return model;
}

static void forget(struct world *w, struct place_model *model) {
    w->state->model = NULL;
    place_model_free(model);
}

static const char *no_name(void *self, uint32_t model) {
    (void) self, (void) model;
    return NULL;
}

/* They take CPU, without which GPUs of a node are left over. */
static void pods_without_gpus_count_as_arrivals(void **state) {
    struct world *w = *state;
    struct place_model *model = learn(w);
    const struct workload_names names = {.name = no_name};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    show_text(w, "{\"metadata\":{\"name\":\"x\",\"namespace\":\"d\",\"uid\":\"x\"},\"spec\":{"
                 "\"nodeName\":\"n\",\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{"
                 "\"cpu\":\"1500m\"}}}]}}");
    place_model_write(model, &names, &text);
    assert_non_null(strstr(buf_str(&text), "\nshape 0 0 0 1500 any 1\n"));
    forget(w, model);
}

static const char *name_of(void *self, uint32_t model) {
    const struct state *s = self;
    return model > 0 && model <= s->nmodels ? s->models[model] : NULL;
}

static void show_model(struct world *w, const char *node, const char *model) {
    struct gpu_object gpu = {.memory = 80 * GIB, .healthy = true};
    snprintf(gpu.name, sizeof(gpu.name), "%s-00", node);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-0", node);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    snprintf(gpu.model, sizeof(gpu.model), "%s", model);
    assert_int_equal(state_node_seen(w->state, node), 0);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

/* A card of which the driver reports no model is not of the first one. */
static void a_card_without_a_model(void **state) {
    struct world *w = *state;

    assert_int_equal(state_model_id(w->state, "NVIDIA L4"), 1);
    assert_int_equal(state_model_id(w->state, ""), 0);
    assert_int_equal(state_model_id(w->state, "NVIDIA L4"), 1);
}

static void a_pod_that_names_a_model_counts_for_that_one(void **state) {
    struct world *w = *state;
    struct place_model *model = learn(w);
    const struct workload_names names = {.self = w->state, .name = name_of};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    show_model(w, "a", "Made-up One");
    show_model(w, "b", "Made-up Two");
    show_pod(w, "p", HALF, NULL, "\"elasticgpu.io/gpu-model\":\"Two\"");
    place_model_write(model, &names, &text);
    assert_non_null(strstr(buf_str(&text), "\nmodel Made-up Two\nshape 1 50 0 0 1 1\n"));
    assert_null(strstr(buf_str(&text), "One"));
    forget(w, model);
}

/* What a pod of one card is charged for breaking up the idle node. */
static int64_t price_of(struct world *w, struct place_model *model, const char *idle) {
    struct gpu_request request;
    struct place_plan plan;
    struct state_node *node = state_node_find(w->state, idle);
    show_pod(w, "one", WHOLE, NULL, "");
    state_plan(w->state, state_pod_find(w->state, "one"), &request, &plan);
    state_refresh_all(w->state);
    const struct place_amount taken[PLACE_CARDS_MAX] = {{80 * GIB, 100, 0}};
    const struct place_node view = state_place_node(node);
    return place_model_slots_price(model, place_model_broken(model, &plan, &view, taken));
}

/* Pods of eight cards have half of all cards and ask for a third of them: for those that are still
 * to come, the idle nodes are more than enough. When they have ended, and small pods have taken
 * their place, the idle nodes are just enough. */
static void pods_need_no_idle_node_while_they_run(void **state) {
    enum { LARGE = 10, SMALL = 16 * LARGE, CARDS = 8 };
    struct world *w = *state;
    struct place_model *model = learn(w);
    char name[16], node[16];
    for (unsigned n = 0; n < 2 * LARGE; n++) {
        snprintf(node, sizeof(node), "n%02u", n);
        show_node(w, node, CARDS);
    }
    for (unsigned n = 0; n < SMALL; n++) {
        snprintf(name, sizeof(name), "small-%u", n);
        show_pod(w, name, WHOLE, NULL, "");
    }
    for (unsigned n = 0; n < LARGE; n++) {
        _cleanup_buf_ struct buf annotations = BUF_INIT(0);
        snprintf(node, sizeof(node), "n%02u", n);
        run_pod(w, node, EIGHT_CARDS, node, &annotations);
    }
    place_model_learn(model);
    assert_in_range(price_of(w, model, "n19"), 1, FULL_PRICE / 2);
    for (unsigned n = 0; n < LARGE * CARDS; n++) {
        _cleanup_buf_ struct buf annotations = BUF_INIT(0);
        snprintf(node, sizeof(node), "n%02u", n / CARDS);
        snprintf(name, sizeof(name), "small-%u", n);
        state_pod_gone(w->state, node);
        run_pod(w, name, WHOLE, node, &annotations);
    }
    place_model_learn(model);
    assert_int_equal(price_of(w, model, "n19"), FULL_PRICE);
    forget(w, model);
}

static uint32_t number_of(struct world *w, const char *node) {
    state_refresh_all(w->state);
    return state_node_find(w->state, node)->id;
}

/* The model counts a limited number of nodes with GPUs: each has a number of its own, and leaves it
 * to the next one. */
static void a_number_is_of_one_node_at_a_time(void **state) {
    struct world *w = *state;
    struct place_model *model = learn(w);
    show_node(w, "a", 1);
    show_node(w, "without", 0);
    assert_int_equal(state_node_absence(w->state, "without", PLACE_NODE_UNREADY), 1);
    show_node(w, "b", 1);
    assert_int_equal(number_of(w, "a"), 0);
    assert_int_equal(number_of(w, "b"), 1);
    assert_false(state_node_find(w->state, "without")->numbered);
    state_node_gone(w->state, "without");
    show_node(w, "c", 1);
    assert_int_equal(number_of(w, "c"), 2);
    state_gpu_gone(w->state, "a-00");
    state_node_gone(w->state, "a");
    show_node(w, "d", 1);
    assert_int_equal(number_of(w, "d"), 0);
    forget(w, model);
}

/* What is there when learning begins is learned at once, also without any arrival. */
static void learning_begins_with_what_is_there(void **state) {
    struct world *w = *state;
    struct place_model *fresh = place_model_new();
    show_node(w, "n", 2);
    struct place_model *model = learn(w);
    assert_true(place_model_epoch(model) > place_model_epoch(fresh));
    place_model_free(fresh);
    forget(w, model);
}

/* The number of a node that is gone is given to the next one. */
static void numbers_of_nodes_are_given_again(void **state) {
    struct world *w = *state;
    struct place_model *model = learn(w);
    char name[16];
    for (unsigned i = 0; i < 70; i++) {
        snprintf(name, sizeof(name), "n%02u", i);
        show_node(w, name, 1);
        state_refresh_all(w->state);
        assert_true(state_node_find(w->state, name)->numbered);
        assert_int_equal(state_node_find(w->state, name)->id, i);
    }
    for (unsigned i = 60; i < 68; i += 3) {
        char card[24];
        snprintf(name, sizeof(name), "n%02u", i);
        snprintf(card, sizeof(card), "%s-00", name);
        state_gpu_gone(w->state, card);
        state_node_gone(w->state, name);
        assert_null(state_node_find(w->state, name));
        snprintf(name, sizeof(name), "m%02u", i);
        show_node(w, name, 1);
        state_refresh_all(w->state);
        assert_int_equal(state_node_find(w->state, name)->id, i);
    }
    forget(w, model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(pods_without_gpus_count_as_arrivals),   T(learning_begins_with_what_is_there),
        T(numbers_of_nodes_are_given_again),      T(a_card_without_a_model),
        T(numbers_of_nodes_are_given_again),      T(a_pod_that_names_a_model_counts_for_that_one),
        T(pods_need_no_idle_node_while_they_run), T(a_number_is_of_one_node_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
