/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "claims/claims.h"
#include "wire/json.h"

/* Any objects, one a line, the first byte of which says as what they are shown (g, c, k or p; other
 * lines are passes): the controller reads them, and every write that it makes is valid JSON. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int find(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                const char *node, struct claims_room *ret, struct err *why) {
    (void) self, (void) claim, (void) node;
    if (want->core % 2)
        return err_set(why, EAGAIN, "no room");
    *ret = (struct claims_room){.node = "n", .amount = *want, .ncards = 1, .cards = {"gpu"}};
    return 0;
}

static const char *node(void *self, const struct egpu *e) {
    (void) self;
    return node_selector_holds(&e->affinity, "a=b,n=4,", e->meta.name) ? "n" : "";
}

static int check(void *self, const struct egpu *e, struct err *why) {
    (void) self;
    return e->capacity.core % 2 ? err_set(why, EAGAIN, "no room") : 0;
}

static int grow(void *self, const struct egpu *e, const struct claim_amount *want,
                struct err *why) {
    (void) self, (void) e;
    return want->core % 2 ? err_set(why, EAGAIN, "no room") : 0;
}

static int admit(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                 struct err *why) {
    (void) self, (void) claim;
    return want->core % 5 == 4 ? err_set(why, EDQUOT, "quota") : 0;
}

static int take(void *self, const struct egpu *e, const struct egpu_claim *claim, struct err *why) {
    return admit(self, claim, &e->capacity, why);
}

static bool settle(void *self, const struct egpu *e) {
    (void) self;
    return e->capacity.core % 3 != 0;
}

static bool begun(void *self, const char *pod_uid) {
    (void) self;
    return pod_uid[0] % 2 != 0;
}

static void hold(void *self, const struct egpu *e) {
    (void) self;
    if (e->ncards > CLAIM_CARDS_MAX || (e->reserved && (!*e->claim_name || !*e->claim_namespace)))
        abort();
}

static void drop(void *self, const char *name) {
    (void) self, (void) name;
}

static void write_out(void *self, const struct claims_write *w) {
    struct json_parser *parser = NULL;
    struct json root;
    struct err err;
    (void) self;
    if (w->body && json_open(w->body, w->size, &parser, &root, &err) < 0)
        abort();
    json_parser_free(parser);
}

static void note(void *self, const struct claims_note *n) {
    (void) self;
    if (!*n->reason || !n->message)
        abort();
}

static void show(struct claims *c, char kind, struct json root) {
    struct pod pod;
    struct err err;
    if (kind == 'g')
        (void) claims_seen(c, CLAIMS_EGPUS, root, &err);
    else if (kind == 'c')
        (void) claims_seen(c, CLAIMS_CLAIMS, root, &err);
    else if (kind == 'k')
        (void) claims_seen(c, CLAIMS_CLASSES, root, &err);
    else if (kind == 'p' && pod_parse(root, &pod, &err) == 0) {
        struct claims_use use;
        const char *container;
        (void) claims_pod_seen(c, &pod);
        for (uint32_t i = 0; claims_use(c, pod.uid, i, &container, &use, &err) != -ENOENT; i++)
            continue;
        pod_done(&pod);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct claims_world world = {NULL,   find,  node, check, grow,      admit, take,
                                              settle, begun, hold, drop,  write_out, note};
    static struct json_parser *parser;
    struct claims *c = claims_new(&world);
    uint64_t now = 10000;
    if (!c || (!parser && !(parser = json_parser_new())))
        abort();
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t len = end ? (size_t) (end - data) : size;
        struct json root;
        if (len > 1 && json_parse(parser, (const char *) data + 1, len - 1, &root, NULL) == 0)
            show(c, (char) data[0], root);
        else
            claims_plan(c, now += 3000, "2026-01-01T00:00:00Z");
        data += len + (end != NULL);
        size -= len + (end != NULL);
    }
    claims_plan(c, now + 3000, "2026-01-01T00:00:00Z");
    claims_free(c);
    return 0;
}
