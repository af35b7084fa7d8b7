#!/usr/bin/python3 -SE
# SPDX-License-Identifier: Apache-2.0
"""The OCI runtime of CRI-O, whose path is the first argument, on machines whose root may do less than CRI-O expects;
containerd has options for the same. Such a root has not every capability, and without CAP_SYS_RESOURCE it may not lower an
oom_score_adj. A kernel may know the hugetlb controller of cgroup v1 where it is not mounted. crun 1.8 refuses
more of what it gets: a newer version of the specification (keys that it does not know it skips), a limit of PIDs that is
none, and a cgroup v2 beside v1 that has controllers, whatever they are."""

import json
import os
import re
import subprocess
import sys

CRUN_VERSION = "1.0.2"      # of the specification
CONTROLLERS = "/sys/fs/cgroup/unified/cgroup.controllers"
CAPABILITIES = "/usr/include/linux/capability.h"


def own_capabilities():
    with open("/proc/self/status") as status, open(CAPABILITIES) as header:
        (bounding,) = re.findall(r"^CapBnd:\s+(\w+)$", status.read(), re.M)
        known = re.findall(r"^#define\s+(CAP_\w+)\s+(\d+)\s*$", header.read(), re.M)
    return {name for name, bit in known if int(bounding, 16) >> int(bit) & 1}


def adapt(spec):
    process = spec["process"]
    own = own_capabilities()
    for kind, names in process.get("capabilities", {}).items():
        process["capabilities"][kind] = [name for name in names if name in own]
    if "oomScoreAdj" in process:
        with open("/proc/self/oom_score_adj") as mine:
            process["oomScoreAdj"] = max(process["oomScoreAdj"], int(mine.read()))
    if not any(os.path.exists(f"/sys/fs/cgroup/{name}") for name in ("hugetlb", "cgroup.controllers")):
        spec["linux"]["resources"].pop("hugepageLimits", None)


def adapt_to_crun(spec):
    spec["ociVersion"] = CRUN_VERSION
    resources = spec["linux"]["resources"]
    if resources.get("pids", {}).get("limit", 0) <= 0:
        resources.pop("pids", None)
    if os.path.exists(CONTROLLERS):
        with open(CONTROLLERS) as controllers:
            if controllers.read():
                subprocess.run(["mount", "--bind", "/dev/null", CONTROLLERS], check=True)   # of the node's mount namespace


def main():
    _, program, *arguments = sys.argv
    if "create" in arguments:
        path = os.path.join(arguments[arguments.index("--bundle") + 1], "config.json")
        with open(path) as file:
            spec = json.load(file)
        adapt(spec)
        if os.path.basename(program) == "crun":
            adapt_to_crun(spec)
        with open(path, "w") as file:
            json.dump(spec, file)
    os.execv(program, [program, *arguments])


main()
