# SPDX-License-Identifier: Apache-2.0
"""The files of a share in its container: they cannot be moved away, what a container writes to them is bounded on the
node, and nothing of them stays on the node, whatever the pod is."""

import json
import os
import re

import pytest
from cluster import api as kube
from kit import OUT_OF_MEMORY, PORT, GiB, check_view, container, is_running, pod

NOT_PERMITTED = 800
SHARE = "/dev/aliquot"
IMAGE = "localhost/aliquot-workload:1"


def shell(space, name, script):
    """The output of a shell in the container; its commands may fail."""
    return space.exec(name, "sh", "-c", f"({script}) 2>&1; true")


def within_limit(space, seen, port=PORT, limit=2 * GiB):
    """A new process gets what the container may have, and no more."""
    with space.tenant(seen, port) as tenant:
        assert tenant.info()["total"] == limit
        assert tenant.alloc(limit - GiB) == 0
        assert tenant.alloc(GiB) == OUT_OF_MEMORY


def left_on_node(world):
    """Mounts of shares, and the mount point in the node's /dev."""
    mounts = world.cluster.on_node(["cat", "/proc/self/mountinfo"]).stdout
    found = [line for line in mounts.splitlines() if "/aliquot/shares/" in line]
    if os.path.exists(world.node_path(SHARE)):
        found.append(SHARE)
    return found


def wait_nothing_left(world, space, name):
    space.end(name, grace=1)
    world.wait_all_released()
    assert left_on_node(world) == []


MOVES = [
    f"mv {SHARE} /elsewhere", f"mv {SHARE} /dev/elsewhere", "mv /dev /elsewhere", f"rm -r {SHARE}", f"rmdir {SHARE}",
    f"mv {SHARE}/limits /elsewhere", f"rm {SHARE}/limits", f"rm {SHARE}/ledger", f"echo x > {SHARE}/limits",
    f"echo x > {SHARE}/libaliquot.so", f"chmod 777 {SHARE}/limits", f"ln -sf /etc/passwd {SHARE}/limits",
    f"umount {SHARE}/limits", f"umount {SHARE}", f"mount -o remount,rw,bind {SHARE}", "mount -t tmpfs none /mnt",
    "mkdir -p /new/old && pivot_root /new /new/old",
]


@pytest.mark.parametrize("context", [{}, {"runAsUser": 1000}, {"readOnlyRootFilesystem": True}],
                         ids=["root", "a user", "a read-only root"])
def test_no_file_can_be_moved_away(world, space, context):
    """With the capabilities that containers have by default."""
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB, securityContext=context)))
    listing = shell(space, "pod", f"ls -lR {SHARE}")
    done = shell(space, "pod", "; ".join(f"({move}) && echo DONE {move!r}" for move in MOVES))
    assert "DONE" not in done, done
    assert shell(space, "pod", f"ls -lR {SHARE}") == listing
    within_limit(space, seen)


def answer(text):
    """Where cuda-share was refused, and with what."""
    found = re.search(r"error=(\S+) answered (\d+)", text)
    allocated = re.search(r"alloc_result=(\d+)", text)
    assert found or allocated, text
    return (found[1], int(found[2])) if found else ("cuMemAlloc", int(allocated[1]))


def take(space, name, before="", size="3Gi"):
    """The answer to a new process that a command runs."""
    return answer(shell(space, name, f"{before} cuda-share --bytes {size}"))


def hidden(what, then='exec "$@"'):
    """A command that runs another where a directory is empty."""
    return f"unshare -Ur --mount sh -c 'mount -t tmpfs none {what} && {then}' sh"


LIMITED = ("cuMemAlloc", OUT_OF_MEMORY)
REFUSED = ("cuInit", NOT_PERMITTED)


def test_without_the_preload_the_limit_holds(world, space):
    """/etc is the image's, so it can be replaced. Then the shadow libraries are what programs find."""
    space.start(pod("pod", container(core=10, memory=2 * GiB)))
    assert take(space, "pod", hidden("/etc")) == LIMITED
    assert take(space, "pod", hidden("/etc"), "1Gi") == ("cuMemAlloc", 0)
    shell(space, "pod", "mv /etc /etc2; rm -rf /etc")
    assert take(space, "pod") == LIMITED


def new_root(then):
    """A command that runs another under a new root in user and mount namespaces of its own."""
    return ("unshare -Ur --mount sh -c 'mkdir -p /root/old && mount --rbind / /mnt && cd /mnt && " + then +
            " && pivot_root . root && umount -l /root && exec \"$@\"' sh")


def test_sandboxes(world, space):
    """Under a new root the driver works within the limit where the share can be reached, and is refused elsewhere."""
    space.start(pod("pod", container(core=10, memory=2 * GiB)))
    shell(space, "pod", "mkdir -p /mnt /root")
    assert take(space, "pod", "env -i PATH=/usr/bin") == LIMITED
    assert take(space, "pod", "unshare -Ur") == LIMITED
    assert take(space, "pod", "unshare -Ur --mount") == LIMITED
    assert take(space, "pod", new_root("true")) == LIMITED
    assert take(space, "pod", new_root("mount -t tmpfs none dev")) == REFUSED
    assert take(space, "pod", new_root("mount -t tmpfs none dev/aliquot")) == REFUSED


# In both copies of the limits: the first card's bytes, behind a head of 64 bytes, 640 of names and 48 of UUID. 0 is no limit.
FORGED = f"""cp {SHARE}/limits {SHARE}/ledger /forged/ && chmod 666 /forged/limits &&
for at in 752 6000; do dd if=/dev/zero of=/forged/limits bs=1 seek=$at count=8 conv=notrunc; done &&
mount -t tmpfs none {SHARE} && touch {SHARE}/limits {SHARE}/ledger &&
mount --bind /forged/ledger {SHARE}/ledger && mount --bind /forged/limits {SHARE}/limits &&
mount -o remount,bind,ro {SHARE}/limits && exec cuda-share --bytes 20Gi --hold"""


def test_a_forged_share_is_found(world, space):
    """In namespaces of its own a container's root can mount what it likes, also read-only. The driver's figures tell."""
    space.start(pod("pod", container(core=10, memory=2 * GiB)))
    shell(space, "pod", "mkdir /forged")
    shell(space, "pod", f"unshare -Ur --mount sh -c '{FORGED}' > /forged/log 2>&1 < /dev/null &")
    assert "GPU" in space.event("pod", "GPUMemoryOveruse|GPULibraryBypassed", 10)
    assert "ready=yes" in shell(space, "pod", "cat /forged/log")


def test_growing_files_are_bounded_on_the_node(world, space):
    """A container that writes to its ledger and account without end fills its own small file system only."""
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB)))
    other = space.start(pod("other", container(core=10, memory=2 * GiB)))

    def used():
        at = os.statvfs(world.node_path("/run"))
        return (at.f_blocks - at.f_bfree) * at.f_frsize
    before = used()
    for name in ("ledger", "compute"):
        text = shell(space, "pod", f"dd if=/dev/zero of={SHARE}/{name} bs=1M seek=8 count=256 conv=notrunc; "
                                   f"fallocate -l 1G {SHARE}/{name}; ls -s {SHARE}/{name}")
        assert "No space left on device" in text, text
    sizes = world.cluster.on_node(["sh", "-c", "stat -fc '%b %S' /run/aliquot/shares/*/tenant"]).stdout
    for line in sizes.splitlines():
        blocks, size = map(int, line.split())
        assert blocks * size <= 8 << 20
    assert len(sizes.splitlines()) == 2 and used() - before <= 8 << 20
    within_limit(space, other)
    space.delete("pod", grace=1)
    assert seen["metadata"]["uid"] not in world.allocated()


def test_a_restarted_agent_takes_the_files_away(world, space):
    """The mounts of one agent are those of the next."""
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB)))
    world.agent.wait_restarted(world.agent.kill())
    assert len(left_on_node(world)) == 1
    within_limit(space, seen)
    wait_nothing_left(world, space, "pod")


@pytest.mark.parametrize("change", [f"chown 1000:1000 {SHARE}/ledger {SHARE}/compute",
                                    f"chmod 400 {SHARE}/ledger {SHARE}/compute"], ids=["owner", "mode"])
def test_a_restarted_container_has_its_files_as_at_first(world, space, change):
    """Root of the container can change owner and mode of the files that it writes. That ends with the container."""
    context = {"capabilities": {"drop": ["DAC_OVERRIDE"]}}
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB, securityContext=context)))
    assert shell(space, "pod", change) == ""
    assert take(space, "pod") == REFUSED
    old = seen["status"]["containerStatuses"][0]["containerID"]
    world.ctr("tasks", "kill", "-s", "SIGKILL", old.partition("://")[2])
    within_limit(space, space.wait("pod", lambda s: is_running(s) and s["status"]["containerStatuses"][0]["containerID"] != old))


# ---- pods that have more of the node ----

def test_the_nodes_dev(world, space):
    """The mount point is then a directory of the node's /dev, and goes with the last share."""
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB, volumeMounts=[{"name": "dev", "mountPath": "/dev"}]),
                           volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}]))
    assert os.listdir(world.node_path(SHARE)) == []
    done = shell(space, "pod", f"(mv {SHARE} /dev/elsewhere || rm -r {SHARE}) && echo DONE")
    assert "DONE" not in done, done
    check_view(space, seen)
    within_limit(space, seen)
    wait_nothing_left(world, space, "pod")


def test_volumes_over_the_share(world, space):
    """Ours cover those of the pod on the same paths."""
    paths = [SHARE, *(f"{SHARE}/{name}" for name in ("limits", "ledger", "grants", "compute", "libaliquot.so"))]
    mounts = [{"name": "own", "mountPath": path, **({"subPath": path.rpartition("/")[2]} if path != SHARE else {})}
              for path in paths]
    make = container("make", argv=["sh", "-c", "touch /own/limits /own/ledger /own/grants /own/compute /own/libaliquot.so"],
                     volumeMounts=[{"name": "own", "mountPath": "/own"}])
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB, volumeMounts=mounts), init=[make],
                           volumes=[{"name": "own", "emptyDir": {}}]))
    within_limit(space, seen)
    wait_nothing_left(world, space, "pod")


def test_a_privileged_pod(world, space):
    """It may unmount its share, and then has no driver; it owns the node anyway."""
    seen = space.start(pod("pod", container(core=10, memory=2 * GiB, securityContext={"privileged": True})))
    within_limit(space, seen)
    shell(space, "pod", f"umount -l {SHARE}")
    assert shell(space, "pod", f"ls {SHARE}") == ""
    with space.tenant(seen) as tenant:
        assert tenant.driver()["result"] == NOT_PERMITTED
        assert tenant.alloc(GiB) != 0
    wait_nothing_left(world, space, "pod")


def test_a_debug_container(world, space):
    """`kubectl debug --target` has no share. Through the target's root it is within the target's limit."""
    space.start(pod("pod", container(core=10, memory=2 * GiB)))
    body = space.get("pod")
    body["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": body["spec"]["containers"][0]["image"],
                                            "imagePullPolicy": "Never", "command": ["sleep", "600"],
                                            "targetContainerName": "main"}]
    world.api.request("PUT", f"{space.path}/pod/ephemeralcontainers", body)
    space.wait("pod", lambda p: any("running" in s["state"] for s in p["status"].get("ephemeralContainerStatuses", [])),
               30, "the debug container runs")

    def debug(script):
        return world.cluster.kubectl("exec", "-n", space.name, "pod", "-c", "debugger", "--", "sh", "-c",
                                     f"({script}) 2>&1; true")
    assert "No such file" in debug(f"ls {SHARE}")
    assert debug("ls -d /dev/nvidia* /run/aliquot-sim") != "" and "nvidiactl" not in debug("ls /run/aliquot-sim /dev")
    assert answer(debug("chroot /proc/1/root cuda-share --bytes 3Gi")) == LIMITED
    assert answer(debug("chroot /proc/1/root cuda-share --bytes 1Gi")) == ("cuMemAlloc", 0)
    wait_nothing_left(world, space, "pod")


# ---- a user namespace ----

def bundle(world, spec, command):
    """Configuration for runc: the mounts and the environment that a container of the share gets, in user, mount and IPC
    namespaces of its own, with the default capabilities. The node's /proc: the kernel refuses to mount another in a user
    namespace while parts of that one are covered, as they are on the tests' node."""
    edits = spec["devices"][0]["containerEdits"]
    ids = [{"containerID": 0, "hostID": 100000, "size": 65536}]
    capabilities = [f"CAP_{name}" for name in CAPABILITIES.split()]
    mounts = [{"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]},
              {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]}]
    mounts += [{"destination": m["containerPath"], "type": "bind", "source": m["hostPath"], "options": m["options"]}
               for m in edits["mounts"]]
    return {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "mounts": mounts,
            "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["sh", "-c", command],
                        "env": ["PATH=/usr/bin", *edits.get("env", [])],
                        "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")}},
            "linux": {"namespaces": [{"type": kind} for kind in ("user", "mount", "ipc")],
                      "uidMappings": ids, "gidMappings": ids, "cgroupsPath": f"/{world.cluster.cgroup}/user-namespace"}}


CAPABILITIES = ("AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP "
                "SETUID SYS_CHROOT")


def test_a_user_namespace(world, space):
    """`hostUsers: false`: kubelet refuses it with this runc, which has no mounts with mapped IDs for volumes. So runc gets
    the mounts of a pod's share, in a container as kubelet would ask for."""
    space.start(pod("pod", container(core=10, memory=2 * GiB)))
    (name,) = [n for n in world.shares() if n.endswith(".json")]
    with open(world.node_path(f"/run/cdi/{name}")) as f:
        spec = json.load(f)
    top = "/run/user-namespace"
    world.cluster.on_node(["sh", "-c", f"mkdir -p {top}/image {top}/rootfs"])
    world.ctr("images", "mount", IMAGE, f"{top}/image")
    world.cluster.on_node(["sh", "-c", f"cp -a {top}/image/. {top}/rootfs/ && chown -R 100000:100000 {top}/rootfs"])
    world.ctr("images", "unmount", f"{top}/image")

    def run(command):
        with open(world.node_path(f"{top}/config.json"), "w") as f:
            json.dump(bundle(world, spec, f"({command}) 2>&1; true"), f)
        return world.cluster.on_node(["runc", "--root", f"{top}/state", "run", "-b", top, "user-namespace"]).stdout

    assert re.search(r" 65534 .*limits", run(f"ls -ln {SHARE}/limits"))
    done = run("; ".join(f"({move}) && echo DONE {move!r}" for move in MOVES))
    assert "DONE" not in done, done
    assert answer(run("cuda-share --bytes 1Gi")) == ("cuMemAlloc", 0)
    assert answer(run("cuda-share --bytes 3Gi")) == LIMITED
    assert answer(run(hidden(SHARE) + " cuda-share --bytes 1Gi")) == REFUSED
    wait_nothing_left(world, space, "pod")
