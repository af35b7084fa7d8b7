/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the loaded objects of this process without dlsym, which this library overrides: a reference
 * to the real one would bind to this library, or to a version that older C libraries do not have.
 */

#include <stdbool.h>
#include <stdint.h>

enum elf_kind {
    ELF_OTHER,
    ELF_SELF,   /* this library */
    ELF_SHADOW, /* another copy of it, in the place of a driver library */
    ELF_CUDA,   /* the CUDA driver */
    ELF_NVML,
};

/* The C library's own function (of libc, or of libdl where it has one), or NULL. */
void *elf_libc_symbol(const char *name);

/* Calls `fill` with a lookup function for the driver library of that kind; false when it is not
 * loaded. */
typedef void *elf_lookup_fn(const void *object, const char *name);
bool elf_with_driver(enum elf_kind kind, void (*fill)(elf_lookup_fn *lookup, const void *object));

/* What holds this address; ELF_OTHER also for what is in no object of our namespace. `ret_known`:
 * whether it is in an object that we can see. */
enum elf_kind elf_kind_of(const void *address, bool *ret_known);

/* The first definition in an object that was loaded before this library, and after the one that
 * holds `caller` where that is not NULL; or NULL. */
void *elf_definition_before_us(const void *caller, const char *name);

/* Whether the address is in the main program. */
bool elf_in_program(const void *address);

/* What dlsym(RTLD_NEXT, name) from `caller` finds beyond ourselves and other copies of us: the
 * first definition in load order after the object that holds `caller`. With `caller` NULL: the
 * first of all, as for RTLD_DEFAULT. */
void *elf_definition_after(const void *caller, const char *name);

/* Makes the driver library of that kind call `replacement` where it calls the function `name` of
 * another library. Calls from everywhere else stay as they are. */
void elf_replace_import(enum elf_kind kind, const char *name, void *replacement);
