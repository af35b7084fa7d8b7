/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a driver's installation consists of and which capability each part belongs to, as NVIDIA's
 * container tools have it. All tables end with a NULL name. */

#include <stdbool.h>
#include <stdint.h>

#define DRIVER_LIBRARY_DIRS 17

/* Where a driver is looked for if no place is given: on the host, and where NVIDIA's GPU operator
 * has the root of its driver container. */
extern const char *const driver_roots[];

/* Where distributions put the driver's libraries; one directory may have several of the names. */
extern const char *const driver_library_dirs[DRIVER_LIBRARY_DIRS + 1];

/* Where programs are, in the order of PATH; behind the first DRIVER_PATH_DIRS where distributions
 * have them that images do not know. */
#define DRIVER_PATH_DIRS 6
extern const char *const driver_program_dirs[];

/* The two libraries of which the limits hold, and which every container gets. */
struct driver_carrier {
    const char *soname;
    const char *link;   /* what many programs ask for */
    const char *behind; /* the SONAME of the driver's own when a shadow has the two names */
};
extern const struct driver_carrier driver_carriers[];

/* Libraries named "STEM.so.VERSION", VERSION being the driver's. */
struct driver_library {
    const char *stem;
    uint8_t capabilities; /* of enum driver_capability: for any of them */
    const char *also;     /* another name, which installations do not make; NULL: none */
};
extern const struct driver_library driver_libraries[];

/* Files that have the same path in the container, and libraries without the driver's version. */
struct driver_place {
    const char *name;
    const char *const *dirs;
    uint8_t capabilities;
    bool soname;      /* a library: mounted in the images' search path */
    const char *also; /* another path in the container; NULL: none */
};
extern const struct driver_place driver_places[];

/* Files that loaders read, at a fixed path in the container: CONTAINER/NAME. */
struct driver_config {
    const char *name;
    const char *container;
    uint8_t capabilities;
};
extern const struct driver_config driver_configs[];
extern const char *const driver_config_dirs[];
