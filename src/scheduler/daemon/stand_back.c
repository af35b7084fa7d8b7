/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/stand_back.h"

#include <stdio.h>

#include "base/log.h"

const char *stand_back_reason(struct scheduler *s) {
    const char *asked = lease_cluster_asks(&s->lease);
    if (!*asked)
        return "";
    (void) snprintf(s->stand_back.text, sizeof(s->stand_back.text),
                    "the cluster's kube-scheduler asks Aliquot, too (%s), so this replica with a "
                    "kube-scheduler of its own stands back: remove the extender from the "
                    "configuration of the cluster's kube-scheduler, or install Aliquot without a "
                    "kube-scheduler of its own",
                    asked);
    return s->stand_back.text;
}

static void tell(struct scheduler *s, const char *reason) {
    const struct event event = event_on_pod(s->options.name_space, s->options.identity, s->skew.uid,
                                            "ClusterKubeSchedulerAsks", reason);
    log_warn("%s", reason);
    event_writer_note(s->events, &event, 0, false, scheduler_now(s));
    s->stand_back.told = true;
}

void stand_back_run(struct scheduler *s) {
    const char *reason = stand_back_reason(s);
    if (!*reason)
        s->stand_back.told = false;
    else if (!s->stand_back.told && s->skew.uid[0])
        tell(s, reason);
    if (*reason) /* all other Events are the leader's */
        event_writer_run(s->events, scheduler_now(s));
}
