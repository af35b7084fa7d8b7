# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes binaries of the test cluster: built from Go modules, kept in a cache.

The cache lies outside the repository, at ${ALIQUOT_CACHE:-${XDG_CACHE_HOME:-~/.cache}/aliquot}/bin/<key>,
one directory for each set of tools; the key is a hash of what decides the result (go.mod, go.sum, flags),
so a changed version builds anew and an unchanged one never does.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

from .estimate import CONTAINERD, CRIO, HELM as HELM_SECONDS, KUBERNETES, RUNC as RUNC_SECONDS, Estimate, duration

HERE = os.path.dirname(os.path.abspath(__file__))
GO_WANTED = (1, 26)
GO_FETCHED = "1.26.8"       # where the Go of this machine is older
KUBERNETES_VERSION = "1.36.3"


class BuildError(Exception):
    """The binaries cannot be built; the text says why and what to do."""


class Toolset:
    """One go.mod with `tool` lines, and the binaries that it builds."""

    def __init__(self, name, binaries, flags, seconds, renames=None, in_c=None, cgo=False):
        """in_c: {binary: (module, directory)} of programs in C that come with a module of the toolset."""
        self.name = name
        self.cgo = cgo
        self.in_c = in_c or {}
        self.binaries = binaries
        self.flags = flags
        self.seconds = seconds      # see estimate.py
        self.renames = renames or {}
        self.source = os.path.join(HERE, "go", name)

    def key(self):
        digest = hashlib.sha256(repr((self.flags, self.renames, *self.in_c.items())).encode())
        for name in ("go.mod", "go.sum"):
            with open(os.path.join(self.source, name), "rb") as f:
                digest.update(f.read())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    def directory(self):
        return os.path.join(cache_root(), "bin", self.key())

    def complete(self):
        return all(self.find(b) for b in self.binaries)

    def find(self, binary):
        """Path of the binary: in ALIQUOT_KUBERNETES, else in the cache; None where it is in neither."""
        for directory in _given() + [self.directory()]:
            if os.access(os.path.join(directory, binary), os.X_OK):
                return os.path.join(directory, binary)
        return None


_VERSION_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{k}={v}"
    for k, v in (("gitVersion", "v" + KUBERNETES_VERSION),
                 ("gitMajor", KUBERNETES_VERSION.split(".")[0]),
                 ("gitMinor", KUBERNETES_VERSION.split(".")[1])))

TOOLSETS = (
    Toolset("kubernetes",
            ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
            ["-trimpath", "-ldflags=-s -w " + _VERSION_FLAGS], KUBERNETES,
            renames={"server": "etcd"}),    # etcd's main package is called server
    Toolset("containerd",
            ("containerd", "containerd-shim-runc-v2", "ctr"),
            ["-trimpath", "-tags=no_btrfs no_devmapper no_zfs", "-ldflags=-s -w"], CONTAINERD),
)

CRI_O = Toolset("crio", ("crio", "pinns"),
                ["-trimpath", "-tags=containers_image_openpgp exclude_graphdriver_btrfs", "-ldflags=-s -w"], CRIO,
                in_c={"pinns": ("github.com/cri-o/cri-o", "pinns/src")})    # only for clusters that run it

# Newer than Debian's; only for clusters that name it, by its path.
RUNC = Toolset("runc", ("runc",), ["-trimpath", "-tags=seccomp", "-ldflags=-s -w"], RUNC_SECONDS, cgo=True)

HELM_VERSION = "3.22.0"
# The Kubernetes that it assumes without a cluster. Its own Makefile takes the version of its libraries.
_HELM_ASSUMES = " ".join(f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
                         for package in ("chartutil", "lint/rules")
                         for part, number in zip(("Major", "Minor"), KUBERNETES_VERSION.split(".")))
HELM = Toolset("helm", ("helm",),
               ["-trimpath", f"-ldflags=-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION} {_HELM_ASSUMES}"],
               HELM_SECONDS)
IN_PATH = (*TOOLSETS, CRI_O, HELM)
ALL = (*IN_PATH, RUNC)


def cache_root():
    given = os.environ.get("ALIQUOT_CACHE")
    if given:
        return os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "aliquot")


def _given():
    """ALIQUOT_KUBERNETES: a directory of binaries that are used before those of the cache, and not built."""
    given = os.environ.get("ALIQUOT_KUBERNETES")
    return [os.path.abspath(given)] if given else []


def path_dirs():
    """The directories to put in front of PATH to find every binary."""
    return _given() + [t.directory() for t in IN_PATH]


def find(binary):
    for toolset in ALL:
        if binary in toolset.binaries:
            return toolset.find(binary) or os.path.join(toolset.directory(), binary)
    raise KeyError(binary)


def local_go():
    """The go command of this machine: in PATH, or where go.dev's archive is unpacked by custom."""
    return shutil.which("go") or "/usr/local/go/bin/go"


def go_version():
    """(major, minor) of the go command, or None when there is none that answers."""
    try:
        out = subprocess.run([local_go(), "env", "GOVERSION"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             text=True, check=True, cwd="/").stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.match(r"go(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else None


def find_go(say):
    """Path of a go command that is new enough. An older one fetches the toolchain through the module proxy, as a
    module like any other (verified against the checksum database). Raises BuildError with the remedy."""
    have = go_version()
    if have is None:
        raise BuildError(
            "Go is needed to build Kubernetes for the test cluster, and there is none in PATH.\n"
            "Either of these helps; then run the same command again:\n"
            "  - apt-get install --no-install-recommends golang-go   (an older Go: it fetches the right one)\n"
            f"  - Go {GO_WANTED[0]}.{GO_WANTED[1]} or newer from https://go.dev/dl/, its bin directory in PATH")
    if have >= GO_WANTED:
        return local_go()
    say(f"Go here is {have[0]}.{have[1]}: fetching Go {GO_FETCHED} from the Go module proxy (70 MB)")
    done = subprocess.run([local_go(), "mod", "download", "-json", f"golang.org/toolchain@v0.0.1-go{GO_FETCHED}.linux-amd64"],
                          env=dict(os.environ, GO111MODULE="on", GOFLAGS="", GOTOOLCHAIN="local"), cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BuildError(f"Go {GO_FETCHED} cannot be fetched through the module proxy:\n{done.stdout[-2000:]}")
    root = json.loads(done.stdout)["Dir"]
    for directory, _, files in os.walk(root):      # an archive of a module carries no execute bits
        if os.path.basename(directory) == "bin" or "/pkg/tool" in directory:
            for name in files:
                os.chmod(os.path.join(directory, name), 0o755)
    return os.path.join(root, "bin", "go")


@contextlib.contextmanager
def locked(path, say):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of the same programs is running; waiting for it")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _go_environment(cgo):
    env = dict(os.environ, GOFLAGS="", GOWORK="off", CGO_ENABLED=str(int(cgo)), GOTOOLCHAIN="auto")
    env.pop("GOROOT", None)     # of another Go
    return env


def _count_packages(go, source, env):
    done = subprocess.run([go, "list", "-deps", "tool"], cwd=source, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise BuildError("go cannot resolve the modules of the test cluster:\n" + done.stderr[-2000:])
    return max(1, done.stdout.count("\n"))


class _Progress:
    """Turns `go build -v` (one line for each package that is compiled) into a part of the estimate."""
    SECONDS = 5     # between two lines

    def __init__(self, toolset, total, estimate, say):
        self.toolset, self.total, self.estimate, self.say = toolset, total, estimate, say
        self.count, self.last = 0, 0.0

    def package(self):
        self.count += 1
        now = time.monotonic()
        if now - self.last < self.SECONDS:
            return
        self.last = now
        done = self.estimate.at(self.toolset.name, min(0.95, self.count / self.total))
        self.say(f"building {self.toolset.name} ({done})")


def _build_c(go, source, env, module, directory, out):
    """Compiles the C files in a directory of a module as its own Makefile does."""
    where = subprocess.run([go, "list", "-m", "-f", "{{.Dir}}", module], cwd=source, env=env, text=True, check=True,
                           stdout=subprocess.PIPE).stdout.strip()
    files = sorted(glob.glob(os.path.join(where, directory, "*.c")))
    done = subprocess.run(["gcc", "-std=c99", "-Os", "-static", "-s", "-o", out, *files], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BuildError(f"building {os.path.basename(out)} failed:\n{done.stdout[-2000:]}")


def _build(toolset, go, estimate, say):
    env = _go_environment(toolset.cgo)
    parent = os.path.dirname(toolset.directory())
    work = tempfile.mkdtemp(prefix=f".{toolset.key()}.", dir=parent)
    try:
        source = os.path.join(work, "src")
        shutil.copytree(toolset.source, source)     # go may touch go.sum: never in the user's tree
        say(f"building {toolset.name}: resolving modules ({estimate.at(toolset.name, 0)})")
        progress = _Progress(toolset, _count_packages(go, source, env), estimate, say)
        out = os.path.join(work, "bin")
        os.mkdir(out)
        command = ["nice", go, "build", "-v", *toolset.flags, "-o", out + "/", "tool"]
        tail = []
        with subprocess.Popen(command, cwd=source, env=env, text=True, stderr=subprocess.PIPE) as building:
            try:
                for line in building.stderr:
                    tail = (tail + [line])[-30:]
                    if not line.startswith("go: "):
                        progress.package()
            except BaseException:
                building.terminate()    # it would go on by itself for minutes
                raise
        if building.returncode != 0:
            raise BuildError(f"building {toolset.name} failed:\n" + "".join(tail))
        for old, new in toolset.renames.items():
            os.rename(os.path.join(out, old), os.path.join(out, new))
        for program, (module, directory) in toolset.in_c.items():
            _build_c(go, source, env, module, directory, os.path.join(out, program))
        missing = [b for b in toolset.binaries if not os.access(os.path.join(out, b), os.X_OK)]
        if missing:
            raise BuildError(f"building {toolset.name} did not make {', '.join(missing)}")
        shutil.rmtree(toolset.directory(), ignore_errors=True)
        os.rename(out, toolset.directory())
    finally:
        shutil.rmtree(work, ignore_errors=True)


def missing(toolsets=None):
    """{name: seconds} of the toolsets that the cache lacks."""
    return {toolset.name: toolset.seconds for toolset in toolsets or TOOLSETS if not toolset.complete()}


def ensure(say=print, estimate=None, toolsets=None):
    """Builds what the cache lacks. Safe when several run at once; a killed build leaves nothing half done. `estimate`
    is of a longer run that contains this one and was made when missing() was what it is now."""
    estimate = estimate or Estimate(missing(toolsets))
    for toolset in toolsets or TOOLSETS:
        if toolset.complete():
            continue
        go = find_go(say)
        with locked(os.path.join(cache_root(), "bin", f".{toolset.key()}.lock"), say):
            if toolset.complete():
                continue
            _remove_abandoned(toolset)
            start = time.monotonic()
            _build(toolset, go, estimate, say)
            say(f"built {toolset.name} in {duration(time.monotonic() - start)}; kept in {toolset.directory()}")


def _remove_abandoned(toolset):
    """Removes working directories of builds that were killed; this process has the lock, so they are unused."""
    parent = os.path.dirname(toolset.directory())
    for name in os.listdir(parent):
        if name.startswith(f".{toolset.key()}.") and not name.endswith(".lock"):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
