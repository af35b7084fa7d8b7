/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/run_shares.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "share/ledger.h"

#define PREFIX "aliquot-run-"

/* In memory where possible: no disk is written for a ledger, and its locks are lighter there. */
static const char *const parents[] = {"/dev/shm", "/tmp"};
#define PARENTS (sizeof(parents) / sizeof(parents[0]))

void run_shares_path(const char *dir, const char *file, char ret[static 96]) {
    (void) snprintf(ret, 96, "%.64s/%.16s", dir, file);
}

bool run_shares_in_use(const char *dir) {
    char path[96];
    struct ledger *ledger;
    struct ledger_process one;
    bool used;

    run_shares_path(dir, "ledger", path);
    if (ledger_open(path, &ledger, NULL) < 0)
        return false;
    used = ledger_processes(ledger, &one, 1) > 0;
    ledger_free(ledger);
    return used;
}

uint32_t run_shares_machine(void) {
    const char *dir = getenv("ALIQUOT_SIM_DIR");

    return dir && *dir ? (uint32_t) hash_text(HASH_START, dir) : 0;
}

/* Reads PREFIX, a PID, "-", eight digits of the machine, "-", anything. */
static bool read_name(const char *name, struct run_share *ret) {
    unsigned long machine;
    int pid, end = 0;

    if (sscanf(name, PREFIX "%9d-%8lx-%n", &pid, &machine, &end) != 2 || end == 0 || pid <= 0)
        return false;
    ret->pid = pid;
    ret->machine = (uint32_t) machine;
    return true;
}

static void for_each_in(const char *parent,
                        void (*fn)(const struct run_share *place, void *userdata), void *userdata) {
    _cleanup_closedir_ DIR *d = opendir(parent);
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        struct run_share place = {0};
        struct stat st;

        if (!read_name(e->d_name, &place) || snprintf(place.dir, sizeof(place.dir), "%s/%s", parent,
                                                      e->d_name) >= (int) sizeof(place.dir))
            continue;
        if (lstat(place.dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
            fn(&place, userdata);
    }
}

void run_shares_each(void (*fn)(const struct run_share *place, void *userdata), void *userdata) {
    for (size_t i = 0; i < PARENTS; i++)
        for_each_in(parents[i], fn, userdata);
}

static void remove_unused(const struct run_share *place, void *userdata) {
    (void) userdata;
    if (kill(place->pid, 0) < 0 && errno == ESRCH && !run_shares_in_use(place->dir))
        (void) dir_remove(place->dir, NULL);
}

int run_shares_make(struct run_share *ret, struct err *err) {
    run_shares_each(remove_unused, NULL);
    ret->pid = getpid();
    ret->machine = run_shares_machine();
    for (size_t i = 0; i < PARENTS; i++) {
        (void) snprintf(ret->dir, sizeof(ret->dir), "%s/" PREFIX "%d-%08x-XXXXXX", parents[i],
                        (int) ret->pid, ret->machine);
        if (!mkdtemp(ret->dir))
            continue;
        /* The command may change its user. */
        if (chmod(ret->dir, 0755) == 0)
            return 0;
    }
    ret->dir[0] = '\0';
    return err_errno(err, errno, "cannot make a directory in /tmp");
}
