/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/json.h"
#include "wire/json_prune.h"

/* Any document: what is left is the same however it comes in pieces; of a document that is JSON it
 * is JSON too, with the same values in the places that are kept, unless a key may be escaped. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const keep[] = {"Pod", "NodeNames", "Nodes/items/*/metadata/name", NULL};

static int prune(const char *text, size_t len, size_t piece, struct buf *out) {
    struct json_prune *p = json_prune_new(keep, out);
    int r = 0;
    if (!p)
        abort();
    for (size_t i = 0; i < len && r == 0; i += piece)
        r = json_prune_feed(p, text + i, len - i < piece ? len - i : piece);
    if (r == 0)
        r = json_prune_end(p);
    json_prune_free(p);
    return r;
}

static void compare(struct json before, struct json after, const char *key) {
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    json_print(&a, json_get(before, key));
    json_print(&b, json_get(after, key));
    if (strcmp(buf_str(&a), buf_str(&b)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *) data;
    _cleanup_buf_ struct buf whole = BUF_INIT(0), bytes = BUF_INIT(0);
    _cleanup_json_ struct json_parser *first = NULL, *second = NULL;
    struct json before, after;
    int r = prune(text, size, size + 1, &whole);
    if (prune(text, size, 1, &bytes) != r || strcmp(buf_str(&whole), buf_str(&bytes)) != 0)
        abort();
    if (json_open(text, size, &first, &before, NULL) < 0)
        return 0;
    if (r < 0 || json_open(buf_str(&whole), whole.len, &second, &after, NULL) < 0)
        abort();
    if (memmem(text, size, "\\u", 2))
        return 0;
    compare(before, after, "Pod");
    compare(before, after, "NodeNames");
    return 0;
}
