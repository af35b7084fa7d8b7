/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of kubelet's registration, DRA and health APIs to and from plain values. No I/O. Encoders
 * append to a buffer and leave failures to buf_error(); decoders return -EBADMSG for what is no
 * such message. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

#define DRA_CLAIMS_MAX 256        /* in one call */
#define DRA_HEALTH_TEXT_MAX 1024  /* characters that kubelet takes */
#define DRA_REGISTER_TEXT_MAX 512 /* of kubelet's refusal */

/* As kubelet names one. */
struct dra_claim_id {
    const char *namespace;
    const char *uid;
    const char *name;
};

struct dra_claim_ids {
    size_t n;
    struct dra_claim_id *list;
    void *message;
};

/* The claims of a request to prepare or to unprepare. -E2BIG: more than DRA_CLAIMS_MAX. Free with
 * dra_message_claims_done(). */
int dra_message_claims(const uint8_t *request, size_t size, struct dra_claim_ids *ret);
void dra_message_claims_done(struct dra_claim_ids *ids);

/* A device that a claim has got. */
struct dra_device {
    const char *request; /* of the claim */
    const char *pool;
    const char *device;
    const char *cdi; /* name of the CDI device */
    const char *share_id;
};

/* One claim's part of the answer to a request to prepare; the answer is the parts one after the
 * other. `error` NULL: it is prepared. */
void dra_message_prepared(const char *uid, const struct dra_device *devices, size_t n,
                          const char *error, struct buf *out);

/* The same for a request to unprepare. */
void dra_message_unprepared(const char *uid, const char *error, struct buf *out);

/* Who the plugin is; `endpoint`: the absolute path of its socket. */
void dra_message_info(const char *endpoint, struct buf *out);

/* Whether kubelet has taken the plugin; if not, why. */
int dra_message_status(const uint8_t *request, size_t size, bool *ret_registered,
                       char ret_error[static DRA_REGISTER_TEXT_MAX]);

struct dra_health {
    const char *pool;
    const char *device;
    bool healthy;
    const char *message;
    int64_t updated;   /* seconds since 1970 */
    int64_t timeout_s; /* kubelet calls the device's health unknown that long afterwards */
};

/* One device of the list; the list is its devices one after the other. */
void dra_message_health(const struct dra_health *h, struct buf *out);
