/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/launch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/err.h"
#include "gpu/driver/driver_links.h"

/* The directory of a file; the path has a '/'. */
static int directory_length(const char *path) {
    return (int) (strrchr(path, '/') - path);
}

int mps_environment_make(const struct mps_directories *d, const struct mps_driver *driver,
                         const char *uuid, struct mps_environment *ret, struct err *err) {
    const size_t size = sizeof(ret->text[0]);
    int n = snprintf(ret->text[0], size, "PATH=%.*s:%.*s", directory_length(driver->server),
                     driver->server, directory_length(driver->control), driver->control);

    if (n < 0 || (size_t) n >= size)
        return err_set(err, ENAMETOOLONG, "the path of the driver's programs is too long");
    (void) snprintf(ret->text[1], size, "LD_LIBRARY_PATH=%s/lib", d->base);
    (void) snprintf(ret->text[2], size, "CUDA_MPS_PIPE_DIRECTORY=%s", d->pipe);
    (void) snprintf(ret->text[3], size, "CUDA_MPS_LOG_DIRECTORY=%s", d->log);
    (void) snprintf(ret->text[4], size, "CUDA_VISIBLE_DEVICES=%s", uuid);
    (void) snprintf(ret->text[5], size, "LC_ALL=C");
    for (size_t i = 0; i < MPS_ENV_MAX; i++)
        ret->list[i] = ret->text[i];
    ret->list[MPS_ENV_MAX] = NULL;
    return 0;
}

int mps_libraries_link(const struct mps_directories *d, const struct mps_driver *driver,
                       struct err *err) {
    char to[160];

    (void) snprintf(to, sizeof(to), "%s/lib", d->base);
    return gpu_driver_link_libraries(driver->nvml, to, err);
}

static int fail(const char *what) {
    (void) printf("%s: %s\n", what, strerror(errno));
    return EXIT_FAILURE;
}

int mps_launch_main(int argc, char **argv) {
    char flag[] = "-d";

    if (argc != 4) {
        (void) printf("%s is started by the agent itself\n", MPS_LAUNCH_COMMAND);
        return EXIT_FAILURE;
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return fail("cannot make a mount namespace for MPS");
    if (mount(argv[2], "/dev/shm", NULL, MS_BIND, NULL) < 0)
        return fail("cannot mount the directory of MPS on /dev/shm");
    (void) execv(argv[3], (char *[]){argv[3], flag, NULL});
    return fail(argv[3]);
}
