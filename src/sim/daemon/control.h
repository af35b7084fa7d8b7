/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the owner of the simulated machine may do to it: DIR/control, a SOCK_SEQPACKET socket of
 * mode 0600. It is no device node, so that no container gets it. One struct sim_control a
 * request, one struct sim_control_reply an answer, of which `len` bytes of text are sent. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_CONTROL_NAME "control"
#define SIM_CONTROL_MAGIC 0x51434c41u
#define SIM_CONTROL_NAMES 96u
#define SIM_CONTROL_TEXT 65536u
#define SIM_ALL UINT32_MAX

enum sim_control_op {
    SIM_DO_SHOW = 1, /* answers with the state of the machine, one line an object */
    /* minor, code = XID, pid: of this process (0: all on the card); nth, times: ids of the GPU
     * instance and the compute instance that it is limited to, each plus 1 (0: not limited) */
    SIM_DO_XID,
    SIM_DO_ECC,    /* minor, code: 0 corrected, 1 uncorrected, amount = errors */
    SIM_DO_LOSE,   /* minor falls off the bus */
    SIM_DO_RETURN, /* minor is back */
    SIM_DO_RESET,  /* minor is reset; -EBUSY while a process has it open or persistence mode is on,
                    * with code 1 only while a process has a context there */
    SIM_DO_PRESSURE, /* minor, amount = bytes in use that belong to no process */
    SIM_DO_UNLOAD,   /* unloads the driver: disconnects all clients */
    SIM_DO_LOAD,     /* loads it again */
    SIM_DO_FAIL,     /* names, minor (SIM_ALL: any call), code = status, nth (1: the next),
                      * times (0: for ever), pid */
    SIM_DO_HANG,     /* names, minor, nth (1: the next), pid: calls wait until they are released */
    SIM_DO_RELEASE,  /* names as given before, or empty: all; ends FAIL and HANG */
    SIM_DO_ADVANCE,  /* amount = nanoseconds by which a stepped clock moves on */
    SIM_DO_PERSISTENCE, /* minor, code: 1 on, 0 off */
    SIM_DO_LICENCE,     /* minor, code: enum sim_licence, of a vGPU */
    SIM_DO_DESTROY,     /* minor, code: GPU instance that ends, with its contexts */
    SIM_DO_SRAM,        /* minor: more SRAM errors than the threshold */
    SIM_DO_REMAP,       /* minor, code: enum sim_repair, amount = rows */
    SIM_DO_RETIRE,      /* minor, code: enum sim_repair, amount = pages */
    SIM_DO_LINK,        /* minor, code: NVLink, amount: 1 up, 0 down */
    SIM_DO_SWAP, /* minor, code: the other card of two that exchange their numbers in a reset */
    SIM_DO_TEMPERATURE, /* minor, code: degrees Celsius, 0: as the load has it */
    SIM_DO_END,
};

struct sim_control {
    uint32_t magic;
    uint32_t op;
    uint32_t minor;
    uint32_t code;
    uint32_t pid;
    uint32_t nth;
    uint32_t times;
    uint32_t zero;
    uint64_t amount;
    char names[SIM_CONTROL_NAMES]; /* NUL-terminated */
};
static_assert(sizeof(struct sim_control) == 136, "wire format");

struct sim_control_reply {
    int32_t status; /* 0 or a negative errno; `text` then says why */
    uint32_t len;
    char text[SIM_CONTROL_TEXT];
};

/* Checks a packet of `len` bytes and copies it out: 0 or -EPROTO. */
int control_parse(const void *data, size_t len, struct sim_control *ret);
