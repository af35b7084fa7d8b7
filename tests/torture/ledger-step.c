/* SPDX-License-Identifier: Apache-2.0 */

/* Walks a process through one operation of the ledger, instruction by instruction, and kills it
 * after the first, the second, the third, …: at each place the books must balance to the byte
 * afterwards, whether it is a peer's next operation or a sweep that finds the remains. */

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "common.h"

#define PEER_HOLDS 7

static struct arena arena;
static struct ledger_owner peer, peer_exports;
static struct ledger *ledger;

/* The operations to walk through; each leaves the traced process with no doubt about what is being
 * tested. */
static void do_reserve(struct ledger_owner *o) {
    (void) ledger_reserve(o, 0, 100, 1000);
}

static void do_refund(struct ledger_owner *o) {
    (void) ledger_refund(o, 0, 60);
}

static void do_refuse(struct ledger_owner *o) {
    (void) ledger_reserve(o, 0, 100000, 1000);
}

/* Memory that others may open moves to a slot of its own. */
static void do_export(struct ledger_owner *o) {
    struct ledger_owner exports;

    if (ledger_claim_exports(arena.path, &exports) < 0)
        return;
    (void) ledger_reserve(&exports, 0, 60, 0);
    (void) ledger_refund(o, 0, 60);
}

/* Another process opens it, and closes it again. */
static void do_borrow(struct ledger_owner *o) {
    struct ledger_loan loan;

    if (ledger_borrow(o, NULL, &loan) > 0)
        ledger_return(&loan);
}

/* A peer is checkpointed and comes back. */
static void do_park(struct ledger_owner *o) {
    ledger_park(o->file, peer.slot, 0);
    (void) ledger_unpark(o->file, peer.slot, 0, peer.generation, 1000);
}

static void do_reclaim(struct ledger_owner *o) {
    for (uint32_t slot = 0; slot < 4; slot++)
        if (slot != o->slot && slot != peer.slot && slot != peer_exports.slot)
            (void) ledger_reclaim(o->file, slot, 0,
                                  (uint16_t) (o->file->slot[slot].cell[0].booked.hi >> 48));
}

#define OWN 60     /* what the traced process has */
#define REMAINS 33 /* what one before it has left */

/* What was exported by descriptor leaves its slot, but not the sum. */
static void do_orphan(struct ledger_owner *o) {
    (void) ledger_orphan(o, 0, OWN);
}

static void do_collect(struct ledger_owner *o) {
    int fd = open(arena.path, O_RDWR | O_CLOEXEC);

    for (uint32_t slot = 0; slot < 4; slot++)
        if (slot != o->slot)
            (void) ledger_reclaim_if_dead(o->file, fd, slot);
}

static void do_credit(struct ledger_owner *o) {
    ledger_credit_orphaned(o->file, 0, REMAINS);
}

/* A process that dies with an exports slot. */
static void leave_exports(void) {
    struct ledger_owner o;
    pid_t pid = fork();

    if (pid == 0) {
        if (ledger_claim_exports(arena.path, &o) < 0)
            _exit(1);
        ledger_note_descriptors(&o);
        _exit(ledger_reserve(&o, 0, REMAINS, 0) == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

/* A process that dies and leaves something for do_reclaim. */
static void leave_remains(void) {
    struct ledger_owner o;
    pid_t pid = fork();

    if (pid == 0)
        _exit(ledger_claim(arena.path, &o) == 0 && ledger_reserve(&o, 0, REMAINS, 0) == 0 ? 0 : 1);
    CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

static pid_t start_traced(void (*operation)(struct ledger_owner *)) {
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        struct ledger_owner o;

        CHECK(ledger_claim(arena.path, &o) == 0, "claim");
        CHECK(ledger_reserve(&o, 0, OWN, 1000) == 0, "reserve");
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
        (void) raise(SIGSTOP);
        operation(&o);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the child did not stop: %x",
          status);
    return pid;
}

/* False when the operation was over before `steps` instructions. */
static bool advance(pid_t pid, int steps) {
    int status;

    for (int i = 0; i < steps; i++) {
        CHECK(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0, "PTRACE_SINGLESTEP");
        CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
        if (WIFEXITED(status))
            return false;
    }
    return true;
}

static void go_on(pid_t pid) {
    int status;

    CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0, "PTRACE_CONT");
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "it does not go on");
}

static bool walk(pid_t pid, int steps) {
    if (!advance(pid, steps))
        return false;
    (void) kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
    return true;
}

/* Wherever it was ended: what the peer has is booked or parked, and can be brought back. */
static void bring_back(void) {
    const struct ledger_cell *cell = &peer.file->slot[peer.slot].cell[0];

    ledger_settle(peer.file);
    if (cell->booked.lo == PEER_HOLDS - 1)
        return;
    CHECK(cell->booked.lo == 0 && cell->parked == PEER_HOLDS - 1, "parked memory is lost");
    CHECK(ledger_unpark(peer.file, peer.slot, 0, peer.generation, 1000) == 1, "unpark");
}

/* All that was exported and never credited, whole, is what a walk may leave beside the slots. */
static void credit_orphaned(void (*operation)(struct ledger_owner *)) {
    uint64_t orphaned;

    CHECK(ledger_get_orphaned(ledger, 0, &orphaned) == 0, "nothing moves");
    if (operation == do_collect)
        CHECK(orphaned == REMAINS, "%" PRIu64 " orphaned", orphaned);
    else if (operation == do_credit)
        CHECK(orphaned == 0 || orphaned == REMAINS, "%" PRIu64 " orphaned", orphaned);
    else
        CHECK(orphaned == 0 || (operation == do_orphan && orphaned == OWN), "%" PRIu64 " orphaned",
              orphaned);
    CHECK(ledger_credit(ledger, 0, orphaned) == 0, "credit");
}

static void check_books(void (*operation)(struct ledger_owner *), int steps) {
    if (steps & 1) { /* a peer goes on first and has to help the dead one's operation through */
        CHECK(ledger_reserve(&peer, 0, 1, 0) == 0, "a peer cannot go on");
        CHECK(ledger_refund(&peer, 0, 1) == 0, "a peer cannot go on");
    }
    bring_back();
    CHECK(ledger_sweep(ledger) >= 0, "sweep");
    CHECK(!ledger_borrowed(&peer_exports), "a dead process borrows");
    credit_orphaned(operation);
    audit(peer.file, 0, PEER_HOLDS);
}

static void walk_all(const char *name, void (*operation)(struct ledger_owner *), int stride) {
    int steps = 0;

    for (bool more = true; more; steps += stride) {
        pid_t pid;

        if (operation == do_reclaim)
            leave_remains();
        if (operation == do_collect || operation == do_credit)
            leave_exports();
        if (operation == do_credit)
            CHECK(ledger_sweep(ledger) == 1, "nothing was orphaned");
        pid = start_traced(operation);
        more = walk(pid, steps);
        check_books(operation, steps);
    }
    CHECK(steps > 20, "%s was over after %d instructions: nothing was tested", name, steps);
    (void) printf("%-8s killed at %d places, drift 0\n", name, steps / stride);
}

/* A process is halted at each instruction of a reservation, and goes on after a peer has raised the
 * peak: by `more` bytes over what the process will write or, with 0, to one byte below. The peak is
 * the most that the sum has had, whatever was between its read and its write. */
static void walk_peaks(const char *name, uint64_t more) {
    struct ledger_device *device = &peer.file->device[0];
    int steps = 0;

    for (bool halted = true; halted; steps++) {
        uint64_t most;
        pid_t pid;

        device->peak = 0;
        pid = start_traced(do_reserve);
        halted = advance(pid, steps);
        most = device->sum.lo + (more ? more - 1 : 0);
        CHECK(ledger_refund(&peer, 0, 2) == 0, "a peer cannot go on");
        CHECK(ledger_reserve(&peer, 0, 1 + more, 0) == 0, "a peer cannot go on");
        CHECK(ledger_refund(&peer, 0, more) == 0, "a peer cannot go on");
        if (halted)
            go_on(pid);
        if (most < device->sum.lo)
            most = device->sum.lo;
        CHECK(device->peak == most, "%s: peak %" PRIu64 " of %" PRIu64, name, device->peak, most);
        CHECK(ledger_reserve(&peer, 0, 1, 0) == 0, "a peer cannot go on");
        CHECK(ledger_sweep(ledger) >= 0, "sweep");
        audit(peer.file, 0, PEER_HOLDS);
    }
    CHECK(steps > 20, "%s was over after %d instructions: nothing was tested", name, steps);
    (void) printf("%-8s halted at %d places, peak exact\n", name, steps);
}

int main(void) {
    struct err err;

    arena_make(&arena);
    CHECK(ledger_claim(arena.path, &peer) == 0, "claim");
    CHECK(ledger_claim_exports(arena.path, &peer_exports) == 0, "claim");
    CHECK(ledger_reserve(&peer, 0, PEER_HOLDS - 1, 1000) == 0, "reserve");
    CHECK(ledger_reserve(&peer_exports, 0, 1, 1000) == 0, "reserve");
    CHECK(ledger_open(arena.path, &ledger, &err) == 0, "%s", err.text);
    walk_all("reserve", do_reserve, 1);
    walk_all("refund", do_refund, 1);
    walk_all("export", do_export, 97);
    walk_all("borrow", do_borrow, 17);
    walk_all("park", do_park, 1);
    walk_all("refuse", do_refuse, 53);
    walk_all("reclaim", do_reclaim, 1);
    walk_all("orphan", do_orphan, 1);
    walk_all("collect", do_collect, 53);
    walk_all("credit", do_credit, 1);
    walk_peaks("lower", 0);
    walk_peaks("higher", 500);
    ledger_free(ledger);
    ledger_release(&peer_exports);
    ledger_release(&peer);
    arena_remove(&arena);
    return 0;
}
