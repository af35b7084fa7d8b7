/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/audiences.h"

#include <gnutls/gnutls.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define FILE_MAX ((size_t) 16384)
#define AUDIENCES_MAX 8

/* The payload of a JWT, as gnutls reads it: padded, with the two characters that a URL has not. */
static int get_payload(const char *token, struct buf *out) {
    const char *begin = strchr(token, '.');
    const char *end = begin ? strchr(begin + 1, '.') : NULL;

    if (!end)
        return -1;
    for (const char *c = begin + 1; c < end; c++)
        buf_putc(out, (char) (*c == '-' ? '+' : *c == '_' ? '/' : *c));
    for (size_t n = out->len; n % 4 != 0; n++)
        buf_putc(out, '=');
    return buf_error(out);
}

static unsigned put_all(struct json payload, struct json_writer *w) {
    struct json aud = json_get(payload, "aud"), value;
    struct json_iter it = json_iter(aud);
    unsigned n = 0;

    if (json_string(aud)) {
        json_put_string(w, NULL, json_string(aud));
        return 1;
    }
    while (n < AUDIENCES_MAX && json_next(&it, NULL, &value))
        if (json_string_or(value, "")[0]) {
            json_put_string(w, NULL, json_string(value));
            n++;
        }
    return n;
}

unsigned audiences_put(const char *token_file, struct json_writer *w) {
    _cleanup_buf_ struct buf token = BUF_INIT(0), payload = BUF_INIT(FILE_MAX);
    _cleanup_json_ struct json_parser *parser = NULL;
    gnutls_datum_t text, plain = {0};
    struct json root;
    unsigned n = 0;

    if (!token_file || file_read(token_file, FILE_MAX, &token, NULL) < 0 ||
        get_payload(buf_str(&token), &payload) < 0)
        return 0;
    text = (gnutls_datum_t){(unsigned char *) payload.data, (unsigned) payload.len};
    if (gnutls_base64_decode2(&text, &plain) < 0)
        return 0;
    if (json_open((const char *) plain.data, plain.size, &parser, &root, NULL) == 0)
        n = put_all(root, w);
    gnutls_free(plain.data);
    return n;
}
