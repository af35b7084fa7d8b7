/* SPDX-License-Identifier: Apache-2.0 */

/* The ResourceSlices of a node, against an API server of the test's own: it holds what was written,
 * and has the features that a test gives it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "agent/dra/slices.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "base/units.h"
#include "gpu/device.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "mig/card.h"
#include "wire/json.h"

#define TIMEOUT_MS 60000
#define OBJECTS 4

struct object {
    char name[128];
    char *text;
    unsigned uid;
};

struct fixture {
    uv_loop_t loop;
    uv_timer_t timeout;
    bool timed_out, closed;
    struct dra_slices *slices;
    struct gpu_snapshot devices;
    char trouble[DRA_SLICES_TROUBLE_MAX];
    /* the API server */
    struct object objects[OBJECTS];
    unsigned written, deleted, uids;
    bool drops_shares, drops_taints, drops_counters;
    struct mig_card *dynamic; /* what the first card can be divided into */
    bool whole;               /* devices are given out whole */
    uint64_t capacity;        /* of each card; 0: its memory */
    bool evicts, ends;
    int status; /* of writes; 0: they succeed */
    struct kube_reflector_handlers watch;
    void *watcher;
    bool synced;
};

static struct fixture *f;

/* ---- the API server ---- */

struct kube_call {
    char method[8], path[256];
    char *body;
    kube_response_cb on_response;
    void *userdata;
    uv_timer_t timer;
    bool cancelled;
};

static void cut(char *text, const char *what) {
    for (char *at; (at = strstr(text, what));)
        memmove(at, at + strlen(what), strlen(at + strlen(what)) + 1);
}

static void cut_list(char *text, const char *key) {
    for (char *at; (at = strstr(text, key));) {
        const char *end = strchr(at, ']') + 1;

        memmove(at, end, strlen(end) + 1);
    }
}

/* As the server has it. */
static char *stored(const struct kube_call *c, unsigned uid) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    const char *at = strstr(c->body, "\"metadata\":{");
    char *text;

    assert_non_null(at);
    at += strlen("\"metadata\":{");
    buf_append(&out, c->body, (size_t) (at - c->body));
    buf_printf(&out, "\"uid\":\"u%u\",\"resourceVersion\":\"%u\",", uid, ++f->uids);
    buf_puts(&out, at);
    text = strdup(buf_str(&out));
    if (f->drops_shares)
        cut(text, "\"allowMultipleAllocations\":true,");
    if (f->drops_taints)
        cut_list(text, ",\"taints\":[");
    if (f->drops_counters) {
        cut_list(text, ",\"sharedCounters\":[");
        cut_list(text, ",\"consumesCounters\":[");
    }
    return text;
}

static struct object *find(const char *name) {
    for (size_t i = 0; i < OBJECTS; i++)
        if (f->objects[i].text && strcmp(f->objects[i].name, name) == 0)
            return &f->objects[i];
    return NULL;
}

static void tell(enum kube_event event, const char *text) {
    struct json_parser *parser = NULL;
    struct json root;

    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    f->watch.on_object(event, root, f->watcher);
    (void) json_parser_free(parser);
}

static int apply(const struct kube_call *c, const char **ret) {
    const char *name = strrchr(c->path, '/') + 1;
    struct json_parser *parser = NULL;
    struct object *o;
    struct json root;
    char made[128];

    if (f->status)
        return f->status;
    if (strcmp(c->method, "DELETE") == 0) {
        o = find(name);
        assert_non_null(o);
        f->deleted++;
        free(o->text);
        o->text = NULL;
        return 200;
    }
    assert_int_equal(json_open(c->body, strlen(c->body), &parser, &root, NULL), 0);
    text_copy(made, sizeof(made), json_string(JSON_PATH(root, "metadata", "name")));
    (void) json_parser_free(parser);
    o = find(made);
    if (strcmp(c->method, "POST") == 0) {
        if (o)
            return 409;
        for (o = f->objects; o->text; o++)
            assert_true(o < f->objects + OBJECTS - 1);
        text_copy(o->name, sizeof(o->name), made);
        o->uid = ++f->uids;
    } else {
        assert_string_equal(c->method, "PUT");
        assert_non_null(o);
    }
    free(o->text);
    o->text = stored(c, o->uid);
    *ret = o->text;
    f->written++;
    return 200;
}

static void on_call_closed(uv_handle_t *handle) {
    struct kube_call *c = handle->data;

    free(c->body);
    free(c);
}

static void on_respond(uv_timer_t *timer) {
    struct kube_call *c = timer->data;
    struct kube_response r = {.text = "no"};
    struct json_parser *parser = NULL;
    const char *text = NULL;

    if (!c->cancelled) {
        r.status = apply(c, &text);
        if (text)
            assert_int_equal(json_open(text, strlen(text), &parser, &r.body, NULL), 0);
        c->on_response(&r, c->userdata);
        (void) json_parser_free(parser);
    }
    uv_close((uv_handle_t *) timer, on_call_closed);
}

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *text, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);
void __wrap_kube_call_cancel(struct kube_call *call);
int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret, struct err *err);
void __wrap_kube_reflector_stop(struct kube_reflector *reflector);
bool __wrap_kube_reflector_is_synced(const struct kube_reflector *reflector);
uv_loop_t *__wrap_kube_client_loop(struct kube_client *client);

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *text, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    struct kube_call *c = calloc(1, sizeof(*c));

    (void) client, (void) content_type, (void) timeout_ms, (void) err;
    text_copy(c->method, sizeof(c->method), method);
    text_copy(c->path, sizeof(c->path), path);
    c->body = strndup(text, size);
    c->on_response = on_response;
    c->userdata = userdata;
    (void) uv_timer_init(&f->loop, &c->timer);
    c->timer.data = c;
    (void) uv_timer_start(&c->timer, on_respond, 0, 0);
    *ret_call = c;
    return 0;
}

void __wrap_kube_call_cancel(struct kube_call *call) {
    if (call)
        call->cancelled = true;
}

int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret, struct err *err) {
    (void) client, (void) err;
    assert_string_equal(options->query,
                        "fieldSelector=spec.nodeName%3Dnode-a%2Cspec.driver%3Dgpu.elasticgpu.io");
    f->watch = *handlers;
    f->watcher = userdata;
    *ret = (struct kube_reflector *) f;
    return 0;
}

void __wrap_kube_reflector_stop(struct kube_reflector *reflector) {
    assert_ptr_equal(reflector, f);
}

bool __wrap_kube_reflector_is_synced(const struct kube_reflector *reflector) {
    (void) reflector;
    return f->synced;
}

uv_loop_t *__wrap_kube_client_loop(struct kube_client *client) {
    (void) client;
    return &f->loop;
}

/* ---- the fixture ---- */

static void on_timeout(uv_timer_t *timer) {
    (void) timer;
    f->timed_out = true;
}

#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        f->timed_out = false;                                                                      \
        (void) uv_timer_start(&f->timeout, on_timeout, TIMEOUT_MS, 0);                             \
        while (!(condition) && !f->timed_out)                                                      \
            (void) uv_run(&f->loop, UV_RUN_ONCE);                                                  \
        (void) uv_timer_stop(&f->timeout);                                                         \
        if (!(condition))                                                                          \
            fail_msg("never happened: %s", #condition);                                            \
    } while (0)

static const struct gpu_snapshot *devices(void *userdata) {
    (void) userdata;
    return &f->devices;
}

static uint64_t capacity(const struct gpu_device *d, void *userdata) {
    (void) userdata;
    return f->capacity > 0 ? f->capacity : d->memory;
}

static bool evicts(const struct gpu_device *d, void *userdata) {
    (void) userdata;
    return d->index == 1 && f->evicts;
}

static bool ends(const struct gpu_device *d, void *userdata) {
    (void) userdata;
    assert_int_equal(d->kind, GPU_MIG_INSTANCE);
    return f->ends;
}

static bool is_whole(const struct gpu_device *d, void *userdata) {
    (void) d, (void) userdata;
    return f->whole;
}

static const struct mig_card *dynamic(const struct gpu_device *card, void *userdata) {
    (void) userdata;
    return card->index == 0 ? f->dynamic : NULL;
}

static void on_trouble(const char *why, void *userdata) {
    (void) userdata;
    text_copy(f->trouble, sizeof(f->trouble), why);
}

static void list(void) {
    f->synced = false;
    f->watch.on_sync_begin(f->watcher);
    for (size_t i = 0; i < OBJECTS; i++)
        if (f->objects[i].text)
            tell(KUBE_ADDED, f->objects[i].text);
    f->synced = true;
    f->watch.on_sync_end(f->watcher);
}

static void start(void) {
    const struct dra_slices_options options = {.node = "node-a",
                                               .devices = devices,
                                               .capacity = capacity,
                                               .ends = ends,
                                               .evicts = evicts,
                                               .is_whole = is_whole,
                                               .dynamic = dynamic,
                                               .on_trouble = on_trouble};

    assert_int_equal(dra_slices_start(&options, &f->slices, NULL), 0);
}

static void on_closed(void *userdata) {
    (void) userdata;
    f->closed = true;
}

static void stop(void) {
    f->closed = false;
    dra_slices_stop(f->slices, on_closed, NULL);
    RUN_UNTIL(f->closed);
}

static void set_cards(uint32_t n) {
    f->devices.ndevices = n;
    for (uint32_t i = 0; i < n; i++) {
        struct gpu_device *d = &f->devices.devices[i];

        *d = (struct gpu_device){.index = i,
                                 .memory = 80 * GIB,
                                 .healthy = true,
                                 .allocator = DRA_ALIQUOT,
                                 .model = "NVIDIA H100 80GB HBM3"};
        (void) snprintf(d->uuid, sizeof(d->uuid), "GPU-AB%02u", i);
    }
}

static void start_on_node(void) {
    start();
    dra_slices_set_node(f->slices, "node-uid");
}

static int setup(void **state) {
    (void) state;
    f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    (void) uv_timer_init(&f->loop, &f->timeout);
    set_cards(2);
    start_on_node();
    list();
    return 0;
}

static int teardown(void **state) {
    (void) state;
    stop();
    uv_close((uv_handle_t *) &f->timeout, NULL);
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    for (size_t i = 0; i < OBJECTS; i++)
        free(f->objects[i].text);
    free(f);
    return 0;
}

static void publish(unsigned writes) {
    unsigned before = f->written;

    dra_slices_update(f->slices);
    RUN_UNTIL(f->written == before + writes);
    for (int i = 0; i < 5; i++)
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->written, before + writes);
}

static void expect(const char *text) {
    for (size_t i = 0; i < OBJECTS; i++)
        if (f->objects[i].text && strstr(f->objects[i].text, text))
            return;
    fail_msg("nothing published has '%s'; first: %s", text,
             f->objects[0].text ? f->objects[0].text : "");
}

/* Of a device that is published. */
static const char *allocator_of(const char *device) {
    static char text[32];
    struct json_parser *parser = NULL;
    struct json root, found;

    assert_int_equal(
        json_open(f->objects[0].text, strlen(f->objects[0].text), &parser, &root, NULL), 0);
    found = json_find(JSON_PATH(root, "spec", "devices"), "name", device);
    text_copy(text, sizeof(text),
              json_string_or(JSON_PATH(found, "attributes", "allocator", "string"), ""));
    (void) json_parser_free(parser);
    return text;
}

/* ---- the tests ---- */

static void cards_are_published(void **state) {
    (void) state;
    assert_int_equal(f->written, 0); /* the devices are not known yet */
    publish(1);
    expect("\"name\":\"gpu-ab00\",\"allowMultipleAllocations\":true");
    expect("\"name\":\"gpu-ab01\"");
    expect("\"uuid\":{\"string\":\"GPU-AB01\"}");
    expect("\"allocator\":{\"string\":\"aliquot\"}");
    expect("\"generation\":1");
    expect("\"uid\":\"node-uid\"");
    publish(0);
    assert_string_equal(f->trouble, "");
}

static void changes_raise_the_generation(void **state) {
    (void) state;
    publish(1);
    f->devices.devices[1].service = GPU_SERVES_NONE;
    publish(1);
    expect("\"generation\":2");
    expect(
        "{\"key\":\"gpu.elasticgpu.io/unhealthy\",\"value\":\"true\",\"effect\":\"NoSchedule\"}");
    f->evicts = true;
    publish(1);
    expect("\"effect\":\"NoSchedule\"},{\"key\":\"gpu.elasticgpu.io/unhealthy\",\"value\":"
           "\"true\",\"effect\":\"NoExecute\"}]");
    f->devices.devices[1].service = GPU_SERVES;
    publish(1);
    expect("\"generation\":4");
    assert_null(strstr(f->objects[0].text, "taints"));
    set_cards(1);
    publish(1);
    expect("\"generation\":5");
}

/* Also when the factor changes. One above 1 does not concern claims. */
static void memory_that_is_kept_back(void **state) {
    (void) state;
    f->capacity = 64 * GIB;
    publish(1);
    expect("\"memory\":{\"value\":\"68719476736\"");
    f->capacity = 160 * GIB;
    publish(1);
    expect("\"memory\":{\"value\":\"85899345920\"");
}

/* A card in no claims is published for none. */
static void each_card_has_its_allocator(void **state) {
    (void) state;
    set_cards(3);
    f->devices.devices[1].allocator = DRA_KUBE_SCHEDULER;
    f->devices.devices[2].allocator = DRA_NONE;
    publish(1);
    assert_string_equal(allocator_of("gpu-ab00"), "aliquot");
    assert_string_equal(allocator_of("gpu-ab01"), "kube-scheduler");
    assert_null(strstr(f->objects[0].text, "gpu-ab02"));
    f->devices.devices[0].allocator = DRA_KUBE_SCHEDULER;
    f->devices.devices[1].allocator = DRA_NONE;
    f->devices.devices[2].allocator = DRA_ALIQUOT;
    publish(1);
    assert_string_equal(allocator_of("gpu-ab00"), "kube-scheduler");
    assert_null(strstr(f->objects[0].text, "gpu-ab01"));
    assert_string_equal(allocator_of("gpu-ab02"), "aliquot");
    expect("\"generation\":2");
}

/* The first card is in MIG mode: of its instances the one that is given out in shares is there. */
static void instances_are_published(void **state) {
    struct gpu_device *d = f->devices.devices;

    (void) state;
    set_cards(1);
    publish(1);
    d[0].divided = true;
    d[0].links = (struct gpu_connections){.known = 1, .numa = 1};
    for (int i = 1; i < 3; i++)
        d[i] = (struct gpu_device){
            .kind = GPU_MIG_INSTANCE,
            .index = 5,
            .memory = 40 * GIB,
            .healthy = true,
            .service = GPU_SERVES,
            .allocator = DRA_ALIQUOT,
            .mig = {.profile = "3g.40gb", .ci_slices = 3, .gi_slices = 3, .card_slices = 7}};
    for (int i = 1; i < 3; i++) {
        (void) snprintf(d[i].uuid, sizeof(d[i].uuid), "MIG-AB%d", i);
        text_copy(d[i].parent, sizeof(d[i].parent), d[0].uuid);
    }
    d[1].offer = GPU_OFFER_SHARES;
    f->devices.ndevices = 3;
    publish(1);
    expect("\"name\":\"mig-ab1\",\"allowMultipleAllocations\":true");
    expect("\"profile\":{\"string\":\"3g.40gb\"},\"parentUUID\":{\"string\":\"GPU-AB00\"}");
    expect("\"index\":{\"int\":0},\"numa\":{\"int\":1}");
    expect("\"core\":{\"value\":\"42\"");
    expect("\"memory\":{\"value\":\"42949672960\"");
    assert_null(strstr(f->objects[0].text, "gpu-ab00"));
    assert_null(strstr(f->objects[0].text, "mig-ab2"));
    f->devices.ndevices = 1; /* it is destroyed, and the mode ends */
    d[0].divided = false;
    publish(1);
    expect("\"name\":\"gpu-ab00\"");
    assert_null(strstr(f->objects[0].text, "mig-ab1"));
}

/* A card of two halves, beside a card that is not divided. */
static struct mig_card halves(void) {
    struct mig_card card = {.capable = true, .enabled = true, .nprofiles = 2};

    card.profiles[0] = (struct mig_card_profile){
        .id = 9, .most = 2, .starts = 1 | 1 << 4, .size = 4, .memory = 40 * GIB, .engines = {2}};
    card.profiles[1] = (struct mig_card_profile){
        .id = 0, .most = 1, .starts = 1, .size = 8, .memory = 80 * GIB, .engines = {5}};
    assert_int_equal(mig_name_parse("3g.40gb", &card.profiles[0].name, NULL), 0);
    assert_int_equal(mig_name_parse("7g.80gb", &card.profiles[1].name, NULL), 0);
    return card;
}

/* The first card is in MIG mode and has the half at 0. */
static void make_half(void) {
    struct gpu_device *d = f->devices.devices;

    d[0].divided = true;
    d[2] = (struct gpu_device){
        .kind = GPU_MIG_INSTANCE,
        .uuid = "MIG-AB1",
        .allocator = DRA_KUBE_SCHEDULER,
        .memory = 40 * GIB,
        .healthy = true,
        .service = GPU_SERVES,
        .offer = GPU_OFFER_SHARES,
        .mig = {.profile_id = 9, .size = 4, .ci_slices = 3, .gi_slices = 3, .card_slices = 7}};
    text_copy(d[2].parent, sizeof(d[2].parent), d[0].uuid);
    f->devices.ndevices = 3;
}

/* All that can be made of the card, whether it is there or not, with counters between them. */
static void a_card_that_is_divided_on_demand(void **state) {
    struct gpu_device *d = f->devices.devices;
    struct mig_card card = halves();

    (void) state;
    f->dynamic = &card;
    d[0].divided = true;
    publish(2);
    expect("\"resourceSliceCount\":2");
    expect("\"sharedCounters\":[{\"name\":\"gpu-ab00\",\"counters\":{\"memory-slice-0\"");
    expect("\"devices\":[{\"name\":\"gpu-ab00-7g-80gb-0\",\"allowMultipleAllocations\":true");
    expect("\"name\":\"gpu-ab00-3g-40gb-0\"");
    expect("\"name\":\"gpu-ab00-3g-40gb-4\"");
    expect("\"memory-slice-7\":{\"value\":\"1\"},\"decoders\":{\"value\":\"2\"}}}]},{\"name\":"
           "\"gpu-ab01\",\"allow");
    make_half();
    publish(0); /* one of them was made */
    f->whole = true;
    publish(2);
    expect("\"name\":\"gpu-ab00-3g-40gb-4\",\"attributes\"");
}

static unsigned count(const char *text) {
    unsigned n = 0;

    for (size_t i = 0; i < OBJECTS; i++)
        for (const char *at = f->objects[i].text; at && (at = strstr(at, text)); at++)
            n++;
    return n;
}

/* Its instances are no devices beside what is about to be published of it. An empty set of counters
 * is refused. */
static void before_the_card_has_been_read(void **state) {
    struct mig_card unread = {.capable = true};

    (void) state;
    f->dynamic = &unread;
    make_half();
    publish(1);
    expect("gpu-ab01");
    assert_int_equal(count("mig-ab1"), 0);
    assert_int_equal(count("sharedCounters"), 0);
}

/* What is there is as healthy as the instance; what is not made yet, as the card. */
static void an_instance_that_is_unwell(void **state) {
    struct gpu_device *d = f->devices.devices;
    struct mig_card card = halves();

    (void) state;
    f->dynamic = &card;
    make_half();
    publish(2);
    d[2].service = GPU_SERVES_NONE;
    f->ends = true;
    publish(0);
    f->ends = false;
    publish(2);
    assert_int_equal(count("\"taints\""), 1);
    d[0].service = GPU_SERVES_NONE;
    publish(2);
    assert_int_equal(count("\"taints\""), 3);
    d[2].service = GPU_SERVES;
    publish(0);
}

/* They would be given out beside each other. The others stay. */
static void without_counters(void **state) {
    struct mig_card card = halves();

    (void) state;
    f->drops_counters = true;
    f->dynamic = &card;
    f->devices.devices[0].divided = true;
    publish(2); /* the counters, and then what there is without them */
    assert_null(strstr(f->objects[0].text, "gpu-ab00"));
    assert_null(f->objects[1].text);
    expect("\"name\":\"gpu-ab01\"");
    assert_string_equal(f->trouble, "");
}

/* kubelet has deleted them: with the event they come back, and with a generation that was not used
 * for anything else. */
static void deleted_slices_come_back(void **state) {
    char *text;

    (void) state;
    publish(1);
    text = f->objects[0].text;
    f->objects[0].text = NULL;
    tell(KUBE_DELETED, text);
    free(text);
    RUN_UNTIL(f->written == 2);
    expect("\"generation\":1");
    expect("\"name\":\"gpu-ab00\"");
}

/* Also while the watch was away, which the next list shows. */
static void lost_while_away(void **state) {
    (void) state;
    publish(1);
    free(f->objects[0].text);
    f->objects[0].text = NULL;
    list();
    RUN_UNTIL(f->written == 2);
}

/* A restarted agent writes nothing where all is as it should be, and goes on counting where not. */
static void a_restarted_agent(void **state) {
    (void) state;
    publish(1);
    set_cards(1);
    publish(1);
    stop();
    start_on_node();
    list();
    publish(0);
    stop();
    f->devices.devices[0].allocator = DRA_KUBE_SCHEDULER;
    start_on_node();
    list();
    publish(1);
    expect("\"allocator\":{\"string\":\"kube-scheduler\"}");
    expect("\"generation\":3");
}

/* What it owns goes with it. */
static void the_node_comes_first(void **state) {
    (void) state;
    stop();
    start();
    list();
    publish(0);
    dra_slices_set_node(f->slices, "node-uid");
    RUN_UNTIL(f->written == 1);
    expect("\"uid\":\"node-uid\"");
}

/* A node with more cards than one slice holds, and then with fewer. */
static void two_slices(void **state) {
    (void) state;
    set_cards(65);
    publish(2);
    expect("\"resourceSliceCount\":2");
    set_cards(2);
    publish(1);
    assert_int_equal(f->deleted, 1);
    expect("\"resourceSliceCount\":1");
    set_cards(0);
    dra_slices_update(f->slices);
    RUN_UNTIL(f->deleted == 2);
}

/* A share would be a whole card there. */
static void without_shares_nothing_stays(void **state) {
    (void) state;
    f->drops_shares = true;
    dra_slices_update(f->slices);
    RUN_UNTIL(f->deleted == 1);
    assert_null(f->objects[0].text);
    assert_non_null(strstr(f->trouble, "DRAConsumableCapacity"));
    dra_slices_update(f->slices);
    for (int i = 0; i < 5; i++)
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->written, 1);
}

/* The card is left out, since it would take claims. */
static void without_taints(void **state) {
    (void) state;
    f->drops_taints = true;
    f->devices.devices[1].service = GPU_SERVES_NONE;
    publish(2);
    expect("\"name\":\"gpu-ab00\"");
    assert_null(strstr(f->objects[0].text, "gpu-ab01"));
    assert_string_equal(f->trouble, "");
}

static void a_refusal_is_told_and_tried_again(void **state) {
    (void) state;
    f->status = 403;
    dra_slices_update(f->slices);
    RUN_UNTIL(f->trouble[0]);
    assert_string_equal(f->trouble, "the API server does not take them: no");
    f->status = 404;
    RUN_UNTIL(strstr(f->trouble, "resource.k8s.io/v1"));
    f->status = 0;
    RUN_UNTIL(f->written == 1);
    assert_string_equal(f->trouble, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cards_are_published, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_raise_the_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_that_is_kept_back, setup, teardown),
        cmocka_unit_test_setup_teardown(each_card_has_its_allocator, setup, teardown),
        cmocka_unit_test_setup_teardown(instances_are_published, setup, teardown),
        cmocka_unit_test_setup_teardown(a_card_that_is_divided_on_demand, setup, teardown),
        cmocka_unit_test_setup_teardown(before_the_card_has_been_read, setup, teardown),
        cmocka_unit_test_setup_teardown(an_instance_that_is_unwell, setup, teardown),
        cmocka_unit_test_setup_teardown(without_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(deleted_slices_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_while_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restarted_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(the_node_comes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(two_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(without_shares_nothing_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(without_taints, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_is_told_and_tried_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
