/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/http_answer.h"

#define BODY_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Result of the answer in pieces of so many bytes. */
static int feed(struct http_answer *a, const char *data, size_t size, size_t piece) {
    int r = 0;

    http_answer_init(a, BODY_MAX);
    for (size_t at = 0; at < size && r == 0; at += piece)
        r = http_answer_feed(a, data + at, size - at < piece ? size - at : piece, NULL);
    return r < 0 ? r : http_answer_end(a, NULL);
}

/* How an answer is cut into pieces changes nothing of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct http_answer whole, pieces;
    int r = feed(&whole, (const char *) data, size, size ? size : 1);
    int s = feed(&pieces, (const char *) data, size, 1);

    if (r != s || (r == 0 && (whole.status != pieces.status || whole.keeps != pieces.keeps ||
                              whole.body.len != pieces.body.len ||
                              memcmp(buf_str(&whole.body), buf_str(&pieces.body), whole.body.len))))
        abort();
    if (r == 0 && (whole.status < 200 || whole.body.len > BODY_MAX))
        abort();
    http_answer_done(&whole);
    http_answer_done(&pieces);
    return 0;
}
