/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `aliquot-scheduler --check-uninstall`: helm's hook before it removes a release. */

struct err;
struct scheduler_options;

/* Prints the pods that hold shares. 0: there are none. -EBUSY: there are; or why they cannot be
 * listed. */
int uninstall_check(const struct scheduler_options *options, struct err *err);
