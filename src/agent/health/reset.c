/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/health/reset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "agent/os/command.h"
#include "agent/verdicts/health.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/device.h"
#include "gpu/nvml/persistence.h"

#define CLOSE_MS 10000
#define POLL_MS 100
#define PERSISTENCE_MS 10000 /* the first NVML call after the last client initialises the card */
#define WORDS_MAX 64
#define WORD_MAX 512

struct words {
    const char *list[WORDS_MAX + 1];
    char text[WORDS_MAX][WORD_MAX];
};

struct reset {
    struct reset_options options;
    uv_loop_t *loop;
    uv_timer_t timer; /* while the card is being closed */
    struct command *command;
    uint64_t begun; /* loop time */
    bool closed;
    int lock;
    bool persistent; /* to be restored */
    enum reset_result result;
    char error[HEALTH_TEXT_MAX]; /* "": none */
    char uuid[GPU_UUID_MAX], library[512], program[256], lock_path[512];
    struct words command_line, env;
};

const char *reset_result_name(enum reset_result result) {
    static const char *const names[RESET_RESULTS] = {[RESET_SUCCEEDED] = "succeeded",
                                                     [RESET_FAILED] = "failed",
                                                     [RESET_TIMED_OUT] = "timed_out",
                                                     [RESET_NO_EFFECT] = "no_effect"};

    return names[result];
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void finish(struct reset *r) {
    if (r->lock >= 0)
        (void) close(r->lock);
    r->options.done(r->uuid, r->result, r->error[0] ? r->error : NULL, r->options.userdata);
    uv_close((uv_handle_t *) &r->timer, on_closed);
}

static void fail(struct reset *r, enum reset_result result, const char *error) {
    r->result = result;
    text_copy(r->error, sizeof(r->error), error);
}

/* ---- commands ---- */

/* Programs print blank lines, and what failed in several. */
static void flatten(const char *output, char ret[static HEALTH_TEXT_MAX]) {
    size_t len = 0;

    for (; *output && len + 1 < HEALTH_TEXT_MAX; output++) {
        char c = (char) (*output == '\n' || *output == '\t' ? ' ' : *output);

        if ((unsigned char) c >= ' ' && (c != ' ' || (len > 0 && ret[len - 1] != ' ')))
            ret[len++] = c;
    }
    while (len > 0 && ret[len - 1] == ' ')
        len--;
    ret[len] = 0;
}

static bool run(struct reset *r, const struct command_options *options) {
    struct command_options o = *options;
    struct err err;

    o.userdata = r;
    if (command_start(r->loop, &o, &r->command, &err) == 0)
        return true;
    fail(r, RESET_FAILED, err.text);
    return false;
}

/* `value`: "0" or "1", NULL: it is read. */
static bool run_persistence(struct reset *r, const char *value,
                            void (*done)(const struct command_result *, void *)) {
    const char *const argv[] = {r->program, GPU_PERSISTENCE_COMMAND, r->library, r->uuid, value,
                                NULL};

    return run(
        r, &(struct command_options){.argv = argv, .deadline_ms = PERSISTENCE_MS, .done = done});
}

/* ---- persistence mode, again ---- */

static void on_restored(const struct command_result *result, void *userdata) {
    struct reset *r = userdata;
    char text[HEALTH_TEXT_MAX];

    flatten(result->output, text);
    if (result->status == 0)
        r->options.on_persistent(r->uuid, false, r->options.userdata);
    else
        log_warn("GPU %s: the persistence mode is not restored: %s", r->uuid,
                 result->late ? "no answer in time" : text);
    finish(r);
}

static void restore(struct reset *r) {
    if (!r->persistent || !run_persistence(r, "1", on_restored))
        finish(r);
}

/* ---- the command ---- */

static void on_command(const struct command_result *result, void *userdata) {
    struct reset *r = userdata;
    char text[HEALTH_TEXT_MAX], error[2 * HEALTH_TEXT_MAX];

    flatten(result->output, text);
    if (result->late)
        (void) snprintf(error, sizeof(error), "%s has not ended within %u ms",
                        r->command_line.list[0], r->options.timeout_ms);
    else if (result->signal != 0)
        (void) snprintf(error, sizeof(error), "%s was ended by signal %d", r->command_line.list[0],
                        result->signal);
    else
        (void) snprintf(error, sizeof(error), "exit status %d%s%s", result->status,
                        text[0] ? ": " : "", text);
    if (result->status != 0)
        fail(r, result->late ? RESET_TIMED_OUT : RESET_FAILED, error);
    log_info("GPU %s: the reset command has ended: %s", r->uuid, error);
    restore(r);
}

static void run_command(struct reset *r) {
    const struct command_options options = {.argv = r->command_line.list,
                                            .env = r->options.env ? r->env.list : NULL,
                                            .inherited = r->lock,
                                            .deadline_ms = r->options.timeout_ms,
                                            .done = on_command};

    log_info("GPU %s: reset by %s", r->uuid, r->command_line.list[0]);
    if (!run(r, &options))
        restore(r);
}

/* ---- persistence mode ---- */

/* Without it the command says what is wrong. */
static void on_off(const struct command_result *result, void *userdata) {
    struct reset *r = userdata;
    char text[HEALTH_TEXT_MAX];

    flatten(result->output, text);
    if (result->status != 0)
        log_warn("GPU %s: the persistence mode is not turned off: %s", r->uuid,
                 result->late ? "no answer in time" : text);
    run_command(r);
}

static void turn_off(struct reset *r) {
    if (!run_persistence(r, "0", on_off))
        restore(r);
}

static void on_mode(const struct command_result *result, void *userdata) {
    struct reset *r = userdata;

    if (result->status != 0 || result->output[0] != '1') {
        run_command(r);
        return;
    }
    r->persistent = true;
    r->options.on_persistent(r->uuid, true, r->options.userdata);
    turn_off(r);
}

/* ---- the card is closed ---- */

/* 0, -EWOULDBLOCK: an earlier command has it, or why there is none. */
static int take_lock(struct reset *r) {
    if (r->lock < 0)
        r->lock = open(r->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return r->lock < 0 || flock(r->lock, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

static void begin(struct reset *r) {
    (void) uv_timer_stop(&r->timer);
    r->closed = true;
    if (r->persistent)
        turn_off(r);
    else if (!run_persistence(r, NULL, on_mode))
        finish(r);
}

static void give_up(struct reset *r, bool closed, int lock) {
    char error[HEALTH_TEXT_MAX + 512];

    (void) snprintf(error, sizeof(error), "cannot lock %s: %s", r->lock_path, strerror(-lock));
    r->closed = true;
    fail(r, RESET_FAILED,
         !closed                ? "a process of the agent still has the card open"
         : lock == -EWOULDBLOCK ? "the command of an earlier reset has not ended"
                                : error);
    finish(r);
}

static void try_to_begin(struct reset *r) {
    bool closed;
    int lock;

    if (r->closed)
        return;
    if (r->options.only_restore) {
        r->closed = true;
        (void) uv_timer_stop(&r->timer);
        restore(r);
        return;
    }
    closed = r->options.close(r->uuid, r->options.userdata);
    lock = closed ? take_lock(r) : 0;
    if (closed && lock == 0)
        begin(r);
    else if (uv_now(r->loop) - r->begun >= r->options.close_ms)
        give_up(r, closed, lock);
}

static void on_timer(uv_timer_t *timer) {
    try_to_begin(timer->data);
}

void reset_poke(struct reset *r) {
    /* Not in the caller's call: the end of the reset frees it. */
    if (!r->closed)
        (void) uv_timer_start(&r->timer, on_timer, 0, POLL_MS);
}

/* ---- start ---- */

static int copy_word(struct words *to, size_t at, const char *word, const char *uuid) {
    const char *place = uuid ? strstr(word, "UUID") : NULL;
    int n = place ? snprintf(to->text[at], WORD_MAX, "%.*s%s%s", (int) (place - word), word, uuid,
                             place + strlen("UUID"))
                  : snprintf(to->text[at], WORD_MAX, "%s", word);

    to->list[at] = to->text[at];
    return n < 0 || n >= WORD_MAX ? -E2BIG : 0;
}

static int copy_words(struct words *to, const char *const *from, const char *uuid) {
    int r = 0;

    for (size_t i = 0; from && from[i] && r == 0; i++)
        r = i < WORDS_MAX ? copy_word(to, i, from[i], uuid) : -E2BIG;
    return r;
}

int reset_start(uv_loop_t *loop, const struct reset_options *options, struct reset **ret,
                struct err *err) {
    struct reset *r = calloc(1, sizeof(*r));

    if (!r)
        return err_set(err, ENOMEM, "out of memory");
    if (copy_words(&r->command_line, options->command, options->uuid) < 0 ||
        copy_words(&r->env, options->env, NULL) < 0) {
        free(r);
        return err_set(err, E2BIG, "the reset command is too long");
    }
    r->options = *options;
    r->options.close_ms = options->close_ms ? options->close_ms : CLOSE_MS;
    r->loop = loop;
    r->begun = uv_now(loop);
    r->lock = -1;
    r->persistent = options->persistent;
    text_copy(r->uuid, sizeof(r->uuid), options->uuid);
    text_copy(r->library, sizeof(r->library), options->library);
    text_copy(r->program, sizeof(r->program), options->program);
    text_copy(r->lock_path, sizeof(r->lock_path), options->lock);
    (void) uv_timer_init(loop, &r->timer);
    r->timer.data = r;
    (void) uv_timer_start(&r->timer, on_timer, 0, POLL_MS);
    *ret = r;
    return 0;
}
