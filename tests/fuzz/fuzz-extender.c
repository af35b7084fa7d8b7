/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "scheduler/extender/bind.h"
#include "scheduler/extender/extender.h"
#include "wire/json.h"

/* Any body on /filter, /prioritize and /bind: every answer is JSON, nothing is given out twice. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int trust(const char *uid, const char *node, const char *text, const char *signature,
                 uint64_t *ret_signer, void *userdata) {
    (void) uid, (void) node, (void) text, (void) signature, (void) ret_signer, (void) userdata;
    return 0;
}

static bool always(void *userdata) {
    (void) userdata;
    return true;
}

static uint64_t frozen(void *userdata) {
    (void) userdata;
    return 1000;
}

/* An API server that is away. */
static int refuse(void *context, const char *method, const char *path, const char *content_type,
                  const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                  void *userdata, struct err *err) {
    (void) context, (void) method, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) on_response, (void) userdata;
    const char *query = strchr(path, '?');
    if (strpbrk(path, " \r\n#%") || (query && strcmp(query, "?timeout=2s") != 0))
        abort(); /* a name went into the URL as it came */
    return err_set(err, EHOSTUNREACH, "away");
}

static void ignore_answer(const char *error, void *request) {
    (void) request;
    if (*error == '\0')
        abort(); /* nothing can have been bound */
}

static void add_nodes(struct state *s) {
    for (unsigned i = 0; i < 4; i++) {
        struct gpu_object gpu = {.index = i % 2, .memory = (uint64_t) 80 << 30, .healthy = true};
        snprintf(gpu.name, sizeof(gpu.name), "g-%u", i);
        snprintf(gpu.node, sizeof(gpu.node), "%c", i < 2 ? 'a' : 'b');
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%u", i);
        if (state_gpu_seen(s, &gpu, NULL) < 0)
            abort();
    }
}

static void check_json(struct json_parser *parser, const struct buf *text) {
    struct json root;
    if (buf_error(text) < 0 || json_parse(parser, buf_str(text), text->len, &root, NULL) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct json_parser *parser;
    static struct signing_key *key;
    if (!parser) {
        parser = json_parser_new();
        if (!parser || signing_key_generate(&key, NULL) < 0)
            abort();
    }
    const char *body = (const char *) data;
    struct state *s = state_new(trust, NULL);
    struct extender e = {.state = s, .ready = always};
    struct binder b = {.state = s,
                       .api = {refuse, NULL},
                       .key = key,
                       .now = frozen,
                       .ready = always,
                       .done = ignore_answer};
    _cleanup_buf_ struct buf filtered = BUF_INIT(0), scored = BUF_INIT(0);
    if (!s || extender_init(&e) < 0 || binder_init(&b) < 0)
        abort();
    add_nodes(s);
    (void) extender_filter(&e, body, size, 1000, &filtered);
    check_json(parser, &filtered);
    (void) extender_prioritize(&e, body, size, 1001, &scored);
    check_json(parser, &scored);
    binder_bind(&b, body, size, &b);
    for (struct state_node *node = s->nodes; node; node = node->hh.next) {
        state_refresh(s, node);
        for (uint32_t i = 0; i < node->ncards; i++)
            if (node->cards[i]->overcommitted)
                abort();
    }
    extender_done(&e);
    binder_done(&b);
    state_free(s);
    return 0;
}
