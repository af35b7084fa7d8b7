/* SPDX-License-Identifier: Apache-2.0 */

/* Waits of the program for a context, a stream or an event. Before: measurements that are open are
 * ended, so that the wait includes them. After: work that has run is charged, and frees that were
 * in streams have happened. */

#include "intercept/compute/throttle.h"
#include "intercept/memory/pool.h"
#include "intercept/resolve/driver.h"

static CUresult waited(CUresult r) {
    throttle_waited();
    pools_waited();
    return r;
}

CUresult cuCtxSynchronize(void) {
    CUresult r;

    throttle_about_to_wait_all();
    r = driver.cuCtxSynchronize();
    return waited(r);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    CUresult r;

    throttle_about_to_wait_all();
    r = driver.cuCtxSynchronize_v2(ctx);
    return waited(r);
}

CUresult cuStreamSynchronize(CUstream stream) {
    CUresult r;

    throttle_about_to_wait(stream, false);
    r = driver.cuStreamSynchronize(stream);
    return waited(r);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    CUresult r;

    throttle_about_to_wait(stream, true);
    r = driver.cuStreamSynchronize_ptsz(stream);
    return waited(r);
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult r;

    throttle_about_to_wait_all();
    r = driver.cuEventSynchronize(event);
    return waited(r);
}
