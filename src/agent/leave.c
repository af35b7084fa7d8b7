/* SPDX-License-Identifier: Apache-2.0 */

/* Graceful shutdown. A pod that kubelet admits while the agent is down fails, and kubelet updates
 * the node's resources only about 10 s after the plugins have ended. So the agent sets the node
 * condition AliquotAgentReady to False first, and serves kubelet until the pods that were bound
 * before that are admitted. */

#include "agent/agent.h"
#include "agent/report/publish.h"
#include "base/log.h"

#define CHECK_MS 100
/* Wait for the condition's write; then kubelet's update of the node's resources must suffice. */
#define PUBLISH_MAX_MS 3000
/* Time without pods to admit after the condition's write. In it the scheduler sees the condition,
 * Bindings in flight are answered, and the agent's watch shows their pods. */
#define QUIET_MS 1500
/* Less than terminationGracePeriodSeconds in deploy/base/agent.yaml, with the time to close. */
#define LEAVE_MAX_MS 10000

static bool is_admitting(const struct agent *a) {
    return pods_unadmitted(a->shares.pods) > 0 || prestart_waiting(&a->prestarts) > 0;
}

static void on_check(uv_timer_t *timer) {
    struct agent *a = timer->data;
    uint64_t now = uv_now(a->loop);
    bool published = publisher_has_left(a->report.publisher);

    if (!published || is_admitting(a))
        a->leave_quiet = now;
    if (now - a->leave_since < LEAVE_MAX_MS && now - a->leave_quiet < QUIET_MS &&
        (published || now - a->leave_since < PUBLISH_MAX_MS))
        return;
    if (!published)
        log_warn("the node's condition was not written: %s",
                 publisher_trouble(a->report.publisher));
    (void) uv_timer_stop(timer);
    a->on_left(a);
}

void leave_begin(struct agent *a, void (*on_left)(struct agent *a)) {
    a->report.leaving = true;
    a->on_left = on_left;
    a->leave_since = a->leave_quiet = uv_now(a->loop);
    publisher_leave(a->report.publisher);
    (void) uv_timer_start(&a->leave_timer, on_check, 0, CHECK_MS);
}
