/* SPDX-License-Identifier: Apache-2.0 */

/* Resets of cards, connected with the rest of the agent: the driver's program, the state that a
 * restarted agent goes on with. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/node_config.h"
#include "agent/health/reset.h"
#include "agent/mig/executor.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/driver_links.h"
#include "gpu/nvml/monitor.h"

#define RESTORE_MS 10000 /* between two attempts to restore a persistence mode */

static bool close_card(const char *uuid, void *userdata) {
    return card_close(userdata, uuid);
}

/* ---- the command ---- */

#define ENV_MAX 4

/* The words and the environment of the default command. */
struct smi {
    char program[512], env[ENV_MAX][640];
    const char *words[5], *env_list[ENV_MAX + 1];
};

/* nvidia-smi loads NVML by its name: it gets the driver's library by LD_LIBRARY_PATH. */
static int find_smi(struct agent *a, struct smi *ret, struct err *err) {
    const char *const words[] = {ret->program, "--gpu-reset", "-i", "UUID", NULL};
    char links[512];
    int r = !a->shares.driver
                ? -ENOENT
                : gpu_driver_program(a->shares.driver, &a->shares.places, "nvidia-smi",
                                     ret->program, sizeof(ret->program));

    if (r < 0)
        return err_set(err, ENOENT,
                       "nvidia-smi is not in the driver's root; aliquot.reset.command names "
                       "another program");
    (void) snprintf(links, sizeof(links), "%s/reset-lib", a->shares.options.state_dir);
    r = gpu_driver_link_libraries(a->nvml_library, links, err);
    if (r < 0)
        return r;
    (void) snprintf(ret->env[0], sizeof(ret->env[0]), "LD_LIBRARY_PATH=%s", links);
    (void) snprintf(ret->env[1], sizeof(ret->env[1]), "ALIQUOT_SIM_DIR=%s", a->config.sim_dir);
    text_copy(ret->env[2], sizeof(ret->env[2]), "PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    text_copy(ret->env[3], sizeof(ret->env[3]), "LC_ALL=C");
    for (size_t i = 0; i < ENV_MAX; i++)
        ret->env_list[i] = ret->env[i];
    ret->env_list[ENV_MAX] = NULL;
    memcpy(ret->words, words, sizeof(words));
    return 0;
}

/* ---- a reset ---- */

static void on_persistent(const char *uuid, bool off, void *userdata) {
    struct agent *a = userdata;

    health_cards_set_persistent(&a->health, uuid, off);
}

static void end(struct agent *a, const char *uuid, enum reset_result result, const char *error) {
    if (error)
        health_cards_count_reset(&a->health, uuid, result);
    health_cards_end(&a->health, uuid, HEALTH_RESET, error);
    health_cards_save(&a->health);
}

static void on_done(const char *uuid, enum reset_result result, const char *error, void *userdata) {
    struct agent *a = userdata;

    a->reset = NULL;
    if (a->closing)
        return;
    end(a, uuid, result, error);
    gpu_monitor_judge(a->shares.monitor); /* with the snapshot the work goes on */
}

static int start(struct agent *a, const struct health_card *card, struct err *err) {
    const struct health_options *rules = &a->node_config->health;
    char lock[512];
    struct smi smi;
    struct reset_options options = {.program = "/proc/self/exe",
                                    .library = a->nvml_library,
                                    .uuid = card->uuid,
                                    .command = rules->reset_command,
                                    .timeout_ms = rules->reset_timeout_ms,
                                    .lock = lock,
                                    .persistent = card->persistent,
                                    .close = close_card,
                                    .on_persistent = on_persistent,
                                    .done = on_done,
                                    .userdata = a};
    int r = rules->reset_command ? 0 : find_smi(a, &smi, err);

    if (r < 0)
        return r;
    if (!rules->reset_command) {
        options.command = smi.words;
        options.env = smi.env_list;
    }
    (void) snprintf(lock, sizeof(lock), "%s/reset.lock", a->shares.options.state_dir);
    return reset_start(a->loop, &options, &a->reset, err);
}

/* One at a time: each closes the card of the one NVML child of all cards. What divides cards ends
 * first, and nothing begins to divide them while a card waits here. */
static void start_next(struct agent *a) {
    const struct health_card *card;
    struct err err;

    while (!a->reset && !(a->mig && mig_executor_has_child(a->mig)) &&
           (card = health_cards_waiting(&a->health, HEALTH_RESET))) {
        char uuid[GPU_UUID_MAX];

        text_copy(uuid, sizeof(uuid), card->uuid);
        health_cards_begin(&a->health, uuid);
        if (start(a, card, &err) < 0)
            end(a, uuid, RESET_FAILED, err.text);
    }
}

/* ---- persistence mode that was not restored at the end of a reset ---- */

static void on_restored(const char *uuid, enum reset_result result, const char *error,
                        void *userdata) {
    struct agent *a = userdata;

    (void) uuid, (void) result, (void) error;
    a->reset = NULL;
}

static const struct health_card *find_unrestored(const struct health_cards *c) {
    for (uint32_t i = 0; i < c->ncards; i++)
        if (c->cards[i].persistent && !health_card_is_closed(&c->cards[i]))
            return &c->cards[i];
    return NULL;
}

static void restore_persistence(struct agent *a) {
    const struct health_card *card = find_unrestored(&a->health);
    struct reset_options options = {.program = "/proc/self/exe",
                                    .library = a->nvml_library,
                                    .only_restore = true,
                                    .persistent = true,
                                    .lock = "",
                                    .on_persistent = on_persistent,
                                    .done = on_restored,
                                    .userdata = a};
    struct err err;

    if (!card || a->reset || !a->shares.driver || uv_now(a->loop) < a->persistence_at)
        return;
    a->persistence_at = uv_now(a->loop) + RESTORE_MS;
    options.uuid = card->uuid;
    if (reset_start(a->loop, &options, &a->reset, &err) < 0)
        log_warn("GPU %s: the persistence mode is not restored: %s", card->uuid, err.text);
}

void card_reset_work(struct agent *a) {
    const struct health_cards *c = &a->health;

    if (a->closing)
        return;
    start_next(a);
    restore_persistence(a);
    for (uint32_t i = 0; i < c->ncards; i++)
        if (c->cards[i].kind == GPU_CARD)
            card_open(a, c->cards[i].uuid);
}

void card_reset_poke(void *userdata) {
    struct agent *a = userdata;

    if (a->reset && !a->closing)
        reset_poke(a->reset);
}
