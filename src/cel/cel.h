/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Selectors of devices in CEL, the Common Expression Language, as Kubernetes' kube-scheduler
 * evaluates them for requests of ResourceClaims: a subset of the language. What is outside of it is
 * refused by cel_parse(), or by cel_ask() where it depends on values, and is never guessed at.
 * Inside of it every answer is that of kube-scheduler, errors included. No I/O.
 *
 * Kubernetes checks the types of a selector before it stores it. Here they are checked as far as
 * the choice of functions needs it. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Of Kubernetes: longest expression, in bytes. */
#define CEL_LENGTH_MAX 10240

enum cel_kind { CEL_KIND_BOOL, CEL_KIND_INT, CEL_KIND_STRING, CEL_KIND_VERSION };

struct cel_attribute {
    const char *domain, *name;
    enum cel_kind kind;
    int64_t number;   /* of an int; of a bool: 0 or 1 */
    const char *text; /* of a string or a version */
};

struct cel_capacity {
    const char *domain, *name;
    uint64_t value;
};

/* What a selector can ask of a device. */
struct cel_device {
    const char *driver;
    bool multiple; /* allowMultipleAllocations */
    uint32_t nattributes, ncapacities;
    const struct cel_attribute *attributes;
    const struct cel_capacity *capacities;
};

struct cel;

/* Reads an expression, of which nothing is kept in `text`. -EINVAL: it is not in the subset; `err`
 * names the construct and its column. -ENOMEM. Free with cel_free(). */
int cel_parse(const char *text, struct cel **ret, struct err *err);
void cel_free(struct cel *cel);

enum cel_answer {
    CEL_NO,
    CEL_YES,
    CEL_FAILS,    /* an error at run time: kube-scheduler places no pod then */
    CEL_UNSERVED, /* outside of the subset, or the budget is used up */
};

/* Whether the device matches. `*budget` counts down steps and bytes, over several calls. `why` is
 * filled for the last two answers. */
enum cel_answer cel_ask(const struct cel *cel, const struct cel_device *device, uint64_t *budget,
                        struct err *why);
