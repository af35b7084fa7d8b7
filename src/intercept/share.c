/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/driver.h"

/* Where the agent mounts a share. Only where nothing is mounted there may the environment name a
 * place: a tenant who could choose would choose none. */
#define MOUNTED_LIMITS "/run/aliquot/share/limits"
#define MOUNTED_LEDGER "/run/aliquot/share/ledger"
#define PLACE_VARIABLE "ALIQUOT_SHARE_DIR"

#define NOT_OF_THE_SHARE UINT8_MAX

struct share *share_memory;

/* Constant once written; not part of the state, since a forked child finds the same. */
static char ledger_path[4096];

static struct share *memory(void) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE), *other = NULL;

    if (share)
        return share;
    share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (share == MAP_FAILED)
        return NULL;
    /* Without it a child would take its parent's slot for its own. */
    if (madvise(share, sizeof(*share), MADV_WIPEONFORK) < 0) {
        (void) munmap(share, sizeof(*share));
        return NULL;
    }
    if (__atomic_compare_exchange_n(&share_memory, &other, share, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return share;
    (void) munmap(share, sizeof(*share));
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

static bool join(char *ret, size_t size, const char *dir, const char *name) {
    size_t len = strlen(dir), name_len = strlen(name);

    if (len + name_len + 2 > size)
        return false;
    memcpy(ret, dir, len);
    ret[len] = '/';
    memcpy(ret + len + 1, name, name_len);
    ret[len + 1 + name_len] = '\0';
    return true;
}

/* -ENOENT: there is no share. */
static int find_limits(const struct limits_file **ret) {
    int r = limits_map(MOUNTED_LIMITS, ret);
    const char *dir;
    char path[sizeof(ledger_path)];

    if (r != -ENOENT && r != -ENOTDIR) {
        memcpy(ledger_path, MOUNTED_LEDGER, sizeof(MOUNTED_LEDGER));
        return r;
    }
    dir = getenv(PLACE_VARIABLE);
    if (!dir || !*dir)
        return -ENOENT;
    if (!join(path, sizeof(path), dir, "limits") ||
        !join(ledger_path, sizeof(ledger_path), dir, "ledger"))
        return -ENAMETOOLONG;
    r = limits_map(path, ret);
    return r == -ENOENT ? -EBADMSG : r;
}

static void view_locked(struct share *share) {
    struct share_limits limits;
    int r = find_limits(&share->limits);

    if (r == 0)
        r = limits_copy(share->limits, &limits);
    share->none = r == -ENOENT;
    share->broken = r < 0 && !share->none;
    if (r == 0) {
        share->ndevices = limits.ndevices;
        for (uint32_t i = 0; i < limits.ndevices; i++)
            if (!uuid_parse(limits.device[i].uuid, share->uuid[i]))
                memset(share->uuid[i], 0xff, sizeof(share->uuid[i]));
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

/* Stands for the share where there was no memory even for its state: what cannot be booked is
 * refused. */
static struct share *out_of_memory(void) {
    static struct share broken = {.viewed = 1, .claimed = 1, .broken = true};

    return &broken;
}

struct share *share_view(void) {
    struct share *share = memory();

    if (!share)
        return out_of_memory();
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
    /* The second version knows an instance of a divided GPU by its own UUID, where the first gives
     * the GPU's. */
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

/* Somebody else has our slot, or the ledger is damaged: what we hold is no longer booked, so
 * nothing more is given. */
static void settle_result(struct share *share, int r) {
    if (__builtin_expect(r == -ESTALE || r == -EBADMSG, 0))
        share->broken = true;
}

bool share_reserve(struct share *share, int device, uint64_t bytes) {
    int r;

    if (device < 0 || share->broken)
        return false;
    lock_take(&share->device_lock[device]);
    r = ledger_reserve(&share->owner, (unsigned int) device, bytes, share_limit(share, device));
    lock_drop(&share->device_lock[device]);
    settle_result(share, r);
    return r == 0;
}

void share_force(struct share *share, int device, uint64_t bytes) {
    int r;

    if (device < 0 || share->broken)
        return;
    lock_take(&share->device_lock[device]);
    r = ledger_reserve(&share->owner, (unsigned int) device, bytes, 0);
    lock_drop(&share->device_lock[device]);
    settle_result(share, r);
}

int share_ordinal(const struct share *share, int device) {
    for (int i = 0; device >= 0 && i < ORDINALS_MAX; i++)
        if (__atomic_load_n(&share->ordinal[i], __ATOMIC_RELAXED) == device + 1)
            return i;
    return -1;
}

void share_refund(struct share *share, int device, uint64_t bytes) {
    int r;

    if (device < 0 || share->broken || bytes == 0)
        return;
    lock_take(&share->device_lock[device]);
    r = ledger_refund(&share->owner, (unsigned int) device, bytes);
    lock_drop(&share->device_lock[device]);
    settle_result(share, r);
}

uint64_t share_limit(const struct share *share, int device) {
    return device < 0 || !share->limits ? 0 : limits_memory(share->limits, (unsigned int) device);
}

const char *share_ledger_path(void) {
    return ledger_path;
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

    return device < 0 || !file ? 0 : ledger_used(file, (unsigned int) device);
}
