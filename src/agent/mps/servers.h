/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MPS servers, the processes that a control daemon starts for its clients. */

/* Kills every program of MPS whose pipe directory is `pipe`: what remained of a control daemon that
 * has ended. A server keeps the card for itself in EXCLUSIVE_PROCESS mode, so that no new one could
 * use it. Returns how many there were. */
unsigned mps_servers_kill(const char *pipe);
