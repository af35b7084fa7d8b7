/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "wire/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct json v) {
    struct json_iter it = json_iter(v);
    struct json item;
    const char *key;
    while (json_next(&it, &key, &item)) {
        (void) json_string(item);
        if (key && json_type(json_get(v, key)) == JSON_INVALID)
            abort(); /* a member that is walked over must be found */
        walk(item);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct json_parser *parser, *again;
    if (!parser) {
        parser = json_parser_new();
        again = json_parser_new();
    }

    struct json root;
    if (json_parse(parser, (const char *) data, size, &root, NULL) < 0)
        return 0;
    walk(root);

    /* What was read can be printed, and the print can be read. */
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    json_print(&out, root);
    struct json copy;
    if (buf_error(&out) < 0 || json_parse(again, buf_str(&out), out.len, &copy, NULL) < 0 ||
        json_type(copy) != json_type(root))
        abort();
    return 0;
}
