/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The simulator's own module format: names of built-in kernels. A real GPU would get PTX here. */

static const char saxpy_module[] = "ALIQUOT SIMULATED MODULE 1\n"
                                   "kernel saxpy saxpy\n";

#define SAXPY_ARGUMENTS(n, a, x, y)                                                                \
    { &(n), &(a), &(x), &(y) }
