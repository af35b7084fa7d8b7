/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* Room for a message is made in steps, so that a peer has to send what it claims. */
#define DEFRAMER_FIRST 4096u

const char *grpc_status_name(int status) {
    static const char *const names[] = {
        "OK",
        "Cancelled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    };
    if (status < 0 || (size_t) status >= sizeof(names) / sizeof(names[0]))
        return "Unknown";
    return names[status];
}

void grpc_put_prefix(uint8_t prefix[GRPC_PREFIX_SIZE], size_t size) {
    prefix[0] = 0;
    prefix[1] = (uint8_t) (size >> 24);
    prefix[2] = (uint8_t) (size >> 16);
    prefix[3] = (uint8_t) (size >> 8);
    prefix[4] = (uint8_t) size;
}

void grpc_deframer_init(struct grpc_deframer *d, size_t max_message) {
    *d = (struct grpc_deframer){.max_message = max_message};
}

void grpc_deframer_done(struct grpc_deframer *d) {
    free(d->message);
    *d = (struct grpc_deframer){.max_message = d->max_message};
}

static int read_prefix(struct grpc_deframer *d) {
    const uint8_t *p = d->prefix;
    if (p[0] > 1)
        return -EPROTO;
    if (p[0] == 1)
        return -EOPNOTSUPP;
    d->want = (size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4];
    d->have = 0;
    return d->want > d->max_message ? -EMSGSIZE : 0;
}

static int make_room(struct grpc_deframer *d, size_t more) {
    size_t need = d->have + more;
    if (need <= d->capacity)
        return 0;
    size_t capacity = d->capacity ? d->capacity * 2 : DEFRAMER_FIRST;
    if (capacity < need)
        capacity = need;
    if (capacity > d->want)
        capacity = d->want;
    uint8_t *message = realloc(d->message, capacity);
    if (!message)
        return -ENOMEM;
    d->message = message;
    d->capacity = capacity;
    return 0;
}

int grpc_deframer_feed(struct grpc_deframer *d, const uint8_t *data, size_t size,
                       size_t *ret_used) {
    size_t used = 0;
    if (d->prefix_have == GRPC_PREFIX_SIZE && d->have == d->want)
        d->prefix_have = 0; /* the caller has seen the message before */

    if (d->prefix_have < GRPC_PREFIX_SIZE) {
        size_t n = GRPC_PREFIX_SIZE - d->prefix_have;
        if (n > size)
            n = size;
        if (n > 0)
            memcpy(d->prefix + d->prefix_have, data, n);
        d->prefix_have += n;
        used += n;
        *ret_used = used;
        if (d->prefix_have < GRPC_PREFIX_SIZE)
            return 0;
        int r = read_prefix(d);
        if (r < 0)
            return r;
    }

    size_t n = d->want - d->have;
    if (n > size - used)
        n = size - used;
    if (n > 0) {
        int r = make_room(d, n);
        if (r < 0)
            return r;
        memcpy(d->message + d->have, data + used, n);
        d->have += n;
    }
    *ret_used = used + n;
    return d->have == d->want ? 1 : 0;
}

bool grpc_deframer_idle(const struct grpc_deframer *d) {
    return d->prefix_have == 0 || (d->prefix_have == GRPC_PREFIX_SIZE && d->have == d->want);
}

size_t grpc_message_escape(const char *text, char *ret, size_t size) {
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *) text; *p; p++) {
        bool plain = *p >= 0x20 && *p <= 0x7e && *p != '%';
        if (n + (plain ? 1 : 3) >= size)
            break;
        if (plain) {
            ret[n++] = (char) *p;
        } else {
            ret[n++] = '%';
            ret[n++] = hex[*p >> 4];
            ret[n++] = hex[*p & 15];
        }
    }
    ret[n] = '\0';
    return n;
}

size_t grpc_message_unescape(const char *text, size_t len, char *ret, size_t size) {
    uint8_t *out = (uint8_t *) ret;
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        uint8_t c = (uint8_t) text[i];
        int byte = c == '%' && i + 2 < len ? num_hex_byte(text + i + 1) : -1;
        if (byte >= 0) {
            c = (uint8_t) byte;
            i += 2;
        }
        if (c == 0)
            c = ' '; /* the result is a C string: a NUL must not hide the rest */
        out[n++] = c;
    }
    out[n] = 0;
    return n;
}

/* Nanoseconds of a unit, or 0. */
static uint64_t timeout_unit(char unit) {
    switch (unit) {
    case 'H':
        return 3600ull * 1000000000;
    case 'M':
        return 60ull * 1000000000;
    case 'S':
        return 1000000000;
    case 'm':
        return 1000000;
    case 'u':
        return 1000;
    case 'n':
        return 1;
    default:
        return 0;
    }
}

int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ms) {
    if (len < 2 || len > 9)
        return -EINVAL;
    uint64_t value = 0;
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -EINVAL;
        value = value * 10 + (uint64_t) (text[i] - '0');
    }
    uint64_t unit = timeout_unit(text[len - 1]);
    if (unit == 0)
        return -EINVAL;
    /* 8 digits of hours in nanoseconds do not fit 64 bits; in milliseconds they do. */
    *ret_ms = unit >= 1000000 ? value * (unit / 1000000) : (value * unit + 999999) / 1000000;
    return 0;
}

void grpc_timeout_format(uint64_t ms, char *ret, size_t size) {
    if (ms <= 99999999)
        (void) snprintf(ret, size, "%um", (unsigned) ms);
    else
        (void) snprintf(ret, size, "%uS", (unsigned) (ms / 1000 < 99999999 ? ms / 1000 : 99999999));
}

int grpc_status_of_http(int http_status) {
    switch (http_status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}
