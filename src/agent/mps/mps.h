/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MPS on this node: a control daemon for each card that is given out under MPS, and the end of
 * those that former agents have left on other cards. A card enters and leaves MPS only while no
 * container has it: containers without MPS could make no context in EXCLUSIVE_PROCESS mode, and
 * those with MPS end with their server. One thread, on a libuv loop. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/mps/daemon.h"

struct err;
struct gpu_snapshot;
struct mps;

#define MPS_CARDS_MAX GPU_CARDS_MAX

/* A card that is given out under MPS. */
struct mps_card {
    char uuid[GPU_UUID_MAX];
    struct mps_limits limits; /* of each client that sets nothing lower */
};

struct mps_options {
    struct mps_daemon_options daemon; /* on_change: of any card; userdata is also of the others */
    const char *dir;                  /* of all cards' directories */
    uint32_t (*holders)(const char *uuid, void *userdata); /* containers that have the card */
};

/* Finds what former agents have left; changes nothing yet. Texts are kept. */
int mps_start(uv_loop_t *loop, const struct mps_options *options, struct mps **ret,
              struct err *err);

/* The cards that are to be under MPS from now on, and no others; copied. At most MPS_CARDS_MAX. */
void mps_set_cards(struct mps *m, const struct mps_card *cards, size_t n);

/* Takes note of the health of a card. Returns why no container can start on a healthy one under
 * MPS, valid until the next turn of the loop; NULL: that is possible, the card is not healthy, or
 * has nothing to do with MPS. For each device of a snapshot. */
const char *mps_judge(struct mps *m, const struct gpu_device *d);

/* Acts on the cards that are there, and on containers that have ended since. At every snapshot,
 * after mps_judge(). */
void mps_update(struct mps *m, const struct gpu_snapshot *s);

/* Ends the daemon of a card that no container has, until the pause is over: for a reset of the card
 * or an unload of its driver. Returns whether no process of MPS is left. */
bool mps_pause(struct mps *m, const char *uuid);
void mps_resume(struct mps *m, const char *uuid);

/* Whether MPS of the card has begun and has not ended, also under a former agent; whether it was
 * ready since then, as far as is known. */
bool mps_has_begun(const struct mps *m, const char *uuid);
bool mps_is_in_force(const struct mps *m, const char *uuid);

struct mps_card_status {
    bool ready;      /* containers can start on the card, under MPS */
    const char *why; /* it is not, for a person */
    uint64_t restarts;
};

/* False: the card has nothing to do with MPS. `ret` is valid until the next turn of the loop. */
bool mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret);

/* What a container with the card starts with. `again`: the container has the card already and gets
 * what its grant was made with, also while the card waits to enter or to leave MPS. Returns 1 and
 * the directory that has `pipe` and `shm`; 0: the container starts without MPS; -ENODEV: MPS of the
 * card is not ready. */
int mps_card_directory(const struct mps *m, const char *uuid, bool again, const char **ret,
                       struct err *err);

/* Ends the daemons of cards that no container has and restores their compute mode, then frees all
 * and calls on_closed (may be NULL). Daemons with containers go on; the next agent adopts them. The
 * loop must run. Commands have deadlines: bound the wait by these. */
void mps_close(struct mps *m, void (*on_closed)(void *userdata), void *userdata);
