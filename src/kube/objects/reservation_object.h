/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ElasticGPUReservation: a share of a node's cards that is kept for some pods. */

#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"

struct buf;

#define RESERVATIONS_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpureservations"
#define RESERVATION_OWNERS_MAX 16
#define RESERVATION_USERS_MAX 64
#define RESERVATION_LABELS_MAX 512
#define RESERVATION_MODEL_MAX 96

/* What a pod must be to draw on the reservation; what is "" does not matter. */
struct reservation_owner {
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX];
    char queue[KUBE_LABEL_MAX];
    char labels[RESERVATION_LABELS_MAX]; /* "key=value," for each */
};

enum reservation_phase { RESERVATION_PENDING, RESERVATION_HELD, RESERVATION_EXPIRED };

struct reservation_object {
    char name[KUBE_NAME_MAX];
    int64_t created;         /* seconds since 1970, as are the next two */
    int64_t starts, expires; /* 0: at once, never */
    bool unreadable;         /* its spec: then it has no users and reserves nothing */
    struct container_request request;
    enum request_problem problem;      /* why `request` is not usable */
    struct dialect_pair mixed;         /* of REQUEST_MIXED_DIALECTS */
    char node[KUBE_NAME_MAX];          /* only there; "" anywhere */
    char model[RESERVATION_MODEL_MAX]; /* parts of names with commas between; "" any */
    uint32_t nowners;
    struct reservation_owner owners[RESERVATION_OWNERS_MAX];
    struct assignment held; /* of the status; no containers: nothing is held */
    uint64_t status_hash;   /* of the status as text */
};

/* 0, or -EINVAL where there is not even a name. Free with reservation_object_done(). */
int reservation_object_parse(struct json object, struct reservation_object *ret, struct err *err);
void reservation_object_done(struct reservation_object *object);

/* Whether a pod of that namespace, name and labels ("key=value,"; NULL: none) may draw on it. */
bool reservation_is_for(const struct reservation_object *object, const char *namespace,
                        const char *pod, const char *labels);

/* What its status is to be. */
struct reservation_status {
    enum reservation_phase phase;
    const char *message;           /* NULL: none */
    const struct assignment *held; /* NULL: nothing */
    const char *const *users;      /* "namespace/pod" of the pods that use it */
    size_t nusers;
};
void reservation_encode_status(const struct reservation_status *status, struct buf *out);

/* Of the text that reservation_encode_status() appends, as status_hash is of what is there. */
uint64_t reservation_status_hash(const char *text, size_t len);
