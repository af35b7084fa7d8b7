/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the simulated libcuda.so.1.
 *
 * One lock guards all objects of the process; no thread waits for the GPU or moves memory while
 * holding it. Device memory is host memory of this process, reserved in full and touched only
 * where it is used. An operation changes memory at its submission, which no correct program can
 * tell from a later time: the order of submission is an order in which the GPU might have run it.
 * The daemon decides how long it takes, see ring.h. The one exception is an operation behind a
 * host function that has not run yet: see worker.h. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "abi/cuda.h"
#include "abi/try.h"
#include "sim/client.h"
#ifndef SIM_EXPORTS
#include "cuda-names.h" /* the functions below get names of their own: see generate.py */
#endif

#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    __attribute__((visibility("default"))) CUresult symbol params;
#include "abi/hooks.def"

/* -- names for cuGetProcAddress (generated) -------------------------------------------------- */

enum cuda_stream_use { CUDA_STREAM_ANY, CUDA_STREAM_LEGACY, CUDA_STREAM_PTDS };

struct cuda_proc {
    const char *base;
    void *function;
    int since, until;
    enum cuda_stream_use stream;
};

extern const struct cuda_proc cuda_procs[]; /* sorted by base, then symbol */
extern const size_t cuda_nprocs;

/* -- objects --------------------------------------------------------------------------------- */

/* Every handle points to one of these. Its memory is never freed, so that a stale handle can be
 * read safely. */
enum cuda_tag {
    TAG_FREE = 0,
    TAG_CONTEXT = 0x78746373,
    TAG_STREAM = 0x6d727473,
    TAG_EVENT = 0x746e7665,
    TAG_MODULE = 0x6c646f6d,
    TAG_FUNCTION = 0x636e7566,
    TAG_ARRAY = 0x79617272,
    TAG_MIPMAP = 0x70616d6d,
    TAG_POOL = 0x6c6f6f70,
    TAG_HANDLE = 0x6c646e68,
    TAG_GRAPH = 0x68707267,
    TAG_NODE = 0x65646f6e,
    TAG_EXEC = 0x63657865,
    TAG_USER_OBJECT = 0x6a626f75,
    TAG_EXTERNAL = 0x65747865,
    TAG_LIBRARY = 0x7262696c,
    TAG_KERNEL = 0x6e72656b,
};

/* Takes an object off its free list, or allocates one; NULL when out of memory. The contents are
 * undefined. With the lock of the list. */
#define CUDA_REUSE_OBJECT(object, list, next_free)                                                 \
    do {                                                                                           \
        (object) = (list);                                                                         \
        if (object)                                                                                \
            (list) = (object)->next_free;                                                          \
        else                                                                                       \
            (object) = malloc(sizeof(*(object)));                                                  \
    } while (0)

/* The same for objects that own a copy of their name until they are used anew: the new one has it,
 * and its other contents are undefined. */
#define CUDA_REUSE_NAMED(object, list, next_free, given)                                           \
    do {                                                                                           \
        char *copy_ = strdup(given), *former_ = copy_ && (list) ? (list)->name : NULL;             \
        (object) = NULL;                                                                           \
        if (copy_)                                                                                 \
            CUDA_REUSE_OBJECT(object, list, next_free);                                            \
        free((object) ? former_ : copy_);                                                          \
        if (object)                                                                                \
            (object)->name = copy_;                                                                \
    } while (0)

/* As CUDA_REUSE_OBJECT, with the contents that follow. Takes cuda_lock. */
#define CUDA_NEW_OBJECT(object, list, next_free, ...)                                              \
    do {                                                                                           \
        (void) pthread_mutex_lock(&cuda_lock);                                                     \
        CUDA_REUSE_OBJECT(object, list, next_free);                                                \
        if (object)                                                                                \
            *(object) = __VA_ARGS__;                                                               \
        (void) pthread_mutex_unlock(&cuda_lock);                                                   \
    } while (0)

struct cuda_device {
    const struct sim_page *page;
    uint32_t minor;
    CUcontext primary;
    unsigned int primary_refs;
    unsigned int primary_flags;
    CUmemoryPool default_pool, current_pool;
};

struct CUctx_st {
    enum cuda_tag tag;
    struct CUctx_st *next; /* of all contexts ever created */
    int device;
    unsigned int flags;
    unsigned int references; /* of created contexts, by cuCtxAttach */
    bool primary;
    unsigned long long id;
    CUresult error; /* sticky error of a kernel: every later call returns it */
    struct CUstream_st *legacy;
    struct CUstream_st *streams; /* those that synchronise with the legacy stream */
    size_t limit[7];
    size_t heap[3]; /* bytes of the card beyond what a context costs: for limits 0 to 2 */
    _Atomic unsigned int capturing; /* streams that synchronise with the legacy stream */
};

struct CUstream_st {
    enum cuda_tag tag;
    CUcontext context;
    struct CUstream_st *next;
    uint16_t queue;
    bool blocking; /* synchronises with the legacy stream */
    int priority;
    unsigned int flags;
    unsigned long long id;
    uint64_t last;                  /* number of the last entry in its queue */
    uint64_t last_job;              /* of the worker */
    struct capture_stream *capture; /* NULL: what is submitted runs */
};

struct CUevent_st {
    enum cuda_tag tag;
    struct CUevent_st *next_free;
    CUcontext context;
    unsigned int flags;
    uint32_t slot; /* SIM_MARKS: it has none */
    bool recorded;
    uint16_t queue;
    uint64_t seq;
    uint64_t job;
    struct shared_event *shared;    /* between processes: the four members above are unused */
    struct capture_point *captured; /* its last record was captured, see capture.c */
};

/* -- state (init.c) -------------------------------------------------------------------------- */

extern pthread_mutex_t cuda_lock;
extern struct client cuda_client;
extern struct cuda_device cuda_device[SIM_MAX_GPUS];
extern int cuda_ndevices;

/* Checks that this process may use the driver. */
CUresult cuda_enter(void);

/* For a checkpoint: calls that begin from now on wait. cuda_enter_locked() does not. */
void cuda_hold_calls(bool hold);
CUresult cuda_enter_locked(void);

/* For invalid arguments: the error of cuda_enter(), else CUDA_ERROR_INVALID_VALUE. */
CUresult cuda_invalid(void);

/* The minor number of the card of a device, or of the current context; CLIENT_NO_CARD: none. */
uint32_t cuda_card_of(CUdevice dev);
uint32_t cuda_card(void);

/* cuda_enter(), and `dev` exists. */
CUresult cuda_enter_device(CUdevice dev);

/* cuda_enter(), and the calling thread has a context that is alive and unbroken. */
CUresult cuda_enter_context(CUcontext *ret);

/* Whether this thread's stream 0 is the per-thread default stream. Sets it, returns the previous
 * value. */
bool cuda_per_thread(bool on);
bool cuda_is_per_thread(void);

/* The CUresult for the daemon's answer. */
CUresult cuda_from_errno(int r);

/* Bytes of a device for the process; managed memory makes room. Without the lock. */
CUresult cuda_take(int device, size_t bytes);
/* The same for managed memory, without making room. */
CUresult cuda_take_managed(int device, size_t bytes);
/* Bytes free now. */
size_t cuda_room(int device);
void cuda_give(int device, size_t bytes);
void cuda_give_managed(int device, size_t bytes);
/* The memory limit and the use of the process's control group; false: it has no limit. */
bool cuda_group_limit(int device, size_t *ret_hard, size_t *ret_used);

/* -- contexts (context.c) -------------------------------------------------------------------- */

/* The thread's current context, NULL if none. No checks. */
CUcontext cuda_current(void);

/* True for a live context. With the lock or without. */
bool cuda_context_alive(CUcontext ctx);
