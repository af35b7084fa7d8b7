/* SPDX-License-Identifier: Apache-2.0 */

/* cuInit, and the checks at the start of every call. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/cuda/managed.h"
#include "sim/cuda/ring.h"

pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
struct client cuda_client = CLIENT_INIT;
struct cuda_device cuda_device[SIM_MAX_GPUS];
int cuda_ndevices;

enum state { FRESH, READY, FORKED, HELD };

static _Atomic enum state state;
static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_cond = PTHREAD_COND_INITIALIZER;

/* A child of fork cannot use what its parent opened, but has its descriptors: until it ends or
 * executes another program, the memory stays. */
static void after_fork(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    cuda_lock = fresh;
    cuda_client.lock = fresh;
    client_forget(&cuda_client);
    state = FORKED;
}

/* Of a divided card, its first part; NULL when there is none. */
static const struct sim_page *usable_page(const struct sim_page *card) {
    if (!atomic_load(&card->mig))
        return atomic_load(&card->state) == SIM_LOST ? NULL : card;
    for (uint32_t i = 0; i < cuda_client.ndevices; i++) {
        const struct sim_page *page = cuda_client.device[i].page;
        if (page->compute_slices > 0 && page->parent == card->minor)
            return page;
    }
    return NULL;
}

static bool add_device(uint32_t i) {
    const struct sim_page *page = usable_page(cuda_client.device[i].page);
    if (!page)
        return true;
    for (int k = 0; k < cuda_ndevices; k++)
        if (cuda_device[k].page == page)
            return false;
    cuda_device[cuda_ndevices++] = (struct cuda_device){.page = page, .minor = page->minor};
    (void) client_do(&cuda_client, SIM_OPEN, page->parent, 0);
    return true;
}

/* "MIG-<UUID of the card>/<GPU instance>/<compute instance>", as drivers before 470 name a MIG
 * device and later ones still accept. */
static int find_by_instances(const char *name, size_t len) {
    char card[64];
    unsigned int gi, ci;
    int end = 0;
    if (sscanf(name, "MIG-%63[^/]/%u/%u%n", card, &gi, &ci, &end) != 3 || (size_t) end != len)
        return -1;
    for (uint32_t i = 0; i < cuda_client.ndevices; i++) {
        const struct sim_page *page = cuda_client.device[i].page;
        if (page->compute_slices == 0 || page->gpu_instance != gi || page->compute_instance != ci)
            continue;
        for (uint32_t k = 0; k < cuda_client.ndevices; k++)
            if (cuda_client.device[k].minor == page->parent &&
                strcasecmp(cuda_client.device[k].page->uuid, card) == 0)
                return (int) i;
    }
    return -1;
}

/* An index, or the beginning of a UUID that fits one device only. -1 when it names none. */
static int find_device(const char *name, size_t len, uint32_t ncards) {
    if (len == 0)
        return -1;
    if (memchr(name, '/', len))
        return find_by_instances(name, len);
    if (*name >= '0' && *name <= '9') {
        uint32_t index = 0;
        for (size_t i = 0; i < len; i++) {
            if (name[i] < '0' || name[i] > '9' || index > SIM_MAX_GPUS)
                return -1;
            index = index * 10 + (uint32_t) (name[i] - '0');
        }
        return index < ncards ? (int) index : -1;
    }
    int found = -1;
    for (uint32_t i = 0; len >= 5 && i < cuda_client.ndevices; i++) {
        if (strncasecmp(cuda_client.device[i].page->uuid, name, len) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int) i;
    }
    return found;
}

/* The parts of divided cards that the process can reach, behind the cards. */
static void add_parts(uint32_t ncards) {
    for (uint32_t i = 0; i < ncards; i++) {
        uint32_t minor = cuda_client.device[i].minor;
        struct sim_mig_entry list[SIM_GPU_INSTANCES_MAX * 8];
        struct client_answer a = {.list = list, .list_max = sizeof(list)};
        if (!atomic_load(&cuda_client.device[i].page->mig) ||
            client_mig(&cuda_client, minor, SIM_MIG_LIST, 0, 0, &a) < 0)
            continue;
        for (uint32_t k = 0; k < a.reply.count && k < SIM_GPU_INSTANCES_MAX * 8; k++) {
            if (list[k].ci == UINT32_MAX || cuda_client.ndevices == SIM_MAX_GPUS)
                continue;
            const struct sim_page *page = client_attach_part(&cuda_client, minor, list[k].unit, 0);
            if (page)
                cuda_client.device[cuda_client.ndevices++] =
                    (struct client_device){-1, -1, list[k].unit, page};
        }
    }
}

/* The devices up to the first that is not one; naming one twice hides all. */
static void choose_from(const char *list, uint32_t ncards) {
    while (*list) {
        size_t len = strcspn(list, ",");
        const char *name = list + strspn(list, " ");
        size_t name_len = len - (size_t) (name - list);
        while (name_len > 0 && name[name_len - 1] == ' ')
            name_len--;
        int i = find_device(name, name_len, ncards);
        if (i < 0)
            return;
        if (!add_device((uint32_t) i)) {
            cuda_ndevices = 0;
            return;
        }
        list += len + (list[len] == ',');
    }
}

/* A process uses one MIG device, the first, and beside it no whole card. */
static void choose_devices(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t ncards = cuda_client.ndevices;
    add_parts(ncards);
    cuda_ndevices = 0;
    if (list)
        choose_from(list, ncards);
    else
        for (uint32_t i = 0; i < cuda_client.ndevices; i++)
            if (!atomic_load(&cuda_client.device[i].page->mig))
                (void) add_device(i);
    for (int i = 0; i < cuda_ndevices; i++)
        if (cuda_device[i].page->compute_slices > 0) {
            cuda_device[0] = cuda_device[i];
            cuda_ndevices = 1;
        }
}

static CUresult connect_driver(void) {
    if (state == FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (state == READY || state == HELD)
        return CUDA_SUCCESS;
    if (client_open(&cuda_client) < 0)
        return CUDA_ERROR_NO_DEVICE;
    if (atomic_load(client_faults) > 0) {
        CUresult fault = (CUresult) client_fault(&cuda_client, "cuInit", CLIENT_NO_CARD);
        if (fault != CUDA_SUCCESS) {
            client_close(&cuda_client);
            return fault;
        }
    }
    choose_devices();
    if (cuda_ndevices == 0) {
        client_close(&cuda_client);
        return CUDA_ERROR_NO_DEVICE;
    }
    (void) pthread_atfork(NULL, NULL, after_fork);
    state = READY;
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = connect_driver();
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

/* With the lock. A program may call before cuInit, and before there are devices: then this reads
 * the machine, once. Without a machine it is the version of a library installed alone. */
static int reported_version(void) {
    static int alone;
    if (cuda_client.host)
        return (int) cuda_client.host->cuda;
    if (alone == 0) {
        struct client probe = CLIENT_INIT;
        alone = SIM_CUDA_VERSION;
        if (client_open(&probe) == 0) {
            alone = (int) probe.host->cuda;
            client_close(&probe);
        }
    }
    return alone;
}

CUresult cuDriverGetVersion(int *driver_version) {
    if (!driver_version)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&cuda_lock);
    *driver_version = reported_version();
    (void) pthread_mutex_unlock(&cuda_lock);
    return CUDA_SUCCESS;
}

void cuda_hold_calls(bool hold) {
    (void) pthread_mutex_lock(&hold_lock);
    state = hold ? HELD : READY;
    (void) pthread_cond_broadcast(&hold_cond);
    (void) pthread_mutex_unlock(&hold_lock);
}

static void wait_while_held(void) {
    (void) pthread_mutex_lock(&hold_lock);
    while (state == HELD)
        (void) pthread_cond_wait(&hold_cond, &hold_lock);
    (void) pthread_mutex_unlock(&hold_lock);
}

CUresult cuda_enter_locked(void) {
    return state == READY || state == HELD ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuda_enter(void) {
    if (state != READY) {
        if (state != HELD)
            return CUDA_ERROR_NOT_INITIALIZED;
        wait_while_held();
    }
    return cuda_client.lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult cuda_invalid(void) {
    CUresult r = cuda_enter();
    return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

uint32_t cuda_card_of(CUdevice dev) {
    return dev >= 0 && dev < cuda_ndevices ? cuda_device[dev].page->parent : CLIENT_NO_CARD;
}

uint32_t cuda_card(void) {
    CUcontext ctx = cuda_current();
    return cuda_context_alive(ctx) ? cuda_card_of(ctx->device) : CLIENT_NO_CARD;
}

CUresult cuda_enter_device(CUdevice dev) {
    CUDA_TRY(cuda_enter());
    return dev >= 0 && dev < cuda_ndevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuda_enter_context(CUcontext *ret) {
    CUDA_TRY(cuda_enter());
    CUcontext ctx = cuda_current();
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = ctx;
    return ctx->error != CUDA_SUCCESS ? ctx->error : ring_broken(ctx->device);
}

CUresult cuda_from_errno(int r) {
    switch (r) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -EPIPE:
    case -ENODEV:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

static CUresult take_plain(int device, size_t bytes) {
    return cuda_from_errno(client_do(&cuda_client, SIM_ALLOC, cuda_device[device].minor, bytes));
}

/* Managed memory is charged to no control group. */
static int managed_request(uint32_t op, int device, size_t bytes) {
    const struct sim_request q = {.magic = SIM_MAGIC,
                                  .op = op,
                                  .minor = cuda_device[device].minor,
                                  .a = bytes,
                                  .token = {SIM_MANAGED}};
    struct client_answer a = {.list = NULL};
    return client_request(&cuda_client, &q, -1, &a);
}

CUresult cuda_take_managed(int device, size_t bytes) {
    return cuda_from_errno(managed_request(SIM_ALLOC, device, bytes));
}

void cuda_give_managed(int device, size_t bytes) {
    (void) managed_request(SIM_FREE, device, bytes);
}

bool cuda_group_limit(int device, size_t *ret_hard, size_t *ret_used) {
    const struct sim_request q = {.magic = SIM_MAGIC,
                                  .op = SIM_LIMITS,
                                  .minor = cuda_device[device].minor,
                                  .a = SIM_LIMITS_MINE};
    struct client_answer a = {.list = NULL};
    if (!cuda_client.host->limits || client_request(&cuda_client, &q, -1, &a) < 0 ||
        a.reply.a >= cuda_device[device].page->memory_total)
        return false;
    *ret_hard = a.reply.a;
    *ret_used = a.reply.token[0];
    return true;
}

size_t cuda_room(int device) {
    const struct sim_page *p = cuda_device[device].page;
    uint64_t total = p->memory_total - p->memory_reserved, used = atomic_load(&p->memory_used);
    return used < total ? total - used : 0;
}

CUresult cuda_take(int device, size_t bytes) {
    CUresult r;
    do
        r = take_plain(device, bytes);
    while (r == CUDA_ERROR_OUT_OF_MEMORY && bytes <= cuda_device[device].page->memory_total &&
           managed_evict(device, bytes));
    return r;
}

void cuda_give(int device, size_t bytes) {
    (void) client_do(&cuda_client, SIM_FREE, cuda_device[device].minor, bytes);
}
