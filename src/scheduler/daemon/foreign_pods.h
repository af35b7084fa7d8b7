/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that request a share and name a scheduler that does not ask here. They are left alone, and
 * an Event on each says so. */

struct pod;
struct scheduler;

/* A pod that the state knows has been shown by the watch. Does nothing where the profiles of
 * kube-scheduler are not known. */
void foreign_pods_see(struct scheduler *s, const struct pod *pod);

/* Only on the leader: writes the Events about those that it has seen before it led. */
void foreign_pods_tell(struct scheduler *s);
