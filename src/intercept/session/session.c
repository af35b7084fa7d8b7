/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/session/session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/resolve/driver.h"
#include "intercept/session/fork.h"
#include "intercept/session/location.h"

#define NOT_OF_THE_SHARE UINT8_MAX

struct share *share_memory;

/* Constant once written; not part of the state, since a forked child finds the same. */
static char ledger_path[4096];

static struct share *memory(void) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE), *other = NULL;

    if (share)
        return share;
    /* Zeroed, or a child would take the slot of its parent for its own. */
    share = map_zeroed_on_fork(share_state_bytes);
    if (!share)
        return NULL;
    if (__atomic_compare_exchange_n(&share_memory, &other, share, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return share;
    (void) munmap(share, share_state_bytes);
    return other;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* "GPU-" or "MIG-", then 32 hexadecimal digits in groups. */
static bool uuid_parse(const char *text, unsigned char ret[16]) {
    const char *c = strchr(text, '-');
    int digits = 0;

    if (!c)
        return false;
    for (c++; *c && digits < 32; c++) {
        int value = hex_value(*c);

        if (*c == '-')
            continue;
        if (value < 0)
            return false;
        ret[digits / 2] = (unsigned char) (digits % 2 ? ret[digits / 2] | value : value << 4);
        digits++;
    }
    return digits == 32 && *c == '\0';
}

/* For the life of the process: an account that began in the middle would not add up. So also where
 * the limit is below the bound now: it may be raised again. */
static bool bounded(const struct share *share, uint32_t device) {
    return ledger_has_card_account(limits_physical(share->limits, device), share->ndevices);
}

static void view_locked(struct share *share) {
    struct share_limits limits;
    int r = location_find(&share->limits, ledger_path, sizeof(ledger_path));

    if (r == 0)
        r = limits_copy(share->limits, &limits);
    share->none = r == -ENOENT;
    share->broken = r < 0 && !share->none;
    share->denied = r == -EPERM;
    if (r == 0) {
        share->ndevices = limits.ndevices;
        for (uint32_t i = 0; i < limits.ndevices; i++) {
            if (!uuid_parse(limits.device[i].uuid, share->uuid[i]))
                memset(share->uuid[i], 0xff, sizeof(share->uuid[i]));
            share->bounded[i] = bounded(share, i);
        }
    }
    __atomic_store_n(&share->viewed, 1, __ATOMIC_RELEASE);
}

static void view(struct share *share) {
    int saved = errno;

    lock_take(&share->begin_lock);
    if (!share->viewed)
        view_locked(share);
    lock_drop(&share->begin_lock);
    errno = saved;
}

struct share *share_view(void) {
    struct share *share = memory();

    if (!share)
        return share_out_of_memory;
    if (!__atomic_load_n(&share->viewed, __ATOMIC_ACQUIRE))
        view(share);
    return share->none ? NULL : share;
}

struct share *share_claim_slowly(void) {
    struct share *share = share_view();
    int saved = errno;

    if (!share) {
        __atomic_store_n(&share_memory->claimed, 1, __ATOMIC_RELEASE);
        return NULL;
    }
    lock_take(&share->begin_lock);
    if (!share->claimed) {
        if (!share->broken && ledger_claim(ledger_path, &share->owner) < 0)
            share->broken = true;
        __atomic_store_n(&share->claimed, 1, __ATOMIC_RELEASE);
    }
    lock_drop(&share->begin_lock);
    errno = saved;
    return share;
}

static int index_of(const struct share *share, const unsigned char uuid[16]) {
    for (uint32_t i = 0; i < share->ndevices; i++)
        if (memcmp(share->uuid[i], uuid, 16) == 0)
            return (int) i;
    return -1;
}

int share_device_by_uuid(const struct share *share, const char *uuid) {
    unsigned char parsed[16];

    return uuid_parse(uuid, parsed) ? index_of(share, parsed) : -1;
}

int share_device(struct share *share, CUdevice device) {
    uint8_t known = 0;
    CUuuid uuid;
    int found;

    if (device < 0 || device >= ORDINALS_MAX)
        return -1;
    known = __atomic_load_n(&share->ordinal[device], __ATOMIC_RELAXED);
    if (known)
        return known == NOT_OF_THE_SHARE ? -1 : known - 1;
    /* The second version returns the UUID of a MIG instance, the first that of its GPU. */
    if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
        CUresult r = driver.cuDeviceGetUuid(&uuid, device);

        if (r != CUDA_SUCCESS)
            return r == CUDA_ERROR_NOT_SUPPORTED ? -1 : -2;
    }
    found = index_of(share, (const unsigned char *) uuid.bytes);
    if (found < 0 && driver.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
        found = index_of(share, (const unsigned char *) uuid.bytes);
    __atomic_store_n(&share->ordinal[device], found < 0 ? NOT_OF_THE_SHARE : (uint8_t) (found + 1),
                     __ATOMIC_RELAXED);
    return found;
}

int share_ordinal(const struct share *share, int device) {
    for (int i = 0; device >= 0 && i < ORDINALS_MAX; i++)
        if (__atomic_load_n(&share->ordinal[i], __ATOMIC_RELAXED) == device + 1)
            return i;
    return -1;
}

uint64_t share_limit(const struct share *share, int device) {
    return device < 0 || !share->limits ? 0 : limits_memory(share->limits, (unsigned int) device);
}

const char *share_ledger_path(void) {
    return ledger_path;
}

bool share_path(const char *name, char *ret, size_t size) {
    char dir[sizeof(ledger_path)];
    char *slash;

    memcpy(dir, ledger_path, sizeof(dir));
    slash = strrchr(dir, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return location_join(ret, size, dir, name);
}

const struct ledger_file *share_ledger(struct share *share) {
    if (share->owner.file)
        return share->owner.file;
    if (!share->reader && !share->broken) {
        const struct ledger_file *file = NULL;
        int saved = errno;

        lock_take(&share->begin_lock);
        if (!share->reader && ledger_attach(ledger_path, &file) == 0)
            share->reader = file;
        lock_drop(&share->begin_lock);
        errno = saved;
    }
    return share->reader;
}

uint64_t share_used(struct share *share, int device) {
    const struct ledger_file *file = share_ledger(share);
    uint64_t used, overhead;

    if (device < 0 || !file || !share->limits)
        return 0;
    overhead = limits_overhead(share->limits, (unsigned int) device);
    return __builtin_add_overflow(ledger_used(file, (unsigned int) device), overhead, &used)
               ? UINT64_MAX
               : used;
}

/* Never 0, which is no limit: a limit of one byte refuses every allocation. */
static uint64_t limit_less(uint64_t limit, uint64_t overhead) {
    return limit == 0 ? 0 : limit > overhead ? limit - overhead : 1;
}

uint64_t share_account_limit(const struct share *share, unsigned int account) {
    unsigned int device = account < share->ndevices ? account : ledger_card_account(account);

    if (device >= share->ndevices)
        return 0;
    return limit_less(account == device ? limits_memory(share->limits, device)
                                        : limits_physical(share->limits, device),
                      limits_overhead(share->limits, device));
}

void share_figures(struct share *share, int device, uint64_t card, uint64_t *ret_total,
                   uint64_t *ret_used) {
    uint64_t limit = share_limit(share, device), used = share_used(share, device);
    bool more = device >= 0 && share->bounded[device];
    uint64_t total = limit && (more || limit < card) ? limit : card;

    *ret_total = share->broken ? 0 : total;
    *ret_used = used < *ret_total ? used : *ret_total;
}
