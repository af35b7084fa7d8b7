/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/known.h"

#include "agent/audit/audit_internal.h"
#include "agent/audit/mapped.h"
#include "agent/os/procfs.h"
#include "share/ledger.h"

#define KNOWN_MS 5000
#define BYPASS_MS 1000 /* time until a process without the ledger is checked again */
#define ANSWER_MS 1000 /* a process of which nothing is known after that bypasses the library */
#define QUERIES_MAX 16 /* of one container at a time */

/* PIDs of a driver before 545 are the machine's; where the agent's are others, the wrong processes
 * would be accused. Having found a context of its own by its own PID proves that they fit, of all
 * devices: a card in MIG mode and its instances have none. */
bool audit_pids_fit(const struct audit *a) {
    const struct gpu_snapshot *s;

    if (a->initial_pids)
        return true;
    s = gpu_monitor_snapshot(a->shares->monitor);
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].context_bytes > 0)
            return true;
    return false;
}

static void take_answer(struct audit *a, struct known_process *k) {
    enum mapped_answer answer = k->query ? mapped_answer(k->query) : MAPPED_PENDING;

    if (answer == MAPPED_PENDING)
        return;
    k->query = mapped_free(k->query);
    k->judged = true;
    k->bypasses = answer == MAPPED_NO;
    k->until_ms = uv_now(a->shares->loop) + (k->bypasses ? BYPASS_MS : KNOWN_MS);
}

/* The entry of the process; a new one replaces the one not seen for longest. An entry with a
 * pending answer is not replaced: its thread still runs and counts for the container. NULL: all
 * entries are pending, which takes the processes of several containers. */
static struct known_process *known_of(struct audit *a, const struct slot *slot, uint32_t pid,
                                      uint64_t life) {
    struct known_process *oldest = NULL;

    for (uint32_t i = 0; i < KNOWN_WINDOW; i++) {
        struct known_process *k = &a->known[(pid + i) % KNOWN_PROCESSES];

        if (k->pid == pid && k->slot == slot && k->life == life)
            return k;
        take_answer(a, k);
        if (!k->query && (!oldest || k->seen_ms < oldest->seen_ms))
            oldest = k;
    }
    if (!oldest)
        return NULL;
    *oldest = (struct known_process){
        .pid = pid, .slot = slot, .life = life, .since_ms = uv_now(a->shares->loop)};
    return oldest;
}

static uint32_t queries_of(const struct audit *a, const struct slot *slot) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < KNOWN_PROCESSES; i++)
        n += a->known[i].slot == slot && a->known[i].query;
    return n;
}

/* Whether the process has the ledger of its container mapped; if not, it bypasses the library. An
 * unreadable ledger is a separate finding, and a process that has ended is none. The answer is
 * cached for a while, unless the process executes another program. If the container prevents an
 * answer, it counts as a bypass. */
bool audit_knows(struct audit *a, struct slot *slot, uint32_t pid) {
    uint64_t life = procfs_life((int) pid), now = uv_now(a->shares->loop);
    struct known_process *k;
    dev_t device;
    ino_t inode;

    if (life == 0 || !slot->ledger || ledger_file_of(slot->ledger, &device, &inode) < 0)
        return true;
    k = known_of(a, slot, pid, life);
    if (!k)
        return true;
    k->seen_ms = now;
    take_answer(a, k);
    if (now < k->until_ms)
        return !k->bypasses;
    if (!k->query && queries_of(a, slot) < QUERIES_MAX)
        k->query = mapped_query((int) pid, device, inode);
    a->mapped_pending = true;
    return k->judged ? !k->bypasses : now - k->since_ms < ANSWER_MS;
}
