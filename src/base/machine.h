/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of the processor in paths and formats of others. */

#if defined(__x86_64__)
#define MACHINE "x86_64"
#define LDCACHE_MACHINE 0x0300u /* in the flags of an entry of the linker's cache */
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#define LDCACHE_MACHINE 0x0a00u
#else
#error "Aliquot runs on x86-64 and on arm64"
#endif

/* The directory of libraries below /usr/lib on Debian and its descendants. */
#define MULTIARCH MACHINE "-linux-gnu"
