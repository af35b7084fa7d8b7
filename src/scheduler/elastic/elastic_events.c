/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "kube/api/event_writer.h"
#include "scheduler/elastic/elastic_internal.h"

void elastic_note(void *self, const struct claims_note *note) {
    const struct elastic *e = self;
    const struct event event = {.namespace = note->namespace[0] ? note->namespace : "default",
                                .name = note->name,
                                .uid = note->uid,
                                .api_version = note->api_version,
                                .kind = note->kind,
                                .cluster_scoped = !note->namespace[0],
                                .normal = !note->warning,
                                .reason = note->reason,
                                .message = note->message};
    event_writer_note(e->events, &event, 0, false, e->now(e->userdata));
}

void elastic_note_claim(struct elastic *e, struct claims_note note) {
    note.api_version = "elasticgpu.io/v1alpha1";
    note.kind = "ElasticGPUClaim";
    log_info("claim %s/%s: %s: %s", note.namespace, note.name, note.reason, note.message);
    elastic_note(e, &note);
}
