/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/probe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/text.h"
#include "gpu/nvml/child.h"
#include "gpu/nvml/worker.h"

struct gpu_probe {
    struct gpu_probe_options options;
    struct gpu_child *child;
    char uuid[GPU_UUID_MAX];
};

static void finish(struct gpu_probe *p, const char *error) {
    p->options.on_done(p, p->uuid, error, p->options.userdata);
    gpu_child_kill(p->child);
}

static void on_message(const void *message, int type, void *userdata) {
    const union gpu_message *msg = message;

    if (type == GPU_MESSAGE_END)
        finish(userdata, NULL);
    else
        finish(userdata, type == GPU_MESSAGE_FAILED ? msg->text.text : "an unexpected message");
}

static void on_end(bool malformed, void *userdata) {
    finish(userdata, malformed ? "a malformed message" : "the process that made it has ended");
}

static void on_timer(void *userdata) {
    finish(userdata, "a call of the driver did not return in time");
}

static void on_freed(void *userdata) {
    struct gpu_probe *p = userdata;

    p->options.on_freed(p->options.userdata);
    free(p);
}

int gpu_probe_start(uv_loop_t *loop, const struct gpu_probe_options *options,
                    struct gpu_probe **ret) {
    static const struct gpu_child_handlers handlers = {on_message, on_end, on_timer, on_freed};
    struct gpu_probe *p = calloc(1, sizeof(*p));
    const struct gpu_child_options child = {.program = options->program,
                                            .library = options->library,
                                            .mode = GPU_WORKER_PROBE,
                                            .visible = options->uuid,
                                            .handlers = &handlers,
                                            .userdata = p};
    int r;

    if (!p)
        return -ENOMEM;
    p->options = *options;
    text_copy(p->uuid, sizeof(p->uuid), options->uuid);
    r = gpu_child_start(loop, &child, &p->child);
    if (r < 0) {
        free(p);
        return r;
    }
    gpu_child_arm(p->child, options->deadline_ms);
    *ret = p;
    return 0;
}

void gpu_probe_cancel(struct gpu_probe *probe) {
    gpu_child_kill(probe->child);
}
