/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long a sleeper goes without looking whether the daemon still lives. */
static const struct timespec patience = {.tv_nsec = 250000000};

static struct sim_ring *ring;
static int bell = -1;
static uint32_t tail;
static uint64_t submitted[SIM_QUEUES];
static int device_of[SIM_QUEUES]; /* of the last entry */

CUresult ring_open(void) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    (void) pthread_mutex_lock(&once);
    if (!ring) {
        struct client_answer a = {.list = NULL};
        int r = client_call(&cuda_client, SIM_QUEUE, 0, 0, &a);
        void *map = r == 0
                        ? mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED, a.fds[0], 0)
                        : MAP_FAILED;
        if (a.fds[0] >= 0)
            (void) close(a.fds[0]);
        if (map != MAP_FAILED) {
            (void) madvise(map, sizeof(*ring), MADV_DONTFORK);
            ring = map;
            bell = a.fds[1];
        } else {
            result = r < 0 ? cuda_from_errno(r) : CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    (void) pthread_mutex_unlock(&once);
    return result;
}

CUresult ring_broken(int device) {
    return ring ? (CUresult) atomic_load(&ring->broken[cuda_device[device].minor]) : CUDA_SUCCESS;
}

uint16_t ring_queue(void) {
    static uint16_t next;
    return next++ % SIM_QUEUES;
}

static void ring_the_bell(void) {
    uint64_t one = 1;
    int saved = errno;
    if (write(bell, &one, sizeof(one)) < 0)
        errno = saved; /* full: it rings already */
}

bool ring_is_lost(void) {
    return atomic_load(&ring->lost) || client_is_lost(&cuda_client);
}

static void futex_wait_for(void *word, uint32_t seen, const struct timespec *time) {
    int saved = errno;
    (void) syscall(SYS_futex, word, FUTEX_WAIT, seen, time, NULL, 0);
    errno = saved;
}

static void futex_wait(void *word, uint32_t seen) {
    futex_wait_for(word, seen, &patience);
}

static bool wait_for_room(void) {
    for (;;) {
        uint32_t head = atomic_load(&ring->head);
        if (tail - head < SIM_RING_SIZE)
            return true;
        if (ring_is_lost())
            return false;
        atomic_store(&ring->room_wanted, 1);
        if (atomic_load(&ring->head) != head)
            continue;
        if (atomic_load(&ring->need_bell))
            ring_the_bell();
        futex_wait((void *) (uintptr_t) &ring->head, head);
    }
}

static uint64_t clock_now(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec;
}

/* Publishes the entries up to `tail` to the daemon. */
static void publish_entry(uint16_t queue) {
    atomic_store(&ring->tail, tail);
    /* While the queue has work, the daemon reads the ring again before the queue is empty. */
    if (atomic_load(&ring->need_bell) && atomic_load(&ring->queue[queue].done) == submitted[queue])
        ring_the_bell();
}

uint64_t ring_put(enum sim_work kind, int device, uint16_t queue, uint32_t slot, uint64_t a) {
    if (!wait_for_room())
        return 0;
    device_of[queue] = device;
    ring->entries[tail++ % SIM_RING_SIZE] = (struct sim_entry){
        .kind = (uint8_t) kind,
        .minor = (uint8_t) cuda_device[device].minor,
        .queue = queue,
        .slot = slot,
        .a = a,
        .time = clock_now(),
    };
    publish_entry(queue);
    return ++submitted[queue];
}

uint64_t ring_put_kernels(int device, uint16_t queue, const uint64_t *ns, size_t n) {
    struct sim_entry e = {.kind = SIM_KERNEL,
                          .minor = (uint8_t) cuda_device[device].minor,
                          .queue = queue,
                          .time = clock_now()};
    device_of[queue] = device;
    for (size_t i = 0; i < n;) {
        if (!wait_for_room())
            return 0;
        uint32_t room = SIM_RING_SIZE - (tail - atomic_load(&ring->head));
        size_t end = n - i < room ? n : i + room;
        uint64_t count = end - i;
        for (; i < end; i++) {
            e.a = ns[i];
            ring->entries[tail++ % SIM_RING_SIZE] = e;
        }
        publish_entry(queue);
        submitted[queue] += count;
    }
    return submitted[queue];
}

bool ring_is_done(uint16_t queue, uint64_t seq) {
    return atomic_load(&ring->queue[queue].done) >= seq;
}

CUresult ring_wait_word(_Atomic uint64_t *word, uint64_t n, _Atomic uint32_t *waiters) {
    for (;;) {
        uint64_t now = atomic_load(word);
        if (now >= n)
            return CUDA_SUCCESS;
        if (ring_is_lost())
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
        atomic_store(waiters, 1);
        if (atomic_load(word) == now)
            futex_wait((void *) (uintptr_t) word, (uint32_t) now);
    }
}

CUresult ring_wait(uint16_t queue, uint64_t seq) {
    CUresult r = ring_wait_word(&ring->queue[queue].done, seq, &ring->queue[queue].waiters);
    return r == CUDA_SUCCESS ? ring_broken(device_of[queue]) : r;
}

void ring_poll(uint16_t queue, uint64_t seq, uint32_t ns) {
    const struct timespec time = {.tv_nsec = ns};
    uint64_t done = atomic_load(&ring->queue[queue].done);
    if (done >= seq) { /* something else is missing */
        (void) nanosleep(&time, NULL);
        return;
    }
    atomic_store(&ring->queue[queue].waiters, 1);
    if (atomic_load(&ring->queue[queue].done) == done)
        futex_wait_for((void *) (uintptr_t) &ring->queue[queue].done, (uint32_t) done, &time);
}

void ring_release(uint16_t queue) {
    atomic_fetch_add(&ring->queue[queue].released, 1);
    ring_the_bell();
}

uint64_t ring_mark(uint32_t slot) {
    return atomic_load(&ring->marks[slot]);
}
