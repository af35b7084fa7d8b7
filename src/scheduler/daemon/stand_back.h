/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Both modes at once: the cluster's kube-scheduler is configured for Aliquot, and there are
 * replicas with a kube-scheduler of their own. These stand back (lease_stands_back()). */

#include "scheduler/daemon/scheduler.h"

/* What a replica that stands back answers with, and tells; "" where it does not. */
const char *stand_back_reason(struct scheduler *s);

/* To be called about once a second. Tells it once, in the log and by an Event on this replica's
 * pod, as soon as the pod's UID is known. */
void stand_back_run(struct scheduler *s);
