/* SPDX-License-Identifier: Apache-2.0 */

/* The division of cards into MIG instances, connected with the rest of the agent: driver, slots,
 * kubelet. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/cluster/pod_events.h"
#include "agent/config/node_config.h"
#include "agent/mig/manager.h"
#include "agent/mig/node_status.h"
#include "agent/mig/source.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/mig/lock.h"

#define RECORD_FILE "mig-config"
#define CONFIGS_FILE "mig-configs.yaml" /* of the ConfigMap */

struct card_mig {
    struct mig_manager *manager;
    struct mig_node_status *node;    /* NULL: not started */
    struct mig_source *source;       /* NULL: not started, or no ConfigMap is named */
    char label[MIG_CONFIG_NAME_MAX]; /* of the Node; "": it has none */
    bool node_known;                 /* the Node was read */
};

/* ---- what the executor asks of the agent ---- */

static const char *library(void *userdata) {
    struct agent *a = userdata;

    return a->shares.driver ? a->nvml_library : NULL;
}

static void hold(struct gpu_mig_held *ret, const struct slot *slot, const char *uuid) {
    char by[GPU_MIG_HOLDER_MAX];

    (void) snprintf(by, sizeof(by), "pod %.50s/%.70s", slot->grant.namespace, slot->grant.pod);
    mig_executor_add_held(ret, uuid, by);
}

/* A container has its devices until its slot is released. */
static void held(struct gpu_mig_held *ret, void *userdata) {
    const struct agent *a = userdata;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        for (uint32_t i = 0; i < slot->grant.nwhole; i++)
            hold(ret, slot, slot->grant.whole[i].uuid);
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            hold(ret, slot, slot->grant.devices[i].uuid);
    }
}

static void on_withdraw(void *userdata) {
    struct agent *a = userdata;

    if (!a->closing && a->shares.monitor)
        gpu_monitor_judge(a->shares.monitor);
}

static bool close_card(const char *uuid, void *userdata) {
    struct agent *a = userdata;

    return a->closing || !a->shares.monitor || card_close(a, uuid);
}

static void open_card(const char *uuid, void *userdata) {
    struct agent *a = userdata;

    if (!a->closing && a->shares.monitor)
        card_open(a, uuid);
}

static bool opens(const struct gpu_mig_order *o, const struct health_card *card) {
    if (o->kind != GPU_MIG_CONFIG)
        return strcmp(o->card, card->uuid) == 0;
    return card->index >= GPU_CARDS_MAX || !(o->left_out >> card->index & 1);
}

/* NVML has its driver in use with any card, and a card that is reset must not be opened by any of
 * its calls. */
static int may_start(const struct gpu_mig_order *o, void *userdata, struct err *err) {
    const struct agent *a = userdata;
    bool all_released = a->health.ncards > 0;

    for (uint32_t i = 0; i < a->health.ncards; i++) {
        const struct health_card *card = &a->health.cards[i];

        if (card->kind != GPU_CARD)
            continue;
        if (card->health.state == HEALTH_RESETTING)
            return err_set(err, EBUSY, "GPU %u is being reset", card->index);
        if (health_card_is_closed(card) && opens(o, card))
            return err_set(err, EBUSY, "GPU %u is released", card->index);
        all_released = all_released && health_card_is_closed(card);
    }
    return all_released ? err_set(err, EBUSY, "all GPUs are released") : 0;
}

/* ---- the wish ---- */

static bool follows_label(const struct agent *a) {
    return strcmp(a->config.mig_label, "off") != 0;
}

/* The label comes before the configuration. */
static const char *wanted(const struct agent *a) {
    const char *config = a->node_config->mig_config;

    if (follows_label(a) && a->division->label[0])
        config = a->division->label;
    return config ? config : "";
}

/* Whether the configurations are those of a ConfigMap that was not read yet. */
static bool waits_for_source(const struct agent *a) {
    return a->config.mig_config_map &&
           (!a->division->source || !mig_source_is_known(a->division->source));
}

/* Without label and configuration nothing is wanted, and before both are known nothing is decided.
 */
static void decide(struct agent *a) {
    if (reconfigure_is_known(a) && (!follows_label(a) || a->division->node_known) &&
        !waits_for_source(a))
        mig_manager_want(a->division->manager, wanted(a), a->node_config->mig_dynamic);
}

void card_mig_see_node(struct agent *a, struct json node) {
    const char *label =
        json_string_or(JSON_PATH(node, "metadata", "labels", a->config.mig_label), "");
    struct card_mig *m = a->division;

    if (!m)
        return;
    m->node_known = true;
    text_copy(m->label, sizeof(m->label), label);
    if (m->node)
        mig_node_status_see(m->node, node);
    decide(a);
}

/* ---- the configurations of ConfigMaps ---- */

static void on_file(void *userdata) {
    struct agent *a = userdata;

    decide(a);
    mig_manager_see_file(a->division->manager);
}

static void on_source_trouble(const char *why, void *userdata) {
    struct agent *a = userdata;

    text_copy(a->report.mig_file_trouble, sizeof(a->report.mig_file_trouble), why);
    if (why[0]) {
        log_error("the MIG configurations do not change: %s", why);
        pod_events_node(&a->shares.events, a->shares.options.node_name, "MIGConfigInvalid", why);
    } else {
        log_info("the ConfigMap of the MIG configurations can be used again");
    }
    on_file(a);
}

static const char *no_file(void *userdata) {
    const struct agent *a = userdata;

    return a->division->source ? mig_source_missing(a->division->source) : NULL;
}

/* ---- what the manager tells ---- */

static uint64_t left_out(void *userdata) {
    const struct agent *a = userdata;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    uint64_t cards = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].kind == GPU_CARD && s->devices[i].index < GPU_CARDS_MAX &&
            (s->devices[i].released || (!s->devices[i].healthy && !s->devices[i].saved)))
            cards |= UINT64_C(1) << s->devices[i].index;
    return cards;
}

static int reset(const char *uuid, void *userdata, struct err *err) {
    struct agent *a = userdata;

    if (a->node_config->health.reset == HEALTH_RESET_NEVER)
        return err_set(err, EPERM, "aliquot.reset.policy is never");
    if (!health_cards_find(&a->health, uuid))
        return err_set(err, EAGAIN, "the agent has not read it yet");
    (void) health_cards_reset(&a->health, uuid);
    gpu_monitor_judge(a->shares.monitor);
    return 0;
}

static bool is_resetting(void *userdata) {
    const struct agent *a = userdata;

    for (uint32_t i = 0; i < a->health.ncards; i++)
        if (a->health.cards[i].kind == GPU_CARD && health_card_is_to_be_reset(&a->health.cards[i]))
            return true;
    return false;
}

static void tell(struct agent *a, const struct mig_status *s) {
    static const char *const reasons[] = {"", "MIGConfigPending", "MIGConfigResetting",
                                          "MIGConfigApplied", "MIGConfigFailed"};
    char text[MIG_CONFIG_NAME_MAX + MIG_REASON_MAX + 64];

    (void) snprintf(text, sizeof(text), "MIG configuration %s: %s%s%s", s->config,
                    mig_state_name(s->state), s->reason[0] ? ": " : "", s->reason);
    if (s->state == MIG_STATE_FAILED)
        log_error("%s", text);
    else
        log_info("%s", text);
    /* That a division begins is no Event: it is over in seconds, or waits for a reason. */
    if ((s->state != MIG_STATE_PENDING || s->reason[0]) && !s->recorded)
        pod_events_node(&a->shares.events, a->shares.options.node_name, reasons[s->state], text);
}

static void on_status(const struct mig_status *s, void *userdata) {
    struct agent *a = userdata;

    if (a->closing)
        return;
    mig_status_problem(s, a->report.mig_trouble);
    if (s->state != MIG_STATE_NONE)
        tell(a, s);
    if (a->division->node)
        mig_node_status_set(a->division->node, s);
}

/* ---- input ---- */

bool card_mig_waits(const struct agent *a, const struct gpu_device *d,
                    char ret_why[static GPU_REASON_MAX]) {
    bool ends = a->mig && mig_executor_withdraws(a->mig, d->uuid);
    bool held = a->division && d->traits.mig_capable &&
                (mig_manager_holds(a->division->manager) || (waits_for_source(a) && wanted(a)[0]));

    if (!ends && !held)
        return false;
    text_copy(ret_why, GPU_REASON_MAX,
              ends ? "a repartition ends it" : "the node's MIG configuration is applied first");
    return true;
}

static uint64_t hash_division(const struct gpu_snapshot *s) {
    uint64_t hash = HASH_START;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        hash = hash_text(hash, d->uuid);
        hash = hash_text(hash, d->mig.profile);
        hash = hash_bytes(hash, &d->divided, sizeof(d->divided));
        hash = hash_bytes(hash, &d->mig.start, sizeof(d->mig.start));
    }
    return hash;
}

void card_mig_update(struct agent *a) {
    struct gpu_monitor_status status;

    if (!a->mig)
        return;
    gpu_monitor_status(a->shares.monitor, &status);
    mig_executor_update(a->mig, status.polls);
    if (a->division->source)
        mig_source_pass(a->division->source, uv_now(a->loop));
    decide(a);
    if (status.complete)
        mig_manager_update(a->division->manager,
                           hash_division(gpu_monitor_snapshot(a->shares.monitor)));
}

void card_mig_retry(struct agent *a) {
    if (a->division)
        mig_manager_retry(a->division->manager);
}

void card_mig_allocated(const char *const *ids, size_t n, void *userdata) {
    struct agent *a = userdata;

    if (a->mig)
        mig_executor_allocated(a->mig, ids, n);
}

/* ---- life ---- */

/* That of the ConfigMap, in the agent's directory. */
static const char *configs_file(const struct agent *a) {
    static char path[512];

    (void) snprintf(path, sizeof(path), "%s/" CONFIGS_FILE, a->shares.options.state_dir);
    return path;
}

static int start_manager(struct agent *a) {
    static const struct mig_manager_handlers handlers = {no_file, left_out, reset, is_resetting,
                                                         on_status};
    static char record[512];
    const struct mig_manager_options options = {
        .executor = a->mig,
        .file = a->config.mig_config_map ? configs_file(a) : a->config.mig_config_file,
        .hooks = a->config.mig_hooks_file,
        .record = record,
        .handlers = &handlers,
        .userdata = a};

    (void) snprintf(record, sizeof(record), "%s/" RECORD_FILE, a->shares.options.state_dir);
    a->division = calloc(1, sizeof(*a->division));
    return a->division ? mig_manager_new(a->loop, &options, &a->division->manager) : -ENOMEM;
}

int card_mig_follow(struct agent *a, struct err *err) {
    const struct mig_source_options options = {.maps = a->config.mig_config_map,
                                               .namespace = a->config.namespace,
                                               .file = configs_file(a),
                                               .on_file = on_file,
                                               .on_trouble = on_source_trouble,
                                               .userdata = a};

    if (mig_node_status_new(a->client, a->shares.options.node_name, &a->division->node) < 0)
        return err_set(err, ENOMEM, "out of memory");
    return options.maps ? mig_source_start(a->client, &options, &a->division->source, err) : 0;
}

int card_mig_start(struct agent *a, struct err *err) {
    static const struct mig_executor_handlers handlers = {library,     held,       may_start,
                                                          on_withdraw, close_card, open_card};
    static char lock[512], kubelet_dir[512], pod_logs[512];
    const struct mig_executor_options options = {.lock = lock,
                                                 .kubelet_dir = kubelet_dir,
                                                 .pod_logs = pod_logs,
                                                 .hook_root = a->shares.options.host_root,
                                                 .handlers = &handlers,
                                                 .userdata = a};

    (void) snprintf(lock, sizeof(lock), "%s/" GPU_MIG_LOCK_NAME, a->shares.options.state_dir);
    (void) snprintf(kubelet_dir, sizeof(kubelet_dir), "%s%s", a->shares.options.host_root,
                    a->config.kubelet_dir);
    (void) snprintf(pod_logs, sizeof(pod_logs), "%s/var/log/pods", a->shares.options.host_root);
    return mig_executor_new(a->loop, &options, &a->mig) < 0 || start_manager(a) < 0
               ? err_set(err, ENOMEM, "out of memory")
               : 0;
}

void card_mig_stop(struct agent *a, void (*on_closed)(void *userdata)) {
    struct mig_executor *x = take_ptr(a->mig);
    struct card_mig *m = take_ptr(a->division);

    if (m) {
        mig_source_stop(m->source);
        if (m->node)
            mig_node_status_stop(m->node);
        if (m->manager)
            mig_manager_close(m->manager);
    }
    free(m);
    if (x)
        mig_executor_close(x, on_closed, a);
    else
        on_closed(a);
}
