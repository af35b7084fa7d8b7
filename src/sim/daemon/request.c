/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/request.h"

#include <errno.h>
#include <string.h>

int request_parse(const void *data, size_t len, bool device_socket, struct sim_request *ret) {
    struct sim_request r;
    if (len != sizeof(r))
        return -EPROTO;
    memcpy(&r, data, sizeof(r));
    if (r.magic != SIM_MAGIC || r.zero != 0 || r.op < SIM_HELLO || r.op >= SIM_OP_END)
        return -EPROTO;
    if (device_socket != (r.op == SIM_ATTACH))
        return -EPROTO;
    if (r.minor >= SIM_MAX_UNITS)
        return -EPROTO;
    *ret = r;
    return 0;
}
