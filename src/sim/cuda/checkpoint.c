/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints of this process: its calls are held up, its memory leaves the card, comes back when
 * there is room, and the calls go on. Other processes are not reached from here. */

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "sim/cuda/context.h"
#include "sim/cuda/cuda.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one step at a time */
static CUprocessState state;

static CUresult enter_process(int pid) {
    CUDA_TRY(cuda_enter_locked());
    if (pid <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *ret) {
    CUDA_TRY(enter_process(pid));
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    *ret = state;
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Until all that was submitted is complete; `ms` 0: however long it takes. */
static CUresult wait_idle(unsigned int ms) {
    static const struct timespec moment = {.tv_nsec = 1000000};
    for (unsigned int waited = 0; !context_all_idle(); waited++) {
        if (ms > 0 && waited >= ms)
            return CUDA_ERROR_TIMEOUT;
        (void) nanosleep(&moment, NULL);
    }
    return CUDA_SUCCESS;
}

/* Changes the state by `step`, which sets the new one; one step at a time. */
static CUresult change_state(int pid, CUprocessState from, CUresult (*step)(void *args),
                             void *args) {
    CUDA_TRY(enter_process(pid));
    (void) pthread_mutex_lock(&lock);
    CUresult r = state == from ? step(args) : CUDA_ERROR_ILLEGAL_STATE;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static CUresult lock_process(void *args) {
    const CUcheckpointLockArgs *wanted = args;
    cuda_hold_calls(true);
    CUresult r = wait_idle(wanted ? wanted->timeoutMs : 0);
    if (r == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_LOCKED;
    else
        cuda_hold_calls(false);
    return r;
}

/* Moves the memory of the first `n` devices, until one fails: shared memory has to stay. */
static int move_devices(enum sim_op op, int n, int *ret_done) {
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        r = client_do(&cuda_client, op, cuda_device[i].minor, 0);
        *ret_done = r == 0 ? i + 1 : i;
    }
    return r;
}

/* All devices, or none. */
static int move_all(enum sim_op op, enum sim_op back, CUprocessState to) {
    int done = 0, ignored, r = move_devices(op, cuda_ndevices, &done);
    if (r == 0)
        state = to;
    else if (move_devices(back, done, &ignored) < 0)
        state = CU_PROCESS_STATE_FAILED;
    return r;
}

/* There is nothing yet in the arguments of the next three. */

static CUresult unlock_process(void *args) {
    (void) args;
    int r = move_all(SIM_SUSPEND, SIM_RESUME, CU_PROCESS_STATE_CHECKPOINTED);
    return r == -EBUSY ? CUDA_ERROR_NOT_SUPPORTED : cuda_from_errno(r);
}

static CUresult come_back(void *args) {
    (void) args;
    return cuda_from_errno(move_all(SIM_RESUME, SIM_SUSPEND, CU_PROCESS_STATE_LOCKED));
}

static CUresult let_go(void *args) {
    (void) args;
    state = CU_PROCESS_STATE_RUNNING;
    cuda_hold_calls(false);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    return change_state(pid, CU_PROCESS_STATE_RUNNING, lock_process, args);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    return change_state(pid, CU_PROCESS_STATE_LOCKED, unlock_process, args);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    return change_state(pid, CU_PROCESS_STATE_CHECKPOINTED, come_back, args);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
    return change_state(pid, CU_PROCESS_STATE_LOCKED, let_go, args);
}
