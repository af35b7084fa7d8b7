/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/pool.h"

#include "intercept/memory/charge.h"
#include "intercept/memory/spill.h"

/* Where a pool is, besides an index of the share or -1 for a device that is not part of it. */
#define ON_HOST (-3)
#define ANYWHERE (-4) /* managed: wherever it is used, so as cuMemAllocManaged books */

static struct pool_book *book_of(struct share *share, CUmemoryPool pool) {
    struct pool_book *book = pools_of(share)->book;

    for (int i = 0; i < POOLS_MAX; i++)
        if (book[i].known && !book[i].gone && !book[i].of_graphs &&
            book[i].pool == (uint64_t) (uintptr_t) pool)
            return &book[i];
    return NULL;
}

static struct pool_book *book_new(struct share *share) {
    struct pool_book *book = pools_of(share)->book;

    for (int i = 0; i < POOLS_MAX; i++)
        if (!book[i].known)
            return &book[i];
    return NULL;
}

/* With the pool lock. NULL when there are too many pools. */
static struct pool_book *book_note(struct share *share, CUmemoryPool pool, int device) {
    struct pool_book *book = book_of(share, pool);

    if (book)
        return book;
    book = book_new(share);
    if (book)
        *book = (struct pool_book){
            .pool = (uint64_t) (uintptr_t) pool, .device = device, .known = true};
    return book;
}

struct pool_book *graph_book(struct share *share, int device) {
    struct pool_book *book = pools_of(share)->book;
    int ordinal = share_ordinal(share, device);

    for (int i = 0; i < POOLS_MAX; i++)
        if (book[i].known && book[i].of_graphs && book[i].device == device)
            return &book[i];
    book = ordinal < 0 ? NULL : book_new(share);
    if (book)
        *book = (struct pool_book){
            .pool = (uint64_t) ordinal, .device = device, .known = true, .of_graphs = true};
    return book;
}

static uint64_t held_by(const struct pool_book *book) {
    uint64_t held = 0;

    if (book->of_graphs)
        return driver.cuDeviceGetGraphMemAttribute((CUdevice) book->pool,
                                                   CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                   &held) == CUDA_SUCCESS
                   ? held
                   : book->booked;
    if (book->gone ||
        driver.cuMemPoolGetAttribute((CUmemoryPool) (uintptr_t) book->pool,
                                     CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held) != CUDA_SUCCESS)
        return book->live;
    return held;
}

static enum booking booking_of(const struct pool_book *book) {
    return book->exported ? BOOKED_EXPORTED : BOOKED;
}

/* With the pool lock: books what the pool holds, which is on the card already: never refused. */
bool book_refresh(struct share *share, struct pool_book *book) {
    uint64_t held = held_by(book), before = book->booked;

    if (book->device < 0 || held == before)
        return false;
    if (held > before)
        books_force(share, book->device, held - before, booking_of(book));
    else if (book->gone && book->exported)
        books_orphan(share, book->device, before - held);
    else
        books_refund(share, book->device, before - held, booking_of(book));
    book->booked = held;
    return true;
}

void pools_refresh(struct share *share) {
    if (!__atomic_load_n(&pools_of(share)->used, __ATOMIC_RELAXED))
        return;
    pools_lock(share);
    for (int i = 0; i < POOLS_MAX; i++)
        if (pools_of(share)->book[i].known)
            (void) book_refresh(share, &pools_of(share)->book[i]);
    pools_unlock(share);
}

static void trim(const struct pool_book *book) {
    if (book->of_graphs)
        (void) driver.cuDeviceGraphMemTrim((CUdevice) book->pool);
    else
        (void) driver.cuMemPoolTrimTo((CUmemoryPool) (uintptr_t) book->pool, 0);
}

bool pools_give_back_locked(struct share *share) {
    bool changed = false;

    for (int i = 0; i < POOLS_MAX; i++) {
        struct pool_book *book = &pools_of(share)->book[i];

        if (!book->known || book->gone || book->device < 0)
            continue;
        trim(book);
        changed |= book_refresh(share, book);
    }
    return changed;
}

bool pools_give_back(struct share *share) {
    bool changed;

    if (!__atomic_load_n(&pools_of(share)->used, __ATOMIC_RELAXED))
        return false;
    pools_lock(share);
    changed = pools_give_back_locked(share);
    pools_unlock(share);
    return changed;
}

void pools_note_use(struct share *share) {
    __atomic_store_n(&pools_of(share)->used, true, __ATOMIC_RELAXED);
    __atomic_store_n(&pools_of(share)->dirty, true, __ATOMIC_RELEASE);
}

void pools_waited(void) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE);

    if (share && __atomic_exchange_n(&pools_of(share)->dirty, false, __ATOMIC_ACQ_REL))
        pools_refresh(share);
}

/* -- graphs ---------------------------------------------------------------------------------- */

void graphs_note_allocation(void) {
    struct share *share = share_claim();

    if (share)
        __atomic_store_n(&pools_of(share)->graphs, true, __ATOMIC_RELAXED);
}

/* The order of the two stores and the two loads matters: of a capture and a use of a pool that run
 * at the same time, at least one sees the other. */
void pools_note_capture(void) {
    struct share *share = share_claim();

    if (!share)
        return;
    __atomic_store_n(&pools_of(share)->captures, true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pools_of(share)->used, __ATOMIC_SEQ_CST))
        graphs_note_allocation();
}

static void note_pool_use(struct share *share) {
    if (!__atomic_load_n(&pools_of(share)->used, __ATOMIC_RELAXED))
        __atomic_store_n(&pools_of(share)->used, true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pools_of(share)->captures, __ATOMIC_SEQ_CST))
        graphs_note_allocation();
}

/* -- allocations ----------------------------------------------------------------------------- */

struct pool_charge {
    struct charge charge;
    struct pool_book *book; /* NULL: booked as a pointer */
};

/* Which pool of which device the memory will come from; `pool` is NULL for the current one. False:
 * there are too many pools, and what this one keeps after a free would not be booked. */
static bool find_pool(struct pool_charge *c, CUmemoryPool pool) {
    struct share *share = c->charge.share;
    int ordinal = share_ordinal(share, c->charge.device);
    bool noted;

    if (!pool && (ordinal < 0 || driver.cuDeviceGetMemPool(&pool, ordinal) != CUDA_SUCCESS))
        return true;
    pools_lock(share);
    c->book = book_note(share, pool, c->charge.device);
    noted = c->book != NULL;
    if (c->book && c->book->device == ANYWHERE)
        c->book = NULL;
    if (c->book)
        c->charge.device = c->book->device;
    pools_unlock(share);
    __atomic_store_n(&pools_of(share)->used, true, __ATOMIC_RELAXED);
    if (c->charge.device == ON_HOST)
        c->charge.share = NULL;
    return noted;
}

/* Reserves `bytes`, unless the pool keeps as much without use. */
static bool reserve_from_pool(struct pool_charge *c, CUmemoryPool pool, size_t bytes,
                              CUstream stream, bool per_thread) {
    struct share *share;
    bool kept;

    c->book = NULL;
    charge_on_stream(&c->charge, stream, per_thread);
    if (c->charge.share && !find_pool(c, pool))
        return false;
    if (charge_reserve(&c->charge, bytes))
        return true;
    share = c->charge.share;
    if (!c->book)
        return false;
    pools_lock(share);
    kept = c->book->booked > c->book->live && c->book->booked - c->book->live >= bytes;
    pools_unlock(share);
    return kept && charge_reserve(&c->charge, 0);
}

/* With the pool lock: the pool may have grown by more than was reserved. */
static bool book_growth(struct pool_charge *c, uint64_t bytes) {
    uint64_t held, grown, reserved = c->charge.bytes;

    c->book->live += bytes;
    held = held_by(c->book);
    grown = held > c->book->booked ? held - c->book->booked : 0;
    if (grown > reserved && !charge_add_free(&c->charge, grown - reserved)) {
        c->book->live -= bytes;
        return false;
    }
    if (grown > reserved && c->book->exported)
        (void) books_export(c->charge.share, c->charge.device, grown - reserved, true);
    /* What was reserved now belongs to the pool's account, not to the pointer's. */
    c->book->booked += c->charge.bytes;
    c->charge.bytes = 0;
    (void) book_refresh(c->charge.share, c->book);
    return true;
}

/* With the pool lock: a descriptor of the pool keeps what it grows by, from that moment. */
static void export_growth(struct pool_charge *c) {
    if (c->book->exported && books_export(c->charge.share, c->charge.device, c->charge.bytes, true))
        c->charge.how = BOOKED_EXPORTED;
}

/* With the pool lock. */
static void book_freed(struct share *share, uint64_t book, uint64_t bytes) {
    struct pool_book *b = &pools_of(share)->book[book];

    b->live -= b->live >= bytes ? bytes : b->live;
    (void) book_refresh(share, b);
    if (b->gone && b->live == 0)
        b->known = false;
}

/* The driver may reuse an address that it has freed with its context. */
static void forget_pointer(struct share *share, CUdeviceptr dptr) {
    struct entry old;
    bool found;

    books_lock(share);
    found = allocations_take(books_allocations(share), ENTRY_POOLED, dptr, &old);
    if (found)
        allocations_unreserve(books_allocations(share));
    books_unlock(share);
    if (found)
        book_freed(share, old.link, old.bytes);
}

static void enter_pointer(struct pool_charge *c, CUdeviceptr dptr, uint64_t bytes) {
    struct share *share = c->charge.share;
    struct entry entry = {.key = dptr,
                          .bytes = bytes,
                          .link = (uint64_t) (c->book - pools_of(share)->book),
                          .refs = 1,
                          .kind = ENTRY_POOLED,
                          .device = (int16_t) c->charge.device};

    forget_pointer(share, dptr);
    books_lock(share);
    allocations_put(books_allocations(share), &entry);
    books_unlock(share);
}

static CUresult driver_allocate(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                                bool per_thread) {
    if (pool)
        return per_thread ? driver.cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool, stream)
                          : driver.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
    return per_thread ? driver.cuMemAllocAsync_ptsz(dptr, bytes, stream)
                      : driver.cuMemAllocAsync(dptr, bytes, stream);
}

/* Whether the allocation becomes a node of a graph, which takes memory when the graph does
 * (graph/graph.c). */
static bool captured(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    struct share *share = share_claim();
    CUresult r;

    if (!share)
        return false;
    note_pool_use(share);
    r = per_thread ? driver.cuStreamIsCapturing_ptsz(stream, &status)
                   : driver.cuStreamIsCapturing(stream, &status);
    if (r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return false;
    graphs_note_allocation();
    return true;
}

/* Allocates with `pool`, or from the current one. The driver is called under the lock, so that a
 * growth is known to be that of this allocation. */
static CUresult allocate(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                         bool per_thread) {
    struct pool_charge c;
    bool booked = true;
    CUresult r;

    if (captured(stream, per_thread))
        return driver_allocate(dptr, bytes, pool, stream, per_thread);
    if (!reserve_from_pool(&c, pool, bytes, stream, per_thread))
        return pool ? CUDA_ERROR_OUT_OF_MEMORY
                    : spill_allocate(&c.charge, dptr, bytes, CU_MEM_ATTACH_GLOBAL, false);
    if (c.charge.share && c.book) {
        pools_lock(c.charge.share);
        export_growth(&c);
    }
    r = driver_allocate(dptr, bytes, pool, stream, per_thread);
    if (!c.charge.share || !c.book)
        return charge_settle(&c.charge, r, ENTRY_POINTER, r == CUDA_SUCCESS ? *dptr : 0,
                             c.charge.context);
    if (r == CUDA_SUCCESS)
        booked = book_growth(&c, bytes);
    if (r == CUDA_SUCCESS && booked)
        enter_pointer(&c, *dptr, bytes);
    pools_unlock(c.charge.share);
    if (r == CUDA_SUCCESS && booked)
        return r;
    if (r == CUDA_SUCCESS) {
        (void) (per_thread ? driver.cuMemFreeAsync_ptsz(*dptr, stream)
                           : driver.cuMemFreeAsync(*dptr, stream));
        (void) pools_give_back(c.charge.share);
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_settle(&c.charge, r, ENTRY_POINTER, 0, 0);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
    return allocate(dptr, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
    return allocate(dptr, bytes, NULL, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    return pool ? allocate(dptr, bytes, pool, stream, false)
                : driver.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    return pool ? allocate(dptr, bytes, pool, stream, true)
                : driver.cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool, stream);
}

/* -- frees ----------------------------------------------------------------------------------- */

void pool_freed(struct share *share, uint64_t book, uint64_t bytes) {
    pools_lock(share);
    book_freed(share, book, bytes);
    pools_unlock(share);
    /* The free may yet be waiting in its stream. */
    __atomic_store_n(&pools_of(share)->dirty, true, __ATOMIC_RELEASE);
}

/* Spilled memory is not of a pool: it is freed after a wait for the work before in the stream. */
static CUresult free_spilled(CUdeviceptr dptr, CUstream stream, bool per_thread) {
    CUresult r =
        per_thread ? driver.cuStreamSynchronize_ptsz(stream) : driver.cuStreamSynchronize(stream);

    return r == CUDA_SUCCESS ? driver.cuMemFree_v2(dptr) : r;
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream, bool per_thread) {
    struct refund refund;

    refund_begin_pointer(&refund, dptr);
    if (refund.share && refund.entry.kind == ENTRY_SPILLED)
        return refund_settle(&refund, free_spilled(dptr, stream, per_thread));
    return refund_settle(&refund, per_thread ? driver.cuMemFreeAsync_ptsz(dptr, stream)
                                             : driver.cuMemFreeAsync(dptr, stream));
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
    return free_async(dptr, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
    return free_async(dptr, stream, true);
}

/* -- pools ----------------------------------------------------------------------------------- */

/* False: there are too many pools. */
static bool pool_note(CUmemoryPool pool, struct share *share, int device) {
    bool noted;

    pools_lock(share);
    noted = book_note(share, pool, device) != NULL;
    pools_unlock(share);
    __atomic_store_n(&pools_of(share)->used, true, __ATOMIC_RELAXED);
    return noted;
}

static int home_of_pool(struct share *share, const CUmemPoolProps *props) {
    CUdevice device = location_device(&props->location);

    if (device >= 0)
        return share_device(share, device);
    return props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? ANYWHERE : ON_HOST;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props) {
    CUresult r = driver.cuMemPoolCreate(pool, pool_props);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (!share || pool_note(*pool, share, home_of_pool(share, pool_props)))
        return r;
    (void) driver.cuMemPoolDestroy(*pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What was allocated from the pool stays until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult r = driver.cuMemPoolDestroy(pool);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    struct pool_book *book;

    if (!share)
        return r;
    pools_lock(share);
    book = book_of(share, pool);
    if (book) {
        book->gone = true;
        (void) book_refresh(share, book);
        book->known = book->live > 0;
    }
    pools_unlock(share);
    return r;
}

bool pool_export_begin(CUmemoryPool pool) {
    struct share *share = share_claim();
    struct pool_book *book;
    bool ok;

    if (!share)
        return true;
    pools_lock(share);
    book = book_of(share, pool);
    if (book && !book->exported && book->device >= 0)
        book->exported = books_export(share, book->device, book->booked, true);
    /* With too many pools, allocations from a pool without a book are refused. */
    ok = book ? book->exported || book->device < 0 : book_new(share) != NULL;
    pools_unlock(share);
    return ok;
}

void pool_imported(CUmemoryPool pool) {
    struct share *share = share_claim();

    if (share)
        (void) pool_note(pool, share, ON_HOST);
}

/* A pool of a device. */
static CUresult note_on_device(CUresult r, const CUmemoryPool *pool, CUdevice dev) {
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        (void) pool_note(*pool, share, share_device(share, dev));
    return r;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev) {
    return note_on_device(driver.cuDeviceGetDefaultMemPool(pool, dev), pool, dev);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return note_on_device(driver.cuDeviceGetMemPool(pool, dev), pool, dev);
}

/* A pool of any place. */
static CUresult note_at(CUresult r, const CUmemoryPool *pool, const CUmemLocation *location,
                        CUmemAllocationType type) {
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    CUmemPoolProps props = {.allocType = type};

    if (share) {
        props.location = *location;
        (void) pool_note(*pool, share, home_of_pool(share, &props));
    }
    return r;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type) {
    return note_at(driver.cuMemGetDefaultMemPool(pool_out, location, type), pool_out, location,
                   type);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                         CUmemAllocationType type) {
    return note_at(driver.cuMemGetMemPool(pool_out, location, type), pool_out, location, type);
}

static CUresult changed(CUresult r) {
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        pools_refresh(share);
    return r;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep) {
    return changed(driver.cuMemPoolTrimTo(pool, min_bytes_to_keep));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    return changed(driver.cuMemPoolSetAttribute(pool, attr, value));
}
