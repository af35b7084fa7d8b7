/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/foreign_pods.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/objects/pod.h"
#include "scheduler/daemon/scheduler.h"

#define TEXT_MAX 1024

static bool is_foreign(const struct scheduler *s, const struct pod *pod) {
    return s->profiles.n > 0 && !pod->resource_claims && pod->scheduler[0] && !pod->node[0] &&
           !pod->finished && !profiles_have(&s->profiles, pod->scheduler);
}

/* Once: the pod cannot change the name, and what is noted again is counted. */
static void tell(struct scheduler *s, struct state_pod *pod) {
    char text[TEXT_MAX];
    (void) snprintf(text, sizeof(text),
                    "the pod names the scheduler %s, which does not ask Aliquot, so it gets no "
                    "share of a GPU: leave spec.schedulerName out, or name %s",
                    pod->foreign.scheduler, s->profiles.names[0]);
    const struct event event =
        event_on_pod(pod->namespace, pod->name, pod->uid, "ForeignScheduler", text);
    event_writer_note(s->events, &event, 0, false, scheduler_now(s));
    pod->foreign.told = true;
}

void foreign_pods_see(struct scheduler *s, const struct pod *pod) {
    struct state_pod *kept = is_foreign(s, pod) ? state_pod_find(s->state, pod->uid) : NULL;
    if (!kept || kept->foreign.scheduler || !(kept->foreign.scheduler = strdup(pod->scheduler)))
        return;
    if (scheduler_leads(s)) /* at once: the other scheduler may bind it soon */
        tell(s, kept);
}

void foreign_pods_tell(struct scheduler *s) {
    for (struct state_pod *pod = s->state->open; pod; pod = pod->open_next)
        if (pod->foreign.scheduler && !pod->foreign.told)
            tell(s, pod);
}
