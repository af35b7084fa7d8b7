/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU objects, the capacity of the node and its condition. */

#include <stdbool.h>

#include "kube/objects/driver_upgrade.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/pod.h"

struct err;
struct gpu_device;
struct publisher;
struct report;

int publisher_start(struct report *report, struct publisher **ret, struct err *err);
void publisher_update(struct publisher *p); /* the snapshot has changed */
void publisher_stop(struct publisher *p, void (*on_closed)(void *userdata), void *userdata);
/* The GPU object of the card or instance with that UUID; false while there is none. */
bool publisher_object(const struct publisher *p, const char *uuid,
                      char ret_name[static KUBE_NAME_MAX], char ret_uid[static KUBE_UID_MAX]);
/* The orders for a device: the annotations of its GPU object. NULL: they were not read yet. */
const struct gpu_orders *publisher_orders(const struct publisher *p, const struct gpu_device *d);

/* Whether the Node and all its GPU objects were read. */
bool publisher_has_orders(const struct publisher *p);

/* What the Node orders for all of its cards. */
struct node_orders {
    struct gpu_orders orders; /* its annotations */
    enum driver_upgrade upgrade;
    char upgrade_label[DRIVER_UPGRADE_LABEL_MAX]; /* that says so */
};

/* NULL: it was not read yet. */
const struct node_orders *publisher_node_orders(const struct publisher *p);

/* What keeps the API server's copy from being true; "" when nothing does. */
const char *publisher_trouble(const struct publisher *p);

/* Sets the node's condition to False, because the agent stops, and writes nothing else from now on.
 */
void publisher_leave(struct publisher *p);
/* Whether the condition is written, or not needed: no pod can be bound to the node for its cards.
 */
bool publisher_has_left(const struct publisher *p);
