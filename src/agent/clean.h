/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `aliquot-agent --clean`: what agents have left on the node goes. */

struct config;

/* Removes the CDI files of shares, the sockets of plugins and of the DRA driver and, where no
 * container uses them, the state directory with all mounts below it and the program for the
 * container runtime; directories that are empty then, too. A state directory that seems to be of
 * something else is refused. Ends with a mark for --probe (HEALTH_READY, where there is --health)
 * that is renewed until SIGTERM; what cannot be removed is logged, the rest is removed, and it is
 * tried again each second. The exit status. */
int clean_main(const struct config *c);
