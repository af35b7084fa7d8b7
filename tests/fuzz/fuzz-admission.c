/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "admission/admission.h"
#include "base/buf.h"
#include "wire/json.h"

/* Any body on /mutate and /validate: no answer, or one that is an AdmissionReview with the uid of
 * the question. A patch is never given without its type. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct buf *text, const char *uid) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    bool allowed;
    if (buf_error(text) < 0 || json_open(buf_str(text), text->len, &parser, &root, NULL) < 0)
        abort();
    struct json response = json_get(root, "response");
    const char *given = json_string(json_get(response, "uid"));
    if (!given || strcmp(given, uid) != 0 || !json_bool(json_get(response, "allowed"), &allowed) ||
        json_valid(json_get(response, "patch")) != json_valid(json_get(response, "patchType")))
        abort();
    if (!allowed && !json_string(JSON_PATH(response, "status", "message")))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct admission *a;
    const char *body = (const char *) data;
    _cleanup_buf_ struct buf patched = BUF_INIT(0), judged = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    if (!a && !(a = admission_new("aliquot-system")))
        abort();
    int first = admission_mutate(a, body, size, &patched, NULL);
    int second = admission_validate(a, body, size, &judged, NULL);
    if ((first < 0) != (second < 0))
        abort();
    if (first < 0)
        return 0;
    if (json_open(body, size, &parser, &root, NULL) < 0)
        abort();
    const char *uid = json_string(JSON_PATH(root, "request", "uid"));
    check(&patched, uid);
    check(&judged, uid);
    return 0;
}
