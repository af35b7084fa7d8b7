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
    throttle_about_to_wait_all();
    return waited(driver.cuCtxSynchronize());
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    throttle_about_to_wait_all();
    return waited(driver.cuCtxSynchronize_v2(ctx));
}

CUresult cuStreamSynchronize(CUstream stream) {
    throttle_about_to_wait(stream, false);
    return waited(driver.cuStreamSynchronize(stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    throttle_about_to_wait(stream, true);
    return waited(driver.cuStreamSynchronize_ptsz(stream));
}

CUresult cuEventSynchronize(CUevent event) {
    throttle_about_to_wait_all();
    return waited(driver.cuEventSynchronize(event));
}
