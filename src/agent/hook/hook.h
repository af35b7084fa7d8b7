/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The modes of aliquot-hook beside that of the driver's limits. */

/* createContainer: the libraries of the driver into the cache of the dynamic linker. Returns the
 * exit status. */
int hook_ldcache(void);
