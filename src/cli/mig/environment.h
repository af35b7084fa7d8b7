/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Defaults of options from the environment, by mig-parted's names. */

#include <stdbool.h>

/* NULL: not set, or empty. */
const char *env_text(const char *name);
bool env_flag(const char *name);
