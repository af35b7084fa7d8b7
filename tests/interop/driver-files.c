/* SPDX-License-Identifier: Apache-2.0 */

/* Prints what a container gets of the driver installed below a directory, as lines "KIND HOST
 * CONTAINER": driver-files ROOT CAPABILITIES. */

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "gpu/driver/driver.h"
#include "model/driver_capability.h"

int main(int argc, char **argv) {
    static const char *const kinds[] = {
        [GPU_EDIT_NODE] = "node",
        [GPU_EDIT_MOUNT] = "mount",
        [GPU_EDIT_MOUNT_RW] = "mount",
        [GPU_EDIT_ENV] = "env",
    };
    static struct gpu_edits edits;
    const struct gpu_device card = {.minor = 0, .healthy = true};
    const struct gpu_device *cards[] = {&card};
    struct gpu_driver_places places = {.driver_root = "", .sim_dir = "/nonexistent"};
    const struct gpu_driver *driver;
    char library[512];
    struct err err;

    if (argc != 3) {
        (void) fprintf(stderr, "usage: driver-files ROOT CAPABILITIES\n");
        return 2;
    }
    /* Its nodes are below it, too, as in the agent's view of a host. */
    places.host_root = argv[1];
    driver = gpu_driver_find(&places, library);
    if (!driver) {
        (void) fprintf(stderr, "driver-files: no driver below %s\n", argv[1]);
        return 1;
    }
    if (gpu_driver_edits(driver, &places, cards, 1, driver_capabilities_parse(argv[2]), "", &edits,
                         &err) < 0) {
        (void) fprintf(stderr, "driver-files: %s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < edits.count; i++)
        (void) printf("%s %s %s\n", kinds[edits.list[i].kind], edits.list[i].host,
                      edits.list[i].container);
    return 0;
}
