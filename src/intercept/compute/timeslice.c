/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/timeslice.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "intercept/resolve/elf.h"
#include "intercept/session/lock.h"

#define ESCAPE_TYPE 'F'
#define ESCAPE_FREE 0x29
#define ESCAPE_CONTROL 0x2a
#define ESCAPE_ALLOC 0x2b

#define CLASS_CHANNEL_GROUP 0xa06c
#define CONTROL_SET_SLICE 0xa06c0103
#define CONTROL_GET_SLICE 0xa06c0104

/* In this time every context runs once on a card of which all is shared out. */
#define ROUND_US 10000
#define SLICE_MIN_US 250

#define GROUPS_MAX 128

/* The first members of the parameters of an allocation, the same in all versions. */
struct alloc {
    uint32_t client, parent, object, class;
};

struct release {
    uint32_t client, parent, object, status;
};

struct control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t size, status;
};

struct group {
    int fd;
    uint32_t client, object;
    uint32_t slice; /* as it was set; 0: not yet */
};

static struct {
    const struct limits_file *limits;
    uint32_t ndevices;
    timeslice_ioctl_fn *real;
    pid_t owner; /* a forked child has no context, and the lock may stay held in it */
    struct lock lock;
    struct group group[GROUPS_MAX];
    uint32_t groups;
    bool refused; /* the driver has no support for it */
} slices;

uint32_t timeslice_of(const struct limits_file *limits, uint32_t ndevices) {
    uint32_t percent = ndevices ? limits_core(limits, 0) : 0, slice;

    for (uint32_t i = 0; i < ndevices; i++)
        if (!(limits_options(limits, i) & LIMITS_HARDWARE_SLICES) ||
            limits_core(limits, i) != percent)
            return 0;
    slice = percent < 100 ? ROUND_US / 100 * percent : ROUND_US;
    return percent == 0 ? 0 : slice < SLICE_MIN_US ? SLICE_MIN_US : slice;
}

static unsigned long escape(unsigned int number, size_t size) {
    return 3UL << 30 | (unsigned long) size << 16 | (unsigned long) ESCAPE_TYPE << 8 | number;
}

/* False when the driver refuses. */
static bool control(timeslice_ioctl_fn *real, const struct group *group, uint32_t command,
                    uint64_t *microseconds) {
    struct control call = {.client = group->client,
                           .object = group->object,
                           .command = command,
                           .parameters = (uint64_t) (uintptr_t) microseconds,
                           .size = sizeof(*microseconds)};

    return real(group->fd, escape(ESCAPE_CONTROL, sizeof(call)), &call) == 0 && call.status == 0;
}

/* Sets the slice and reads it back. */
static bool set_slice(timeslice_ioctl_fn *real, struct group *group, uint32_t slice) {
    uint64_t microseconds = slice;

    if (!control(real, group, CONTROL_SET_SLICE, &microseconds))
        return false;
    microseconds = 0;
    group->slice = slice;
    return control(real, group, CONTROL_GET_SLICE, &microseconds) && microseconds == slice;
}

static void forget_groups(uint32_t client, uint32_t object) {
    for (uint32_t i = 0; i < slices.groups;) {
        const struct group *g = &slices.group[i];

        /* With a client go all its objects. */
        if (g->client == client && (g->object == object || client == object))
            slices.group[i] = slices.group[--slices.groups];
        else
            i++;
    }
}

/* The driver refuses groups that ended with their device or with their client's file, and all
 * groups where it has no support: only the refusal of a new group shows the latter. */
static void set_slices(timeslice_ioctl_fn *real, uint32_t slice, bool with_new) {
    for (uint32_t i = slices.groups; i-- > 0;) {
        if (slices.group[i].slice == slice || set_slice(real, &slices.group[i], slice))
            continue;
        if (with_new && i == slices.groups - 1)
            slices.refused = true;
        slices.group[i] = slices.group[--slices.groups];
        with_new = false;
    }
}

static bool remember_group(int fd, const struct alloc *alloc) {
    if (alloc->class != CLASS_CHANNEL_GROUP || slices.groups == GROUPS_MAX)
        return false;
    slices.group[slices.groups++] =
        (struct group){.fd = fd, .client = alloc->client, .object = alloc->object};
    return true;
}

static void follow_ioctl(timeslice_ioctl_fn *real, uint32_t slice, int fd, unsigned long request,
                         const void *argument) {
    size_t size = request >> 16 & 0x3fff;
    bool with_new = false;

    if ((request >> 8 & 0xff) != ESCAPE_TYPE || !argument)
        return;
    lock_take(&slices.lock);
    if ((request & 0xff) == ESCAPE_ALLOC && size >= sizeof(struct alloc)) {
        with_new = remember_group(fd, argument);
    } else if ((request & 0xff) == ESCAPE_FREE && size >= sizeof(struct release)) {
        const struct release *release = argument;

        forget_groups(release->client, release->object);
    }
    if (slice && !slices.refused)
        set_slices(real, slice, with_new);
    lock_drop(&slices.lock);
}

int timeslice_step(timeslice_ioctl_fn *real, uint32_t slice, int fd, unsigned long request,
                   void *argument) {
    int r = real(fd, request, argument), before = errno;

    if (r == 0)
        follow_ioctl(real, slice, fd, request, argument);
    errno = before;
    return r;
}

/* Replaces the driver's ioctl, which it always calls with one argument. */
static int ioctl_of_driver(int fd, unsigned long request, void *argument) {
    if (getpid() != slices.owner)
        return slices.real(fd, request, argument);
    return timeslice_step(slices.real, timeslice_of(slices.limits, slices.ndevices), fd, request,
                          argument);
}

void timeslice_begin(const struct limits_file *limits, uint32_t ndevices) {
    static uint32_t begun;
    uint32_t not_yet = 0;

    if (!limits || timeslice_of(limits, ndevices) == 0)
        return;
    if (!__atomic_compare_exchange_n(&begun, &not_yet, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    /* What the loader has bound the driver's import to, or will: the first definition. */
    slices.real = (timeslice_ioctl_fn *) elf_definition_after(NULL, "ioctl");
    slices.limits = limits;
    slices.ndevices = ndevices;
    slices.owner = getpid();
    if (slices.real)
        elf_replace_import(ELF_CUDA, "ioctl", (void *) ioctl_of_driver);
}
