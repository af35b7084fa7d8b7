/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "scheduler/preemption/preempt.h"
#include "wire/json.h"

/* Any body on /preempt, where one of two cards is taken: an answer is JSON, names no node that was
 * not asked about, and the taker only for pods of higher priority. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TAKER                                                                                      \
    "{\"metadata\":{\"name\":\"taker\",\"namespace\":\"d\",\"uid\":\"taker\",\"annotations\":{"    \
    "\"elasticgpu.io/assignment\":\"{\\\"v\\\":1,\\\"node\\\":\\\"a\\\",\\\"containers\\\":"       \
    "{\\\"c\\\":[{\\\"index\\\":0,\\\"uuid\\\":\\\"GPU-0\\\",\\\"core\\\":100,\\\"memory\\\":"     \
    "85899345920}]}}\",\"elasticgpu.io/assignment-signature\":\"x\"}},"                            \
    "\"spec\":{\"nodeName\":\"a\",\"priority\":5,\"containers\":[{\"name\":\"c\",\"resources\":{"  \
    "\"limits\":{\"elasticgpu.io/gpu-core\":\"100\"}}}]},\"status\":{\"phase\":\"Running\"}}"

static int trust(const char *uid, const char *node, const char *text, const char *signature,
                 uint64_t *ret_signer, void *userdata) {
    (void) uid, (void) node, (void) text, (void) signature, (void) ret_signer, (void) userdata;
    return 0;
}

static bool always(void *userdata) {
    (void) userdata;
    return true;
}

static void fill(struct state *s, struct json_parser *parser) {
    struct json object;
    struct pod pod;
    for (unsigned i = 0; i < 2; i++) {
        struct gpu_object gpu = {.index = i, .memory = (uint64_t) 80 << 30, .healthy = true};
        snprintf(gpu.name, sizeof(gpu.name), "g-%u", i);
        snprintf(gpu.node, sizeof(gpu.node), "a");
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%u", i);
        if (state_gpu_seen(s, &gpu, NULL) < 0)
            abort();
    }
    if (json_parse(parser, TAKER, strlen(TAKER), &object, NULL) < 0 ||
        pod_parse(object, &pod, NULL) < 0 || state_pod_seen(s, &pod, 1) < 0)
        abort();
    pod_done(&pod);
    const struct state_pod *taker = state_pod_find(s, "taker");
    if (!taker || taker->nallocations != 1)
        abort();
}

static void check(struct state *s, struct json_parser *parser, const struct buf *answer) {
    struct json root, victims, victim;
    const char *name;
    if (buf_error(answer) < 0 || json_parse(parser, buf_str(answer), answer->len, &root, NULL) < 0)
        abort();
    struct json_iter nodes = json_iter(json_get(root, "NodeNameToMetaVictims"));
    while (json_next(&nodes, &name, &victims)) {
        struct json_iter it = json_iter(json_get(victims, "Pods"));
        while (json_next(&it, NULL, &victim))
            if (!json_string(json_get(victim, "UID")))
                abort();
    }
    if (state_pod_find(s, "taker")->nallocations != 1)
        abort(); /* a query changes no allocation */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct json_parser *parser;
    static struct preempt p;
    if (!parser && !(parser = json_parser_new()))
        abort();
    struct state *s = state_new(trust, NULL);
    p = (struct preempt){.state = s, .ready = always};
    _cleanup_buf_ struct buf answer = BUF_INIT(0);
    if (!s || preempt_init(&p) < 0)
        abort();
    fill(s, parser);
    if (preempt_verb(&p, (const char *) data, size, 1000, &answer) == 0)
        check(s, parser, &answer);
    preempt_done(&p);
    state_free(s);
    return 0;
}
