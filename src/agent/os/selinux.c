/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/selinux.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/err.h"

#define LABEL "system_u:object_r:container_file_t:s0"

int selinux_label(const char *path, const char *interface, struct err *err) {
    if (!interface || access(interface, F_OK) < 0 ||
        setxattr(path, "security.selinux", LABEL, strlen(LABEL) + 1, 0) == 0)
        return 0;
    /* The policy does not know the type, so it has no containers that need it. */
    if (errno == EINVAL)
        return 0;
    return err_errno(err, errno,
                     "cannot label %s as %s for containers (the agent has to be privileged, that "
                     "is, spc_t)",
                     path, LABEL);
}
