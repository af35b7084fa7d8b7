/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Labels of an object, kept as text ("key=value," for each; NULL: none), and what is required of
 * them: by a LabelSelector, by a NodeSelector, by allowedTopologies. */

#include <stdbool.h>
#include <stdint.h>

#include "wire/json.h"

#define LABEL_TERMS_MAX 32
#define NODE_SELECTOR_MAX 16

/* 0 or -ENOMEM; what is no text is left out. `*ret` is to be freed. */
int labels_read(struct json labels, char **ret);

enum label_operator {
    LABEL_IN,
    LABEL_NOT_IN,
    LABEL_EXISTS,
    LABEL_DOES_NOT_EXIST,
    LABEL_GREATER, /* of nodes only, as the next one */
    LABEL_LESS,
};

struct label_term {
    enum label_operator operator;
    bool field; /* of the object, not a label; the only one is metadata.name */
    char *key;
    char *values; /* "value," for each, may be "" */
};

/* All of them have to hold. */
struct label_terms {
    uint32_t n;
    struct label_term *v;
};

/* Reads matchLabels and matchExpressions of a LabelSelector; -EINVAL: it cannot be understood, or
 * has more than LABEL_TERMS_MAX; -ENOMEM. */
int label_selector_read(struct json selector, struct label_terms *ret);

/* Reads labels that an object must have, as in matchLabels or in a pod's nodeSelector. Errors as
 * above. */
int label_match_read(struct json labels, struct label_terms *ret);

/* Reads a selector as in a URL: "a=b,c!=d,e in (f,g),h notin (i),j,!k". Errors as above. */
int label_selector_parse(const char *text, struct label_terms *ret);

/* Without a term everything has them. */
bool label_terms_hold(const struct label_terms *terms, const char *labels, const char *name);
void label_terms_done(struct label_terms *terms);

/* One of them has to hold; one without a term holds nowhere. */
struct node_selector {
    uint32_t n; /* 0: any node will do */
    struct label_terms *v;
};

/* Reads a list of nodeSelectorTerms or allowedTopologies. What cannot be understood holds nowhere;
 * -EINVAL: more than NODE_SELECTOR_MAX; -ENOMEM. */
int node_selector_read(struct json list, struct node_selector *ret);
bool node_selector_holds(const struct node_selector *s, const char *labels, const char *name);
void node_selector_done(struct node_selector *s);
