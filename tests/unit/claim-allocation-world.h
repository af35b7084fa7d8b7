/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A scheduler that allocates ResourceClaims. The test is the watches, the clock and the API server.
 */

#include "scheduler-world.h"

#include "kube/objects/resource_claim.h"
#include "scheduler/dra/dra.h"

struct dra_world {
    struct world *w;
    struct dra dra;
};

static bool leading;
static char devices_shown[1024]; /* of the claim that was shown last */

static inline bool leads(void *userdata) {
    (void) userdata;
    return leading;
}

static inline void changed(void *userdata) {
    (void) userdata;
}

/* Quotes are single ones, so that the texts can be read. */
static inline void see_as(struct dra_world *d, enum dra_kind kind, bool gone, const char *format,
                          va_list ap) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct json root;
    struct err err;
    buf_vprintf(&text, format, ap);
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '\'')
            text.data[i] = '"';
    if (json_parse(d->w->parser, buf_str(&text), text.len, &root, &err) < 0 ||
        dra_see(&d->dra, kind, root, gone, &err) < 0)
        fail_msg("%s: %s", err.text, buf_str(&text));
}

static inline void see(struct dra_world *d, enum dra_kind kind, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    see_as(d, kind, false, format, ap);
    va_end(ap);
}

static inline void see_gone(struct dra_world *d, enum dra_kind kind, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    see_as(d, kind, true, format, ap);
    va_end(ap);
}

#define DEVICE                                                                                     \
    "{'name':'gpu-%u','allowMultipleAllocations':true,'attributes':{'uuid':{'string':'GPU-%s-%u'}" \
    ","                                                                                            \
    "'allocator':{'string':'%s'},'index':{'int':%u},'numa':{'int':%u}},'capacity':{"               \
    "'core':{'value':'100'},'memory':{'value':'80Gi'}}}"

/* Cards 0 and 1 are on the first NUMA node, 2 and 3 on the second. */
static inline void see_slice(struct dra_world *d, const char *node, unsigned cards,
                             const char *first, const char *others) {
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    for (unsigned i = 0; i < cards; i++) {
        buf_puts(&devices, i ? "," : "");
        buf_printf(&devices, DEVICE, i, node, i, i ? others : first, i, i / 2);
    }
    see(d, DRA_SLICES,
        "{'metadata':{'name':'%s-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'%s',"
        "'pool':{'name':'%s','generation':1,'resourceSliceCount':1},'devices':[%s]}}",
        node, node, node, buf_str(&devices));
}

static inline void see_node(struct dra_world *d, const char *node, const char *spec) {
    see(d, DRA_NODES, "{'metadata':{'name':'%s','labels':{'host':'%s'}},'spec':{%s}}", node, node,
        spec);
}

static inline void add_node(struct dra_world *d, const char *node, unsigned cards) {
    show_node(d->w, node, cards);
    see_node(d, node, "");
    see_slice(d, node, cards, "aliquot", "aliquot");
}

#define CLASS                                                                                      \
    "{'metadata':{'name':'gpu.elasticgpu.io','labels':{'gpu.elasticgpu.io/allocator':'aliquot'}}," \
    "'spec':{'selectors':[{'cel':{'expression':'false'}}],'config':[{'opaque':{"                   \
    "'driver':'gpu.elasticgpu.io','parameters':{'apiVersion':'gpu.elasticgpu.io/v1alpha1',"        \
    "'kind':'ShareConfig','weight':9}}}]}}"

static inline int begin(void **state) {
    struct dra_world *d = calloc(1, sizeof(*d));
    void *w = NULL;
    (void) setup(&w);
    d->w = w;
    leading = true;
    d->dra = (struct dra){.state = d->w->state,
                          .api = {fake_request, w},
                          .events = d->w->events,
                          .now = fake_now,
                          .leads = leads,
                          .changed = changed,
                          .userdata = w};
    assert_int_equal(dra_init(&d->dra), 0);
    add_node(d, "n", 2);
    see(d, DRA_CLASSES, CLASS);
    *state = d;
    return 0;
}

static inline int end(void **state) {
    struct dra_world *d = *state;
    void *w = d->w;
    while (d->w->nasked > 0)
        respond(d->w, 0, 404, false, NULL);
    dra_done(&d->dra);
    free(d);
    return teardown(&w);
}

/* ---- objects ---- */

#define CORE(percent) "'capacity':{'requests':{'core':'" percent "'}}"
#define BOTH(percent, bytes) "'capacity':{'requests':{'core':'" percent "','memory':'" bytes "'}}"
#define REQUEST(name, more)                                                                        \
    "{'name':'" name "','exactly':{'deviceClassName':'gpu.elasticgpu.io'," more "}}"

static inline void see_claim(struct dra_world *d, const char *name, unsigned version,
                             bool protected, const char *devices, const char *status) {
    (void) snprintf(devices_shown, sizeof(devices_shown), "%s", devices);
    for (char *c = devices_shown; *c; c++)
        if (*c == '\'')
            *c = '"';
    see(d, DRA_CLAIMS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'u-%s','resourceVersion':'%u'%s},"
        "'spec':{'devices':{%s}},'status':{%s}}",
        name, name, version,
        protected ? ",'finalizers':['resource.kubernetes.io/delete-protection']" : "", devices,
        status);
}

static inline void see_share(struct dra_world *d, const char *name, const char *amounts) {
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    buf_printf(&devices,
               "'requests':[{'name':'gpu','exactly':{'deviceClassName':'gpu.elasticgpu.io'%s%s}}]",
               *amounts ? "," : "", amounts);
    see_claim(d, name, 1, false, buf_str(&devices), "");
}

static inline void put_claims(struct buf *out, const char *claims) {
    for (const char *at = claims; *at;) {
        size_t len = strcspn(at, ",");
        buf_printf(out, "%s{'name':'%.*s','resourceClaimName':'%.*s'}", at == claims ? "" : ",",
                   (int) len, at, (int) len, at);
        at += len + (at[len] == ',');
    }
}

/* `claims`: names, separated by commas. */
static inline void see_pod(struct dra_world *d, const char *name, const char *claims,
                           const char *spec) {
    _cleanup_buf_ struct buf list = BUF_INIT(1 << 16);
    put_claims(&list, claims);
    see(d, DRA_PODS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s'},'spec':{'resourceClaims':[%s]%s%s}"
        "}",
        name, name, buf_str(&list), *spec ? "," : "", spec);
}

#define GATED "'schedulingGates':[{'name':'gpu.elasticgpu.io/placement'}]"

/* ---- what is written ---- */

static inline void run(struct dra_world *d) {
    dra_run(&d->dra);
}

static inline const char *body_of(const struct dra_world *d, size_t i) {
    return buf_str(&d->w->asked[i].body);
}

/* The place of the open request whose path ends with that; its body has the text. */
static inline size_t find_asked(struct dra_world *d, const char *path, const char *text) {
    for (size_t i = 0; i < d->w->nasked; i++) {
        size_t len = strlen(d->w->asked[i].path), end = strlen(path);
        if (len >= end && strcmp(d->w->asked[i].path + len - end, path) == 0) {
            if (!strstr(body_of(d, i), text))
                fail_msg("%s: %s", path, body_of(d, i));
            return i;
        }
    }
    for (size_t i = 0; i < d->w->nasked; i++)
        print_message("open: %s %s\n", d->w->asked[i].path, body_of(d, i));
    fail_msg("not asked: %s", path);
    return 0;
}

static inline bool is_asked(const struct dra_world *d, const char *path) {
    for (size_t i = 0; i < d->w->nasked; i++)
        if (strstr(d->w->asked[i].path, path))
            return true;
    return false;
}

/* Answers a patch with the object as it is then; its spec is the one that was shown last. */
static inline void answer_claim(struct dra_world *d, const char *name, const char *sub,
                                unsigned version, const char *text) {
    _cleanup_buf_ struct buf answer = BUF_INIT(1 << 20);
    struct json root, spec;
    char path[256];
    (void) snprintf(path, sizeof(path), "/resourceclaims/%s%s", name, sub);
    size_t i = find_asked(d, path, text);
    assert_int_equal(json_parse(d->w->parser, body_of(d, i), d->w->asked[i].body.len, &root, NULL),
                     0);
    buf_printf(&answer,
               "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\",\"uid\":\"u-%s\","
               "\"resourceVersion\":\"%u\",\"finalizers\":["
               "\"resource.kubernetes.io/delete-protection\"]},\"spec\":{\"devices\":{%s}}",
               name, name, version, devices_shown);
    spec = json_get(root, "status");
    if (json_valid(spec)) {
        buf_puts(&answer, ",\"status\":");
        json_print(&answer, spec);
    }
    buf_puts(&answer, "}");
    respond(d->w, i, 200, false, buf_str(&answer));
}

static inline void allocate(struct dra_world *d, const char *name, const char *text) {
    run(d);
    answer_claim(d, name, "", 2, "delete-protection");
    answer_claim(d, name, "/status", 3, text);
}

static inline void open_gate(struct dra_world *d, const char *pod) {
    char path[128];
    run(d);
    (void) snprintf(path, sizeof(path), "/pods/%s", pod);
    respond(d->w, find_asked(d, path, "\"$patch\":\"delete\""), 200, false, NULL);
}

static inline struct place_amount free_of(struct dra_world *d, const char *name, uint32_t card) {
    struct state_node *node = state_node_find(d->w->state, name);
    assert_non_null(node);
    state_refresh(d->w->state, node);
    return node->place[card].free;
}

#define RESULT(device, core, memory)                                                               \
    "{'request':'gpu','driver':'gpu.elasticgpu.io','pool':'n','device':'" device                   \
    "','shareID':'1b4e28ba-2fa1-11d2-883f-0016d3cca427','consumedCapacity':{'core':'" core         \
    "','memory':'" memory "'}}"
#define ALLOCATED(node, results, pod)                                                              \
    "'allocation':{'devices':{'results':[" results "]},'nodeSelector':{'nodeSelectorTerms':[{"     \
    "'matchFields':[{'key':'metadata.name','operator':'In','values':['" node "']}]}]}},"           \
    "'reservedFor':[{'resource':'pods','name':'" pod "','uid':'p-" pod "'}]"
#define SHARE "'requests':[" REQUEST("gpu", CORE("30")) "]"
