/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether private keys are wiped before their memory is given back. Sees what is linked statically
 * into the test (the linker's --wrap). */

/* Texts with a private key that were freed since the last call. */
unsigned freed_keys(void);
