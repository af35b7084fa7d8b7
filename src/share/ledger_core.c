/* SPDX-License-Identifier: Apache-2.0 */
#include "share/ledger_core.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "share/cas128.h"
#include "share/io_core.h"

/* The record of an operation: kind 2 bits, slot 14 bits, sequence 48 bits. A slot's word has the
 * generation where the record has kind and slot. Sequences go on across owners, so no record ever
 * comes twice. */
#define SEQUENCE_BITS 48
#define SEQUENCE_MASK ((UINT64_C(1) << SEQUENCE_BITS) - 1)
#define KIND_RECLAIM (UINT64_C(1) << 63) /* the slot has nothing any more */
#define KIND_UNPARK (UINT64_C(1) << 62)  /* it has what was parked again */

/* Every failed swap means that another process succeeded, so this is never reached; it only keeps a
 * ledger that its tenant is scribbling on from holding anyone up. */
#define TRIES_MAX (1 << 20)

static uint32_t record_slot(uint64_t record) {
    return (uint32_t) (record >> SEQUENCE_BITS) & 0x3fff;
}

static uint64_t record_next(uint64_t kind, uint32_t slot, uint64_t done) {
    return kind | (uint64_t) slot << SEQUENCE_BITS | ((done + 1) & SEQUENCE_MASK);
}

static uint16_t word_generation(struct ledger_word word) {
    return (uint16_t) (word.hi >> SEQUENCE_BITS);
}

/* For tests of the books themselves, which have no damaged ledger. */
#ifdef LEDGER_CHECKED
#define BOOKS_MUST(condition) ((condition) ? (void) 0 : __builtin_trap())
#else
#define BOOKS_MUST(condition) ((void) (condition))
#endif

/* Only a damaged ledger has sums that would wrap; they saturate instead, so that it does not look
 * empty. */
static uint64_t add_delta(uint64_t sum, int64_t delta) {
    uint64_t less = -(uint64_t) delta, result;

    if (delta < 0)
        return sum > less ? sum - less : 0;
    return __builtin_add_overflow(sum, (uint64_t) delta, &result) ? UINT64_MAX : result;
}

/* What a slot has booked after the recorded operation. */
static uint64_t booked_after(const struct ledger_cell *cell, uint64_t booked, uint64_t record) {
    uint64_t sum;

    if (record & KIND_RECLAIM)
        return 0;
    /* The delta may be that of a later operation. Its owner writes it only after this operation has
     * changed the slot's word, so the swap with the wrong sum fails. */
    if (!(record & KIND_UNPARK))
        return add_delta(booked, __atomic_load_n(&cell->delta, __ATOMIC_ACQUIRE));
    return __builtin_add_overflow(booked, __atomic_load_n(&cell->parked, __ATOMIC_ACQUIRE), &sum)
               ? UINT64_MAX
               : sum;
}

/* Carries out the recorded operation in its slot, whose word was `old` before it, unless that has
 * been done meanwhile. */
static void enter(struct ledger_cell *cell, struct ledger_word old, uint64_t record) {
    struct ledger_word new = {.lo = booked_after(cell, old.lo, record),
                              .hi = (old.hi & ~SEQUENCE_MASK) | (record & SEQUENCE_MASK)};

    (void) word_swap(&cell->booked, &old, new);
}

/* The same for the operation that was recorded last, by any process. */
static void help(struct ledger_file *file, unsigned int device, uint64_t record) {
    uint32_t slot = record_slot(record);
    struct ledger_cell *cell;
    struct ledger_word old;

    if ((record & SEQUENCE_MASK) == 0 || slot >= LEDGER_SLOTS)
        return;
    cell = &file->slot[slot].cell[device];
    old = word_load(&cell->booked);
    if (((old.hi + 1) & SEQUENCE_MASK) == (record & SEQUENCE_MASK))
        enter(cell, old, record);
}

/* Without a limit, what can be counted fits. */
static bool fits(uint64_t used, uint64_t bytes, uint64_t limit) {
    uint64_t most = limit ? limit : UINT64_MAX;

    return bytes <= most && used <= most - bytes;
}

/* Of a refund, what the slot has: more it cannot give back. */
static int64_t bounded_delta(int64_t delta, uint64_t booked) {
    return delta < 0 && -(uint64_t) delta > booked ? -(int64_t) booked : delta;
}

static void note_peak(struct ledger_device *device, uint64_t used) {
    uint64_t peak = __atomic_load_n(&device->peak, __ATOMIC_RELAXED);

    while (used > peak && !__atomic_compare_exchange_n(&device->peak, &peak, used, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Changes what the slot has, and the sum with it but for what is orphaned. */
static int apply(const struct ledger_owner *owner, unsigned int device, int64_t delta,
                 uint64_t limit, bool orphan) {
    struct ledger_file *file = owner->file;
    struct ledger_cell *cell = &file->slot[owner->slot].cell[device];
    struct ledger_word *sum = &file->device[device].sum;

    __atomic_store_n(&cell->delta, delta, __ATOMIC_RELEASE);
    for (int i = 0; i < TRIES_MAX; i++) {
        struct ledger_word old = word_load(sum), new, mine;

        help(file, device, old.hi);
        mine = word_load(&cell->booked);
        if (word_generation(mine) != owner->generation)
            return -ESTALE;
        if (delta > 0 && !fits(old.lo, (uint64_t) delta, limit))
            return -ENOMEM;
        new.lo = orphan ? old.lo : add_delta(old.lo, bounded_delta(delta, mine.lo));
        new.hi = record_next(0, owner->slot, mine.hi & SEQUENCE_MASK);
        if (word_swap(sum, &old, new)) {
            BOOKS_MUST(orphan || new.lo == old.lo + (uint64_t) delta);
            enter(cell, mine, new.hi);
            note_peak(&file->device[device], new.lo);
            return 0;
        }
    }
    return -EBADMSG;
}

/* On the way to a refusal, when system calls no longer matter. */
static void reclaim_before_refusal(const struct ledger_owner *owner) {
    int saved = errno, fd = io_open(owner->path, O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        (void) ledger_reclaim_dead(owner->file, fd, owner->slot);
        io_close(fd);
    }
    errno = saved;
}

int ledger_reserve(const struct ledger_owner *owner, unsigned int device, uint64_t bytes,
                   uint64_t limit) {
    int r = -ENOMEM;

    if (bytes <= INT64_MAX) {
        r = apply(owner, device, (int64_t) bytes, limit, false);
        if (__builtin_expect(r != -ENOMEM, 1))
            return r;
        reclaim_before_refusal(owner);
        r = apply(owner, device, (int64_t) bytes, limit, false);
    }
    if (r == -ENOMEM)
        (void) __atomic_fetch_add(&owner->file->device[device].refused, 1, __ATOMIC_RELAXED);
    return r;
}

int ledger_refund(const struct ledger_owner *owner, unsigned int device, uint64_t bytes) {
    return bytes > INT64_MAX ? -EBADMSG : apply(owner, device, -(int64_t) bytes, 0, false);
}

int ledger_orphan(const struct ledger_owner *owner, unsigned int device, uint64_t bytes) {
    return bytes > INT64_MAX ? -EBADMSG : apply(owner, device, -(int64_t) bytes, 0, true);
}

uint64_t ledger_used(const struct ledger_file *file, unsigned int device) {
    return __atomic_load_n(&file->device[device].sum.lo, __ATOMIC_RELAXED);
}

/* The least that a mapping takes. */
#define PAGE_BYTES 4096

static struct flock byte_lock(short type, uint32_t byte) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

/* Whether another process holds a lock on the byte. */
static bool byte_locked(int fd, uint32_t byte) {
    struct flock lock = byte_lock(F_WRLCK, byte);

    /* An error is no reason to take memory from a process. */
    return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

static uint32_t loan_byte(uint32_t slot) {
    return LEDGER_SLOTS + slot;
}

#define PARKED_BYTE (2 * LEDGER_SLOTS)

bool ledger_slot_alive(int fd, uint32_t slot) {
    return byte_locked(fd, slot);
}

/* Takes all that a slot has on a device out of it, and out of the sum but for what is orphaned. */
static uint64_t empty(struct ledger_file *file, uint32_t slot, unsigned int device,
                      uint16_t generation, bool orphan) {
    struct ledger_cell *cell = &file->slot[slot].cell[device];
    struct ledger_word *sum = &file->device[device].sum;

    for (int i = 0; i < TRIES_MAX; i++) {
        struct ledger_word old = word_load(sum), new, theirs;

        help(file, device, old.hi);
        theirs = word_load(&cell->booked);
        if (word_generation(theirs) != generation || theirs.lo == 0)
            return 0;
        new.lo = orphan ? old.lo : old.lo > theirs.lo ? old.lo - theirs.lo : 0;
        new.hi = record_next(KIND_RECLAIM, slot, theirs.hi & SEQUENCE_MASK);
        if (word_swap(sum, &old, new)) {
            BOOKS_MUST(orphan || new.lo + theirs.lo == old.lo);
            enter(cell, theirs, new.hi);
            return theirs.lo;
        }
    }
    return 0;
}

uint64_t ledger_reclaim(struct ledger_file *file, uint32_t slot, unsigned int device,
                        uint16_t generation) {
    return empty(file, slot, device, generation, false);
}

/* Whether what a dead owner had is orphaned. */
static bool by_descriptor(const struct ledger_file *file, uint32_t slot) {
    return __atomic_load_n(&file->slot[slot].flags, __ATOMIC_ACQUIRE) & LEDGER_DESCRIPTORS;
}

void ledger_note_descriptors(const struct ledger_owner *exports) {
    (void) __atomic_fetch_or(&exports->file->slot[exports->slot].flags, LEDGER_DESCRIPTORS,
                             __ATOMIC_ACQ_REL);
}

uint16_t ledger_generation(const struct ledger_file *file, uint32_t slot) {
    return (uint16_t) (__atomic_load_n(&file->slot[slot].cell[0].booked.hi, __ATOMIC_ACQUIRE) >>
                       SEQUENCE_BITS);
}

void ledger_park(struct ledger_file *file, uint32_t slot, unsigned int device) {
    struct ledger_cell *cell = &file->slot[slot].cell[device];
    struct ledger_word word = word_load(&cell->booked);
    uint64_t credited;

    /* Noted first: it must not be lost if the process dies between the two. */
    __atomic_store_n(&cell->parked, word.lo, __ATOMIC_RELEASE);
    credited = ledger_reclaim(file, slot, device, word_generation(word));
    __atomic_store_n(&cell->parked, credited, __ATOMIC_RELEASE);
}

int ledger_unpark(struct ledger_file *file, uint32_t slot, unsigned int device, uint16_t generation,
                  uint64_t limit) {
    struct ledger_cell *cell = &file->slot[slot].cell[device];
    uint64_t parked = __atomic_load_n(&cell->parked, __ATOMIC_ACQUIRE);

    for (int i = 0; parked > 0 && i < TRIES_MAX; i++) {
        struct ledger_word *sum = &file->device[device].sum, old = word_load(sum), new, theirs;

        help(file, device, old.hi);
        theirs = word_load(&cell->booked);
        if (word_generation(theirs) != generation)
            return -ESTALE;
        if (!fits(old.lo, parked, limit))
            return -ENOMEM;
        new.lo = old.lo + parked;
        new.hi = record_next(KIND_UNPARK, slot, theirs.hi & SEQUENCE_MASK);
        if (!word_swap(sum, &old, new))
            continue;
        enter(cell, theirs, new.hi);
        __atomic_store_n(&cell->parked, 0, __ATOMIC_RELEASE);
        note_peak(&file->device[device], new.lo);
        return 1;
    }
    return parked == 0 ? 0 : -EBADMSG;
}

int ledger_lock_parked(const char *path) {
    struct flock lock = byte_lock(F_WRLCK, PARKED_BYTE);
    int fd = io_open(path, O_RDWR | O_CLOEXEC), r;

    if (fd < 0)
        return -errno;
    do
        r = io_lock_wait(fd, &lock);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return fd;
    r = -errno;
    io_close(fd);
    return r;
}

/* Closing alone does not unlock: a child that was forked meanwhile has the descriptor, too. */
void ledger_unlock_parked(int lock) {
    struct flock unlock = byte_lock(F_UNLCK, PARKED_BYTE);

    (void) io_lock_wait(lock, &unlock);
    io_close(lock);
}

bool ledger_reclaim_if_dead(struct ledger_file *file, int fd, uint32_t slot) {
    uint16_t generation[LEDGER_DEVICES];
    bool booked = false, orphan;
    uint64_t moved = 0;

    for (unsigned int d = 0; d < LEDGER_DEVICES; d++) {
        const struct ledger_word *word = &file->slot[slot].cell[d].booked;

        generation[d] = (uint16_t) (__atomic_load_n(&word->hi, __ATOMIC_ACQUIRE) >> SEQUENCE_BITS);
        booked |= __atomic_load_n(&word->lo, __ATOMIC_ACQUIRE) != 0;
    }
    if (!booked || byte_locked(fd, slot) || byte_locked(fd, loan_byte(slot)))
        return false;
    orphan = by_descriptor(file, slot);
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++)
        moved += empty(file, slot, d, generation[d], orphan);
    return moved > 0;
}

static uint32_t slots_used(const struct ledger_file *file) {
    uint32_t n = __atomic_load_n(&file->slots_used, __ATOMIC_ACQUIRE);

    return n < LEDGER_SLOTS ? n : LEDGER_SLOTS;
}

void ledger_settle(struct ledger_file *file) {
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++)
        help(file, d, __atomic_load_n(&file->device[d].sum.hi, __ATOMIC_ACQUIRE));
}

int ledger_reclaim_dead(struct ledger_file *file, int fd, uint32_t own) {
    uint32_t n = slots_used(file);
    int found = 0;

    ledger_settle(file);
    for (uint32_t slot = 0; slot < n; slot++)
        if (slot != own && ledger_reclaim_if_dead(file, fd, slot))
            found++;
    return found;
}

/* How often a sum is read again that moves while the slots are added up. */
#define READS_MAX 16

int ledger_read_orphaned(struct ledger_file *file, unsigned int device, uint64_t *ret) {
    for (int i = 0; i < READS_MAX; i++) {
        struct ledger_word before = word_load(&file->device[device].sum), after;
        uint32_t n = slots_used(file);
        uint64_t rest = before.lo;

        help(file, device, before.hi);
        for (uint32_t slot = 0; slot < n; slot++) {
            uint64_t booked =
                __atomic_load_n(&file->slot[slot].cell[device].booked.lo, __ATOMIC_ACQUIRE);

            rest = rest > booked ? rest - booked : 0;
        }
        after = word_load(&file->device[device].sum);
        if (after.hi == before.hi && after.lo == before.lo) {
            *ret = rest;
            return 0;
        }
    }
    return -EAGAIN;
}

/* Its record names no slot, so that nothing is carried out for it, and a number of its own, so that
 * no swap takes this sum for an earlier one. */
static void change_orphaned(struct ledger_file *file, unsigned int device, int64_t delta) {
    struct ledger_word *sum = &file->device[device].sum;
    uint64_t number = __atomic_fetch_add(&file->device[device].credits, 1, __ATOMIC_ACQ_REL);

    for (int i = 0; delta != 0 && i < TRIES_MAX; i++) {
        struct ledger_word old = word_load(sum), new;

        help(file, device, old.hi);
        new.lo = add_delta(old.lo, delta);
        new.hi = record_next(0, LEDGER_SLOTS, number);
        if (!word_swap(sum, &old, new))
            continue;
        /* 0 stays: a library that does not keep it may have had more. */
        if (__atomic_load_n(&file->device[device].peak, __ATOMIC_RELAXED) != 0)
            note_peak(&file->device[device], new.lo);
        return;
    }
}

void ledger_credit_orphaned(struct ledger_file *file, unsigned int device, uint64_t bytes) {
    change_orphaned(file, device, bytes > INT64_MAX ? INT64_MIN : -(int64_t) bytes);
}

void ledger_add_orphaned(struct ledger_file *file, unsigned int device, uint64_t bytes) {
    change_orphaned(file, device, bytes > INT64_MAX ? INT64_MAX : (int64_t) bytes);
}

/* Takes over a slot whose byte has just been locked: the bookings of its last owner are credited or
 * orphaned. The new generation stops a process that found the owner dead earlier and credits only
 * now. */
static void slot_take(struct ledger_owner *owner, uint32_t flags) {
    struct ledger_slot *slot = &owner->file->slot[owner->slot];
    bool orphan = by_descriptor(owner->file, owner->slot);

    owner->generation = (uint16_t) (word_generation(word_load(&slot->cell[0].booked)) + 1);
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++) {
        struct ledger_word old = word_load(&slot->cell[d].booked), new;

        do {
            (void) empty(owner->file, owner->slot, d, word_generation(old), orphan);
            old = word_load(&slot->cell[d].booked);
            __atomic_store_n(&slot->cell[d].parked, 0, __ATOMIC_RELAXED);
            new.lo = 0;
            new.hi = (uint64_t) owner->generation << SEQUENCE_BITS | (old.hi & SEQUENCE_MASK);
        } while (old.lo != 0 || !word_swap(&slot->cell[d].booked, &old, new));
    }
    __atomic_store_n(&slot->pid, (uint32_t) getpid(), __ATOMIC_RELAXED);
    __atomic_store_n(&slot->pidns, ledger_pidns(), __ATOMIC_RELAXED);
    __atomic_store_n(&slot->flags, flags, __ATOMIC_RELEASE);
}

static void note_slot_used(struct ledger_file *file, uint32_t slot) {
    uint32_t used = slots_used(file);

    while (used <= slot && !__atomic_compare_exchange_n(&file->slots_used, &used, slot + 1, false,
                                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
}

/* 0: the slot is free and now locked. */
static int slot_lock(int fd, uint32_t slot) {
    struct flock lock = byte_lock(F_WRLCK, slot);

    if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
        return errno == EACCES ? -EAGAIN : -errno;
    if (!byte_locked(fd, loan_byte(slot)))
        return 0;
    lock = byte_lock(F_UNLCK, slot);
    (void) fcntl(fd, F_OFD_SETLK, &lock);
    return -EAGAIN;
}

/* Makes sure that there is memory behind the slot, where the file system has no more: a write into
 * the mapping would end the process. */
static int slot_back(int fd, uint32_t slot) {
    off_t at = (off_t) (offsetof(struct ledger_file, slot) + slot * sizeof(struct ledger_slot));

    if (io_fallocate(fd, at, sizeof(struct ledger_slot)) < 0 && errno == ENOSPC)
        return -ENOSPC;
    return 0;
}

static int slot_claim(struct ledger_owner *owner, uint32_t flags, int fd) {
    for (uint32_t i = 0; i < LEDGER_SLOTS; i++) {
        int r = slot_lock(fd, i);

        if (r == 0)
            r = slot_back(fd, i);
        if (r == 0) {
            note_slot_used(owner->file, i);
            owner->slot = i;
            slot_take(owner, flags);
            return 0;
        }
        if (r != -EAGAIN)
            return r;
    }
    return -EUSERS;
}

static bool header_valid(const struct ledger_file *file) {
    return file->magic == LEDGER_MAGIC && file->version == LEDGER_VERSION &&
           file->devices == LEDGER_DEVICES && file->slots == LEDGER_SLOTS;
}

/* Not fstat for the size, which no symbol of an old C library answers to. */
static int map_file(int fd, int protection, struct ledger_file **ret) {
    struct ledger_file *file;

    if (lseek(fd, 0, SEEK_END) != (off_t) sizeof(*file))
        return -EBADMSG;
    file = mmap(NULL, sizeof(*file), protection, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return -errno;
    if (!header_valid(file)) {
        (void) munmap(file, sizeof(*file));
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

/* Descriptors that a program is unlikely to use or to count on. */
#define HIGH_FD 800

static int move_high(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

    if (high < 0)
        return fd;
    io_close(fd);
    return high;
}

/* Closes the descriptor with which the slot was claimed, if its lock survives that. Otherwise
 * (overlayfs) claims again with one that stays. */
static int settle_lock(struct ledger_owner *owner, uint32_t flags, int fd) {
    int r;

    io_close(fd);
    fd = io_open(owner->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (ledger_slot_alive(fd, owner->slot)) {
        io_close(fd);
        return 0;
    }
    r = slot_claim(owner, flags, fd);
    if (r < 0) {
        io_close(fd);
        return r;
    }
    owner->fd = move_high(fd);
    return 0;
}

static int claim(const char *path, uint32_t flags, struct ledger_owner *ret) {
    struct ledger_owner owner = {.path = path, .fd = -1};
    int fd = io_open(path, O_RDWR | O_CLOEXEC), r;

    if (fd < 0)
        return -errno;
    r = map_file(fd, PROT_READ | PROT_WRITE, &owner.file);
    if (r == 0)
        r = slot_claim(&owner, flags, fd);
    if (r == 0)
        r = settle_lock(&owner, flags, fd);
    else
        io_close(fd);
    if (r == 0)
        *ret = owner;
    else
        ledger_release(&owner);
    return r;
}

int ledger_claim(const char *path, struct ledger_owner *ret) {
    return claim(path, 0, ret);
}

int ledger_claim_exports(const char *path, struct ledger_owner *ret) {
    return claim(path, LEDGER_EXPORTS, ret);
}

void ledger_release(struct ledger_owner *owner) {
    if (!owner->file)
        return;
    (void) munmap(owner->file, sizeof(*owner->file));
    if (owner->fd >= 0)
        io_close(owner->fd);
    owner->file = NULL;
}

int ledger_attach(const char *path, const struct ledger_file **ret) {
    struct ledger_file *file = NULL;
    int fd = io_open(path, O_RDONLY | O_CLOEXEC), r;

    if (fd < 0)
        return -errno;
    r = map_file(fd, PROT_READ, &file);
    io_close(fd);
    if (r == 0 && madvise(file, sizeof(*file), MADV_DONTFORK) < 0) {
        (void) munmap(file, sizeof(*file));
        r = -EBADMSG;
    }
    if (r == 0)
        *ret = file;
    return r;
}

/* The link reads "pid:[4026531836]". */
uint32_t ledger_pidns(void) {
    char link[32];
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    uint32_t number = 0;

    for (ssize_t i = 0; i < n; i++)
        if (link[i] >= '0' && link[i] <= '9')
            number = 10 * number + (uint32_t) (link[i] - '0');
    return number;
}

size_t ledger_living(const struct ledger_file *file, const char *path, uint32_t *ret_slots,
                     size_t max) {
    int fd = io_open(path, O_RDONLY | O_CLOEXEC);
    uint32_t n = slots_used(file);
    size_t found = 0;

    if (fd < 0)
        return 0;
    for (uint32_t slot = 0; slot < n && found < max; slot++)
        if (ledger_slot_alive(fd, slot))
            ret_slots[found++] = slot;
    io_close(fd);
    return found;
}

bool ledger_borrowed(const struct ledger_owner *exports) {
    int fd = io_open(exports->path, O_RDWR | O_CLOEXEC);
    bool borrowed = true;

    if (fd >= 0) {
        borrowed = byte_locked(fd, loan_byte(exports->slot));
        io_close(fd);
    }
    return borrowed;
}

/* Borrows from one slot, if there is still something to borrow when the lock is there: the owner of
 * the memory lives, or another process had borrowed it before it died. */
static bool borrow_from(const struct ledger_file *file, int fd, uint32_t slot) {
    struct flock lock = byte_lock(F_RDLCK, loan_byte(slot));

    if (!(__atomic_load_n(&file->slot[slot].flags, __ATOMIC_ACQUIRE) & LEDGER_EXPORTS))
        return false;
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
        return false;
    if (byte_locked(fd, slot) || byte_locked(fd, loan_byte(slot)))
        return true;
    lock = byte_lock(F_UNLCK, loan_byte(slot));
    (void) fcntl(fd, F_OFD_SETLK, &lock);
    return false;
}

int ledger_borrow(const struct ledger_owner *owner, const struct ledger_owner *exports,
                  struct ledger_loan *ret) {
    struct ledger_loan loan = {.fd = -1};
    int fd = io_open(owner->path, O_RDWR | O_CLOEXEC), found = 0;
    uint32_t n = slots_used(owner->file);

    if (fd < 0)
        return -errno;
    for (uint32_t slot = 0; slot < n; slot++)
        if (!exports || slot != exports->slot)
            found += borrow_from(owner->file, fd, slot);
    loan.page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (loan.page == MAP_FAILED) {
        io_close(fd);
        return -ENOMEM;
    }
    /* As with our own slot. */
    if (owner->fd >= 0)
        loan.fd = move_high(fd);
    else
        io_close(fd);
    *ret = loan;
    return found;
}

void ledger_return(struct ledger_loan *loan) {
    if (loan->page)
        (void) munmap(loan->page, PAGE_BYTES);
    if (loan->page && loan->fd >= 0)
        io_close(loan->fd);
    loan->page = NULL;
}
