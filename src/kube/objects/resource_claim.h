/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ResourceClaim and DeviceClass (resource.k8s.io/v1), as far as they matter to the allocation and
 * the preparation of devices of our driver (model/dra.h). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kube/api/names.h"
#include "kube/api/strings.h"
#include "model/request_code.h"
#include "wire/json.h"

struct buf;
struct err;

#define RESOURCE_CLAIMS_PATH "/apis/resource.k8s.io/v1/resourceclaims"
#define RESOURCE_TEMPLATES_PATH "/apis/resource.k8s.io/v1/resourceclaimtemplates"
#define DEVICE_CLASSES_PATH "/apis/resource.k8s.io/v1/deviceclasses"

/* Limits of Kubernetes itself. */
#define DEVICE_REQUESTS_MAX 32 /* of a claim; also its constraints and its configs */
#define DEVICE_CHOICES_MAX 8   /* of a request: firstAvailable */
#define DEVICE_RESULTS_MAX 32  /* of an allocation */
#define DEVICE_USERS_MAX 256   /* reservedFor */
#define DEVICE_SELECTOR_MAX ((size_t) 10 << 10)
#define DEVICE_PARAMETERS_MAX ((size_t) 10 << 10)

#define DEVICE_NAME_MAX 64 /* a label of DNS, as of devices and requests, terminator included */
#define DEVICE_REQUEST_MAX ((size_t) 2 * DEVICE_NAME_MAX) /* "request" or "request/choice" */
#define DEVICE_ATTRIBUTE_MAX 128                          /* "domain/name" */
#define DEVICE_SHARE_MAX 40                               /* a UUID as text */

/* Amounts of a device, requested or consumed. What is not named is absent, not 0. */
struct device_amounts {
    bool has_core, has_memory;
    uint64_t core;   /* percent of a card; any number */
    uint64_t memory; /* bytes */
    /* The first name that is none of our capacities, or whose amount is no whole number, cut off
     * where it is long; "": none. */
    char odd[DEVICE_NAME_MAX];
};

/* What one request asks for, or one of its choices. */
struct device_choice {
    char name[DEVICE_NAME_MAX]; /* of the choice; "": the request has `exactly` */
    char class[KUBE_NAME_MAX];
    bool all;       /* allocationMode All: every device, and `count` is 0 */
    bool admin;     /* adminAccess */
    uint32_t count; /* at least 1 */
    struct device_amounts amounts;
    struct strings selectors; /* texts in CEL, all of which have to hold */
};

struct device_request {
    char name[DEVICE_NAME_MAX];
    uint32_t nchoices; /* the first that can be had is allocated; 0: of a kind that is not known */
    struct device_choice *choices;
};

/* What devices of several requests have in common. */
struct device_constraint {
    struct strings requests;             /* none: all of the claim */
    char match[DEVICE_ATTRIBUTE_MAX];    /* equal values of this attribute; "" */
    char distinct[DEVICE_ATTRIBUTE_MAX]; /* different ones; "" */
};

/* Opaque parameters for a driver. */
struct device_config {
    bool from_class;         /* those of the claim come after and go before; false in the spec */
    struct strings requests; /* none: all of the claim */
    char driver[DEVICE_NAME_MAX];
    char *parameters; /* JSON */
};

/* An allocated device, or a share of it. */
struct device_result {
    char request[DEVICE_REQUEST_MAX];
    char driver[DEVICE_NAME_MAX];
    char pool[KUBE_NAME_MAX];
    char device[DEVICE_NAME_MAX];
    char share[DEVICE_SHARE_MAX]; /* shareID; "": the device is not shared */
    bool admin;                   /* adminAccess: it consumes nothing */
    struct device_amounts consumed;
};

/* Who may use the claim. */
struct device_user {
    bool pod; /* else another kind of object */
    char name[KUBE_NAME_MAX];
    char uid[KUBE_UID_MAX];
};

struct resource_claim {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char version[32];             /* resourceVersion */
    int64_t created;              /* seconds since 1970, or 0 */
    char owner_pod[KUBE_UID_MAX]; /* the pod for which it was made of a template; "" */
    char code[REQUEST_CODE_MAX];  /* annotation DRA_REQUEST_ANNOTATION; "": none, or too long */
    bool deleting;
    bool protected; /* has the finalizer DRA_FINALIZER */
    uint32_t nrequests;
    struct device_request *requests;
    uint32_t nconstraints;
    struct device_constraint *constraints;
    uint32_t nconfigs; /* of the spec */
    struct device_config *configs;
    bool allocated;
    char node[KUBE_NAME_MAX]; /* the one node where the allocation can be used; "": another rule */
    uint32_t nresults;
    struct device_result *results;
    uint32_t nallocated_configs; /* of the allocation, in its order */
    struct device_config *allocated_configs;
    uint32_t nusers; /* status.reservedFor */
    struct device_user *users;
};

/* Reads a claim. -EINVAL: it is none, a text is longer than Kubernetes lets it be, or a list has
 * more entries; -ENOMEM. Free with resource_claim_done(). */
int resource_claim_parse(struct json object, struct resource_claim *ret, struct err *err);
void resource_claim_done(struct resource_claim *claim);

/* Whether a name of a result is that of a request in the list of a constraint or config: the
 * request's or that of one of its choices. An empty list has all. */
bool device_requests_have(const struct strings *requests, const char *request);

/* Whether the pod may use the claim: it is in `users`. */
bool resource_claim_is_for(const struct resource_claim *claim, const char *pod_uid);

/* Whether any device of ours is allocated to it. */
bool resource_claim_is_ours(const struct resource_claim *claim);

struct device_class {
    char name[KUBE_NAME_MAX];
    /* Has the label DRA_CLASS_LABEL with the value DRA_BY_ALIQUOT, and the selector `false` only:
     * with another one kube-scheduler allocates its claims, too. */
    bool by_aliquot;
    struct strings selectors;
    uint32_t nconfigs; /* with `from_class` */
    struct device_config *configs;
};

/* Reads a class; errors as of a claim. Free with device_class_done(). */
int device_class_parse(struct json object, struct device_class *ret, struct err *err);
void device_class_done(struct device_class *class);
