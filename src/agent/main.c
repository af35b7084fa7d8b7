/* SPDX-License-Identifier: Apache-2.0 */

/* aliquot-agent: puts the parts together and takes them apart again. */

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "agent/agent.h"
#include "agent/audit/audit.h"
#include "agent/audit/holders.h"
#include "agent/audit/usage.h"
#include "agent/clean.h"
#include "agent/cluster/access.h"
#include "agent/cluster/certificate.h"
#include "agent/cluster/gpu_manager.h"
#include "agent/cluster/keys.h"
#include "agent/config/node_config.h"
#include "agent/mps/launch.h"
#include "agent/os/memory.h"
#include "agent/os/procfs.h"
#include "agent/os/selinux.h"
#include "agent/report/http.h"
#include "agent/report/publish.h"
#include "agent/report/recorder.h"
#include "agent/shares/cdi.h"
#include "agent/shares/driver_limit_hook.h"
#include "agent/shares/gputime.h"
#include "agent/shares/resize.h"
#include "agent/shares/share_dir.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/health.h"
#include "base/log.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/mig/worker.h"
#include "gpu/nvml/compute_mode.h"
#include "gpu/nvml/persistence.h"
#include "gpu/nvml/worker.h"
#include "kube/api/client.h"
#include "kube/api/event_writer.h"
#include "model/scaling.h"

#define INVENTORY_FILE "inventory.json"
#define GIVE_BACK_POLLS 60 /* between two times that memory is given back */
#define GIVE_BACK_FIRST 10 /* the start has made its lists and connections by then */
#define STOP_MS 3000       /* after that the agent ends without asking the rest */
#define BEAT_MS 1000
#define POOL_THREADS "2" /* compression of pages, and names of hosts, which can take long */

static uv_signal_t signals[2];
static uv_timer_t stop_timer;
static uv_timer_t beat_timer;

/* ---- the driver ---- */

static const char *find_driver(void *userdata) {
    struct agent *a = userdata;

    a->shares.driver = gpu_driver_find(&a->shares.places, a->nvml_library);
    return a->shares.driver ? a->nvml_library : NULL;
}

/* What the cards are, for the next agent: it serves kubelet before the driver has answered. */
static void save_inventory(struct agent *a) {
    static uint64_t saved;
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    char path[512];
    uint64_t hash;

    gpu_snapshot_encode(gpu_monitor_snapshot(a->shares.monitor), &text);
    hash = hash_bytes(HASH_START, text.data, text.len);
    if (hash == saved || buf_error(&text) < 0)
        return;
    (void) snprintf(path, sizeof(path), "%s/" INVENTORY_FILE, a->shares.options.state_dir);
    if (file_replace(path, text.data, text.len, 0644, NULL) == 0)
        saved = hash;
}

static void load_inventory(struct agent *a, struct gpu_snapshot *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 << 20);
    char path[512];
    struct err err;

    (void) snprintf(path, sizeof(path), "%s/" INVENTORY_FILE, a->shares.options.state_dir);
    if (file_read(path, 1 << 20, &text, &err) < 0)
        return;
    if (gpu_snapshot_decode(buf_str(&text), text.len, ret, &err) < 0)
        log_warn("%s is not usable and is ignored: %s", path, err.text);
}

/* A device that is known from the last snapshot. */
struct logged {
    enum gpu_kind kind;
    char uuid[GPU_UUID_MAX];
};

static bool is_logged(const struct logged *list, size_t n, const struct gpu_device *d) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].uuid, d->uuid) == 0)
            return true;
    return false;
}

/* Logs which devices have come and gone since the last snapshot. */
static void log_changes(struct agent *a) {
    static struct logged known[GPU_MAX];
    static size_t n;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (!is_logged(known, n, d))
            log_info("%s %u is on this node: %s, %s", gpu_kind_name(d->kind), d->index, d->model,
                     d->uuid);
    }
    for (size_t i = 0; i < n; i++)
        if (!gpu_find(s, known[i].uuid))
            log_info("%s %s is not on this node any more", gpu_kind_name(known[i].kind),
                     known[i].uuid);
    for (n = 0; n < s->ndevices; n++) {
        known[n].kind = s->devices[n].kind;
        text_copy(known[n].uuid, sizeof(known[n].uuid), s->devices[n].uuid);
    }
}

static int add_resource(const struct resource *r, void *userdata) {
    struct agent *a = userdata;

    return kubelet_add(a->kubelet, r);
}

static void on_snapshot(void *userdata) {
    struct agent *a = userdata;
    struct gpu_monitor_status status;

    if (a->closing)
        return;
    gpu_monitor_status(a->shares.monitor, &status);
    whole_rows_update(&a->whole_rows, gpu_monitor_snapshot(a->shares.monitor), add_resource, a);
    kubelet_update(a->kubelet, status.complete);
    step_end();
    if (status.complete && reconfigure_is_known(a))
        card_mps_update(a);
    card_mig_update(a);
    step_end();
    usage_update(&a->audit);
    step_end();
    gputime_sample(&a->shares);
    slot_set_contexts(&a->shares.slots, gpu_monitor_snapshot(a->shares.monitor));
    slot_open_files(&a->shares.slots);
    if (status.complete) {
        step_end();
        log_changes(a);
        save_inventory(a);
        step_end();
        card_health_work(a);
        if (reconfigure_is_known(a)) {
            card_dynamic_update(a);
            resource_claims_update(a);
        }
    }
    step_end();
    publisher_update(a->report.publisher);
    prestart_wake(&a->prestarts);
    step_end();
    report_http_update(&a->report);
    pods_repair(a->shares.pods);
    if (status.polls % GIVE_BACK_POLLS == GIVE_BACK_FIRST)
        memory_give_back();
}

static void on_configured(struct agent *a) {
    if (a->closing || !a->kubelet)
        return;
    kubelet_rows_changed(a->kubelet);
    gpu_monitor_judge(a->shares.monitor); /* which ends in on_snapshot() */
}

static void on_poll(void *userdata) {
    struct agent *a = userdata;

    audit_begin(&a->audit);
}

static void on_node(struct json node, void *userdata) {
    struct agent *a = userdata;

    reconfigure_see_node(a, node);
    resource_claims_see_node(a, node);
    card_mig_see_node(a, node);
}

static void on_orders(void *userdata) {
    card_orders_await(userdata);
}

static void on_limit(const struct gpu_limit_answer *answer, void *userdata) {
    struct agent *a = userdata;

    driver_limit_answer(&a->shares, answer);
}

/* ---- once a second ---- */

static void mark_health(const struct agent *a) {
    static bool fails;
    int r = a->config.health ? health_mark(a->config.health, HEALTH_ALIVE, true) : 0;

    if (r < 0 && !fails)
        log_error("cannot write to %s: %s", a->config.health, strerror(-r));
    fails = r < 0;
}

static void on_beat(uv_timer_t *timer) {
    struct agent *a = timer->data;

    mark_health(a);
    card_orders_await(a);
    card_health_work(a);
    event_writer_run(a->shares.events.writer, uv_now(a->loop));
}

static int probe(const char *path) {
    struct err err;

    if (health_probe(path, &err) == 0)
        return EXIT_SUCCESS;
    (void) fprintf(stderr, "aliquot-agent: %s\n", err.text);
    return EXIT_FAILURE;
}

/* ---- kubelet and API server ---- */

static void stop(struct agent *a);

static const struct gpu_snapshot *devices(void *userdata) {
    const struct agent *a = userdata;

    return gpu_monitor_snapshot(a->shares.monitor);
}

static void on_prestart(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata) {
    struct agent *a = userdata;

    prestart_begin(&a->prestarts, call, resource, ids, nids);
}

/* Something happened that a container may wait for. */
static void wake_starts(struct agent *a) {
    prestart_wake(&a->prestarts);
    dra_prepare_wake(&a->claims);
}

static void on_checkpoint(void *userdata) {
    struct agent *a = userdata;

    card_mig_retry(a);
    prestart_wake(&a->prestarts);
    cross_check_changed(&a->cross_check);
}

static void on_granted(void *userdata) {
    struct agent *a = userdata;

    usage_sweep(&a->audit);
}

static void on_kubelet(const struct resource *r, bool registered, const char *why, void *userdata) {
    struct agent *a = userdata;

    if (registered)
        log_info("kubelet has taken the plugin of %s", r->name);
    else
        log_warn("the plugin of %s is not registered: %s", r->name, why);
    if (!a->closing && a->report.publisher)
        publisher_update(a->report.publisher);
}

/* In a container the directory is a mount; only a new container gets a new one. */
static void end_detached(struct agent *a, const char *what) {
    if (a->failed || !a->kubelet)
        return;
    log_error("%s/%s was deleted on the host; ending, to be started again with the new one",
              a->config.kubelet_dir, what);
    a->failed = true;
    stop(a);
}

static void on_detached(void *userdata) {
    end_detached(userdata, "device-plugins");
}

static void report_runtime(struct agent *a, const struct pod_entry *e) {
    for (size_t i = 0; i < e->ncontainers; i++)
        if (e->containers[i].failure && cdi_guard_refused(e->containers[i].failure))
            pod_events_container(&a->shares.events, e->pod.namespace, e->pod.name, e->pod.uid,
                                 e->containers[i].name, "ContainerRuntimeWithoutCDI",
                                 "the container runtime of this node does not apply CDI devices, "
                                 "so the container would have no share and no limits: turn CDI on "
                                 "(containerd 1.7: enable_cdi = true) and restart the runtime");
}

static void on_pod(const struct pod_entry *e, void *userdata) {
    struct agent *a = userdata;

    report_runtime(a, e);
    if (e->pod.finished)
        slot_gc_release(&a->shares, e->pod.uid, true);
    else
        slot_gc_cancel(&a->shares, e->pod.uid);
    resize_pod(&a->shares, e);
    gputime_pod(&a->shares, e);
    resource_claims_pod(a, e);
    wake_starts(a);
}

static void on_pod_gone(const struct pod_entry *e, void *userdata) {
    struct agent *a = userdata;

    slot_gc_release(&a->shares, e->pod.uid, e->stopped);
}

/* After a rollback. What this agent cannot read it leaves as it is. */
static void tell_newer(struct agent *a) {
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        const struct slot_grant *g = &slot->grant;
        char text[384];

        if (!g->newer)
            continue;
        (void) snprintf(text, sizeof(text),
                        "the share of container %s was given by a newer agent: it is kept, and its "
                        "limits hold, but its use is not checked until the container starts again "
                        "or a newer agent is back",
                        g->container);
        pod_events_container(&a->shares.events, g->namespace, g->pod, g->pod_uid, g->container,
                             "RecordOfNewerAgent", text);
    }
}

static void on_pods_synced(void *userdata) {
    struct agent *a = userdata;

    a->report.api_trouble[0] = 0;
    tell_newer(a);
    slot_gc_orphans(&a->shares);
    wake_starts(a);
}

static void on_api_trouble(const char *text, void *userdata) {
    struct agent *a = userdata;

    if (strcmp(a->report.api_trouble, text) != 0)
        log_warn("%s", text);
    text_copy(a->report.api_trouble, sizeof(a->report.api_trouble), text);
}

static void on_keys(void *userdata) {
    struct agent *a = userdata;

    prestart_wake(&a->prestarts);
}

static void on_remove(const struct slot *slot, void *userdata) {
    struct agent *a = userdata;

    card_audit_release(&a->audit, slot);
}

static void on_removed(void *userdata) {
    struct agent *a = userdata;

    card_mig_retry(a);
    kubelet_held_changed(a->kubelet);
    wake_starts(a);
}

static bool find_object(const char *uuid, char ret_name[static KUBE_NAME_MAX],
                        char ret_uid[static KUBE_UID_MAX], void *userdata) {
    const struct agent *a = userdata;

    return a->report.publisher && publisher_object(a->report.publisher, uuid, ret_name, ret_uid);
}

static void on_bad_slot(const char *nonce, const char *why, void *userdata) {
    const struct agent *a = userdata;

    log_warn("a share without a usable record is removed: %s", why);
    (void) cdi_remove(a->shares.options.cdi_dir, nonce, NULL);
}

/* An option of the agent takes precedence. */
static void on_gpu_manager(const struct gpu_manager_config *config, void *userdata) {
    struct agent *a = userdata;

    a->gpu_manager_scaling = gpu_manager_scaling(0, config);
    a->gpu_manager_known = true;
    reconfigure_scaling(a);
    if (config->found)
        log_info(
            "ConfigMap gpu-manager-config: the node offers %u.%03u times its cards' memory; the "
            "driver of cgroups%s%s and the runtime's endpoint%s%s are found without it",
            a->shares.options.memory_scaling / SCALING_ONE,
            a->shares.options.memory_scaling % SCALING_ONE, config->cgroup[0] ? " " : "",
            config->cgroup, config->endpoint[0] ? " " : "", config->endpoint);
    publisher_update(a->report.publisher);
}

static void on_no_right(const char *text, void *userdata) {
    struct agent *a = userdata;
    char message[512];

    (void) snprintf(message, sizeof(message),
                    "the agent may not ask the API server about tokens, so that /usage answers no "
                    "client: apply the manifests of this version (ClusterRole aliquot-agent), or "
                    "give the agents --usage-auth=none: %.200s",
                    text);
    pod_events_node(&a->shares.events, a->shares.options.node_name, "TokensNotReviewed", message);
}

static void on_certificate(const char *trouble, void *userdata) {
    struct agent *a = userdata;
    struct pod_events *events = &a->shares.events;
    const char *node = a->shares.options.node_name;
    char message[600];

    if (!trouble[0]) {
        pod_events_node_well(events, node, "CertificateIssued",
                             "the agent has a certificate of Aliquot's authority");
        return;
    }
    (void) snprintf(
        message, sizeof(message),
        "the agent has no certificate of Aliquot's authority, so that aliquot-scheduler "
        "and Prometheus do not trust it: %.400s",
        trouble);
    pod_events_node(events, node, "NoCertificate", message);
}

/* ---- start ---- */

static int start_access(struct agent *a, const char *token_file, struct err *err) {
    struct access_options options = {
        .client = a->client, .token_file = token_file, .on_no_right = on_no_right, .userdata = a};

    if (!a->report.http || (!a->report.usage_asks_token && !a->report.metrics_asks_token))
        return 0;
    return access_start(&options, &a->report.access, err);
}

static int start_kube(struct agent *a, struct err *err) {
    const struct pods_handlers events = {on_pod, on_pod_gone, on_pods_synced, on_api_trouble, a};
    struct kube_config config;
    int r = kube_config_load(a->config.api_server, a->config.token_file, a->config.ca_file, &config,
                             err);

    if (r < 0)
        return r;
    r = kube_client_new(a->loop, &config, &a->client, err);
    a->report.client = a->shares.events.client = a->client;
    if (r == 0)
        r = start_access(a, config.token_file, err);
    kube_config_done(&config);
    if (r == 0)
        r = keys_start(a->client, a->config.namespace, on_keys, a, &a->shares.keys, err);
    if (r == 0 && a->report.certificate)
        r = agent_certificate_follow(a->report.certificate, a->client, a->config.namespace,
                                     on_certificate, a, err);
    if (r == 0)
        r = pods_start(a->client, a->shares.options.node_name, resource_claims_are_read(a), &events,
                       &a->shares.pods, err);
    if (r == 0)
        r = publisher_start(&a->report, &a->report.publisher, err);
    if (r == 0)
        r = card_mig_follow(a, err);
    if (r == 0)
        r = reconfigure_follow(a, err);
    if (r == 0)
        r = gpu_manager_start(a->client, a->shares.options.node_name, on_gpu_manager, a,
                              &a->gpu_manager, err);
    return r;
}

static int start_files(struct agent *a, struct err *err) {
    struct err why;
    int r = dir_make(a->shares.options.state_dir, 0755, err);

    if (r == 0)
        r = dir_make(a->shares.options.cdi_dir, 0755, err);
    if (r < 0)
        return r;
    a->shares.slots.bounded =
        share_dir_can_bound(a->shares.options.state_dir, a->shares.options.host_root, &why) == 0;
    if (!a->shares.slots.bounded)
        log_warn("ledgers and MPS directories of containers have no limit on the node: %s",
                 why.text);
    a->shares.slots.selinux = SELINUX_INTERFACE;
    r = library_install(a->config.library, a->shares.options.state_dir, a->shares.options.host_root,
                        a->shares.slots.bounded, SELINUX_INTERFACE, &a->shares.library, err);
    if (r == 0)
        r = cdi_guard_install(a->shares.options.state_dir, a->shares.options.cdi_dir,
                              &a->shares.guard, err);
    if (r == 0)
        r = slot_store_load(&a->shares.slots, a->shares.options.state_dir, on_bad_slot, a, err);
    if (r == 0)
        library_clean(&a->shares.library, a->shares.options.state_dir, &a->shares.slots);
    return r;
}

static const struct kubelet_handlers kubelet_handlers = {devices,
                                                         on_prestart,
                                                         card_health_unhealthy_percent,
                                                         card_health_has_ended,
                                                         card_mig_allocated,
                                                         on_checkpoint,
                                                         on_kubelet,
                                                         on_detached};

static int start_parts(struct agent *a, struct err *err) {
    const struct kubelet_options kubelet = {.dir = a->config.kubelet_dir,
                                            .guard = a->shares.guard.file,
                                            .handlers = &kubelet_handlers,
                                            .userdata = a};
    const struct gpu_monitor_options monitor = {.program = "/proc/self/exe",
                                                .library = find_driver,
                                                .on_update = on_snapshot,
                                                .judge = card_health_judge,
                                                .on_xid = card_health_xid,
                                                .on_probe = card_health_probed,
                                                .on_ended = card_reset_poke,
                                                .on_poll = on_poll,
                                                .on_limit = on_limit,
                                                .userdata = a,
                                                .interval_ms = a->node_config->health.interval_ms,
                                                .deadline_ms = a->node_config->health.deadline_ms};
    static struct gpu_snapshot known;
    int r = start_files(a, err);

    if (r == 0)
        r = card_mps_start(a, err);
    if (r == 0)
        r = card_mig_start(a, err);
    if (r == 0)
        r = gputime_start(&a->shares, err);
    if (r == 0 && a->config.tls)
        r = agent_certificate_new(a->shares.options.state_dir, a->shares.options.node_name,
                                  &a->report.certificate, err);
    if (r == 0)
        r = report_http_start(&a->report, err);
    if (r == 0)
        r = start_kube(a, err);
    if (r < 0)
        return r;
    load_inventory(a, &known);
    card_health_start(a);
    (void) find_driver(a);
    r = gpu_monitor_start(a->loop, &monitor, &known, &a->shares.monitor, err);
    if (r == 0)
        r = driver_limit_start(&a->shares, err);
    if (r == 0)
        r = kubelet_start(a->loop, &kubelet, &a->kubelet, err);
    a->prestarts.kubelet = a->kubelet;
    a->report.kubelet = a->cross_check.kubelet = a->kubelet;
    if (r < 0)
        return r;
    recorder_start(&a->report);
    card_reset_work(a); /* no child has started yet */
    cross_check_start(&a->cross_check, a->loop, a->config.kubelet_dir);
    r = resource_claims_start(a, err);
    if (r == 0)
        on_snapshot(a);
    return r;
}

/* ---- stop ---- */

static void on_closed(void *userdata) {
    struct agent *a = userdata;

    if (--a->closing == 0)
        uv_stop(a->loop);
}

static void on_client_closed(void *userdata) {
    on_closed(userdata);
}

static void on_stop_timer(uv_timer_t *timer) {
    log_warn("something does not close; ending anyway");
    uv_stop(timer->loop);
}

static void stop(struct agent *a) {
    if (a->closing)
        return;
    a->closing = 9;
    (void) uv_timer_stop(&beat_timer);
    (void) uv_timer_start(&stop_timer, on_stop_timer, STOP_MS, 0);
    a->shares.closing = a->shares.events.closing = true;
    (void) uv_timer_stop(&a->shares.gc.timer);
    (void) uv_timer_stop(&a->leave_timer);
    audit_stop(&a->audit);
    prestart_stop(&a->prestarts);
    a->closing += resource_claims_stop(a, on_closed);
    cross_check_stop(&a->cross_check);
    driver_limit_stop(&a->shares);
    report_http_stop(&a->report);
    recorder_stop(&a->report);
    publisher_stop(a->report.publisher, on_closed, a);
    pods_stop(a->shares.pods);
    keys_stop(a->shares.keys);
    agent_certificate_stop(a->report.certificate);
    gpu_manager_stop(a->gpu_manager, on_closed, a);
    reconfigure_stop(a, on_closed);
    card_mps_stop(a, on_closed);
    card_health_stop(a, on_closed);
    card_mig_stop(a, on_closed);
    kubelet_close(a->kubelet, on_closed, a);
    gpu_monitor_close(a->shares.monitor, on_closed, a);
    kube_client_close(a->client, on_client_closed, a);
}

/* The second signal does not wait for pods. */
static void on_signal(uv_signal_t *handle, int number) {
    struct agent *a = handle->data;

    log_info("stopping on signal %d; containers keep their shares", number);
    if (a->report.leaving)
        stop(a);
    else
        leave_begin(a, stop);
}

/* Connects the parts of the agent. */
static void join_rooms(struct agent *a) {
    a->shares.loop = a->loop;
    a->shares.options = a->config.shares;
    a->shares.places = (struct gpu_driver_places){.host_root = a->config.shares.host_root,
                                                  .driver_root = a->config.driver_root,
                                                  .dev_root = a->config.dev_root,
                                                  .sim_dir = a->config.sim_dir};
    a->shares.gc.on_remove = on_remove;
    a->shares.gc.on_removed = on_removed;
    a->shares.gc.userdata = a;
    a->audit.shares = &a->shares;
    a->audit.options = a->config.audit;
    a->audit.find_object = find_object;
    a->audit.userdata = a;
    a->audit.initial_pids = procfs_namespace_is_initial();
    a->prestarts.shares = &a->shares;
    a->prestarts.on_granted = on_granted;
    a->prestarts.userdata = a;
    a->report.listen = a->config.listen;
    a->report.metric_names = a->config.metric_names;
    a->report.usage_asks_token = a->config.usage_asks_token;
    a->report.metrics_asks_token = a->config.metrics_asks_token;
    a->report.on_node = on_node;
    a->report.on_gpu = card_dynamic_object;
    a->report.on_orders = on_orders;
    a->report.mig_report = card_dynamic_report;
    a->report.userdata = a;
    a->report.labels = a->config.labels;
    a->report.kubelet_dir = a->config.kubelet_dir;
    a->report.signing_namespace = a->config.namespace;
    a->report.shares = &a->shares;
    a->report.audit = &a->audit;
    a->report.whole_rows = &a->whole_rows;
    a->whole_rows.elsewhere = a->config.served_elsewhere;
    a->report.health = &a->health;
    a->report.prestarts = &a->prestarts;
    a->report.cross_check = &a->cross_check;
    a->cross_check.shares = &a->shares;
    a->cross_check.sys_dir = a->config.labels.sys_dir;
    a->report.started = uv_now(a->loop);
}

static void init_handles(struct agent *a) {
    static const int numbers[] = {SIGTERM, SIGINT};

    slot_gc_init(&a->shares);
    audit_start(&a->audit);
    prestart_init(&a->prestarts);
    (void) uv_timer_init(a->loop, &a->leave_timer);
    (void) uv_timer_init(a->loop, &stop_timer);
    (void) uv_timer_init(a->loop, &beat_timer);
    beat_timer.data = a;
    a->leave_timer.data = a;
    for (size_t i = 0; i < 2; i++) {
        (void) uv_signal_init(a->loop, &signals[i]);
        signals[i].data = a;
        (void) uv_signal_start(&signals[i], on_signal, numbers[i]);
    }
}

/* Each share has two descriptors and each HTTP connection one; some container runtimes set a soft
 * limit of 1024. */
static void raise_descriptor_limit(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &limit);
}

static void serve(struct agent *a) {
    log_info("aliquot-agent %s on node %s, driver: %s", ALIQUOT_VERSION,
             a->shares.options.node_name,
             a->shares.driver ? gpu_driver_name(a->shares.driver) : "none yet");
    memory_give_back(); /* most of what the start has mapped is code that does not run again */
    (void) uv_timer_start(&beat_timer, on_beat, 0, BEAT_MS);
    (void) uv_run(a->loop, UV_RUN_DEFAULT);
}

/* What the agent starts its own binary as. */
static const struct {
    const char *command; /* the first argument */
    int (*main)(int argc, char **argv);
} children[] = {
    {GPU_WORKER_COMMAND, gpu_worker_main},
    {GPU_MIG_WORKER_COMMAND, gpu_mig_worker_main},
    {HOLDERS_COMMAND, holders_main},
    {GPU_COMPUTE_MODE_COMMAND, gpu_compute_mode_main},
    {GPU_PERSISTENCE_COMMAND, gpu_persistence_main},
    {MPS_LAUNCH_COMMAND, mps_launch_main},
};

int main(int argc, char **argv) {
    static struct agent agent;
    struct agent *a = &agent;
    struct err err;
    int r;

    for (size_t i = 0; argc > 1 && i < sizeof(children) / sizeof(children[0]); i++)
        if (strcmp(argv[1], children[i].command) == 0)
            return children[i].main(argc, argv);
    r = config_parse(argc, argv, &a->config, &err);
    if (r < 0) {
        if (r != -ECANCELED)
            (void) fprintf(stderr, "aliquot-agent: %s\n", err.text);
        return r == -ECANCELED ? EXIT_SUCCESS : r == -ENOEXEC ? EXIT_FAILURE : 2;
    }
    if (a->config.probe)
        return probe(a->config.probe);
    if (a->config.clean)
        return clean_main(&a->config);
    (void) signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    (void) setenv("UV_THREADPOOL_SIZE", POOL_THREADS, 1);
    (void) mallopt(M_ARENA_MAX, 1);
    (void) mallopt(M_MMAP_THRESHOLD, 64 << 10);
    (void) mallopt(M_TRIM_THRESHOLD, 64 << 10);
    /* The simulated NVML, in the child, finds its devices by this. */
    (void) setenv("ALIQUOT_SIM_DIR", a->config.sim_dir, 1);
    a->loop = uv_default_loop();
    join_rooms(a);
    init_handles(a);
    a->on_configured = on_configured;
    a->on_detached = end_detached;
    pod_events_start(&a->shares.events, a->loop);
    if (!a->shares.events.writer) {
        log_error("cannot start: out of memory");
        return EXIT_FAILURE;
    }
    if (reconfigure_start(a, &err) < 0 || start_parts(a, &err) < 0) {
        log_error("cannot start: %s", err.text);
        return EXIT_FAILURE;
    }
    serve(a);
    a->report.certificate = agent_certificate_free(a->report.certificate);
    gputime_stop(&a->shares);
    slot_store_done(&a->shares.slots);
    card_dynamic_done(a);
    whole_rows_done(&a->whole_rows);
    (void) node_config_free(a->node_config);
    event_writer_free(a->shares.events.writer);
    log_info("stopped");
    return a->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
