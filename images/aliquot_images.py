# SPDX-License-Identifier: Apache-2.0
"""Aliquot's container images, made of files of this machine: no docker, no registry, no base image.

    python3 images/aliquot_images.py --build build --out DIR [--cross BUILD SYSROOT]...
    python3 images/aliquot_images.py --build build --rootfs DIR agent      the files alone (for the Dockerfiles)

The first form writes for each image:

    aliquot-agent-VERSION.tar         as `docker save` does, with one uncompressed layer
    aliquot-agent-VERSION.oci.tar     an OCI layout, with an index of the images for all processors (oci_layout.py)
    aliquot-agent-VERSION.spdx.json   its parts and their licences (sbom.py)

`docker load`, `ctr images import` and `podman load` read the archives. An image is for the processor that its build is
for. Each `--cross` names a build for another one and the directory of that processor's libraries; what is for that
processor alone is called aliquot-agent-VERSION-arm64. The version is that of the build; it is the image's tag, too.

An image holds the program and the libraries that it is linked to, nothing else. The same files give the same bytes:
entries are sorted, and nothing says when or where it was made, but for the time in SOURCE_DATE_EPOCH, where it is set.
"""

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
import time

import oci_layout
import sbom

# Processors by their numbers in ELF files, and what images call them.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# As Debian has it: one /usr, so that a library is found under either name.
MERGED_USR = {"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64"}
VENDOR = "Aliquot"
DRIVER_NEEDS = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
ETC = {
    "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}


class Image:
    """Files of an image: {path: bytes, or ("link", target), or ("dir", mode)} and modes."""

    def __init__(self, tag, machine=os.uname().machine, sysroot=""):
        """sysroot: where the libraries of a processor are that is not this machine's."""
        self.tag, self.machine, self.sysroot = tag, machine, sysroot
        self.created = None     # seconds since 1970, where the image says it
        self.entries = {}
        self.origins = {}       # of files: the one here that it is a copy of
        self.linked = {}        # of programs: the libraries in the image
        self.config = {"Env": ["PATH=/usr/local/bin:/usr/bin:/usr/sbin"], "WorkingDir": "/"}
        for path, target in MERGED_USR.items():
            self.link(path, target)
        for path, content in ETC.items():
            self.file(path, content)
        for path, mode in (("/tmp", 0o1777), ("/run", 0o755), ("/root", 0o700), ("/proc", 0o555), ("/sys", 0o555),
                           ("/dev", 0o755)):
            self.directory(path, mode)
        self.link("/var/run", "/run")

    def directory(self, path, mode=0o755):
        self._parents(path)
        self.entries[path] = ("dir", mode, None)

    def link(self, path, target):
        self._parents(path)
        self.entries[path] = ("link", 0o777, target)

    def file(self, path, content, mode=0o644):
        self._parents(path)
        self.entries[path] = ("file", mode, content)

    def _parents(self, path):
        parent = os.path.dirname(path)
        if parent != "/" and parent not in self.entries:
            self.directory(parent)

    def copy(self, path, source, strip=False):
        """A program or library of this machine."""
        self.file(path, self._stripped(source) if strip else content_of(source), 0o755)
        self.origins[path] = source

    def program(self, path, source, strip=False):
        """The same, with every library that it is linked to."""
        self.copy(path, source, strip)
        libraries = libraries_of(source, self.sysroot)
        self.linked[path] = sorted(_merged(name) for name, _ in libraries)
        for name, found in libraries:
            self.copy(_merged(name), found)

    def _stripped(self, source):
        strip = f"{self.machine}-linux-gnu-strip" if self.sysroot else "strip"
        with tempfile.NamedTemporaryFile() as f:
            subprocess.run([strip, "--strip-unneeded", "-o", f.name, source], check=True)
            return content_of(f.name)

    def driver_needs(self):
        """The parts of libc that a driver's libraries are linked to and that arrive with nothing else."""
        for name in DRIVER_NEEDS:
            path = f"/lib/{self.machine}-linux-gnu/{name}"
            self.copy(_merged(path), self.sysroot + path)

    def label(self, **values):
        """OCI's own labels, by their last word."""
        labels = self.config.setdefault("Labels", {})
        labels.update({f"org.opencontainers.image.{name}": value for name, value in values.items() if value})

    def architecture(self):
        return ARCHITECTURES[self.machine]

    def file_name(self):
        """Of what is made for this processor."""
        return archive_name(self.tag) + ("-" + self.architecture() if self.sysroot else "")

    def layer(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted(self.entries):
                kind, mode, content = self.entries[path]
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode = mode
                if kind == "dir":
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                elif kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, content
                    tar.addfile(info)
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return out.getvalue()

    def config_of(self, layer):
        """The JSON text that describes an image of this (uncompressed) layer."""
        described = {
            "architecture": self.architecture(), "os": "linux", "config": self.config, "history": [],
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }
        if self.created is not None:
            described["created"] = timestamp(self.created)
        return json.dumps(described, sort_keys=True).encode()

    def save(self, directory):
        """Writes a docker archive and returns its path."""
        layer = self.layer()
        config = self.config_of(layer)
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [self.tag], "Layers": ["layer.tar"]}]).encode()
        path = os.path.join(directory, self.file_name() + ".tar")
        oci_layout.write_tar(path, {config_name: config, "layer.tar": layer, "manifest.json": manifest})
        return path


def archive_name(tag):
    return re.sub(r"[^a-z0-9.-]+", "-", tag.rpartition("/")[2])


def timestamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def content_of(path):
    with open(path, "rb") as f:
        return f.read()


def machine_of(program):
    return ELF_MACHINES[int.from_bytes(content_of(program)[18:20], "little")]


def _merged(path):
    """The path below /usr of one that goes through Debian's links."""
    first = "/" + path.split("/")[1]
    return "/" + MERGED_USR[first] + path[len(first):] if first in MERGED_USR else path


def libraries_of(program, sysroot=""):
    """[(path in the image, file here)] of the libraries of a dynamically linked program. sysroot: where those of another
    processor are."""
    return _libraries_in(sysroot, machine_of(program), program) if sysroot else _libraries_here(program)


def _libraries_here(program):
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        if "not a dynamic executable" in done.stdout or "statically linked" in done.stdout:
            return []
        raise RuntimeError(f"ldd {program}: {done.stdout}")
    if "not found" in done.stdout:
        raise RuntimeError(f"{program} needs libraries that are not here:\n{done.stdout}")
    found = []
    for path in re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", done.stdout, re.M):
        found.append((path, os.path.realpath(path)))
    return found


def _libraries_in(sysroot, machine, program):
    """The same of a program that this machine cannot run: what its loader would find in Debian's directories."""
    found, programs = {}, [program]
    while programs:
        dynamic = subprocess.run(["readelf", "-dlW", programs.pop()], check=True, stdout=subprocess.PIPE, text=True).stdout
        loader = re.findall(r"program interpreter: (/\S+)\]", dynamic)
        for name in loader + re.findall(r"\(NEEDED\)\s+Shared library: \[(\S+)\]", dynamic):
            if os.path.basename(name) in map(os.path.basename, found):
                continue
            paths = [name] if name in loader else [f"{d}/{machine}-linux-gnu/{name}" for d in ("/lib", "/usr/lib")]
            here = [path for path in paths if os.path.exists(sysroot + path)]
            if not here:
                raise RuntimeError(f"{program} needs {name}, which is not in {sysroot}")
            found[here[0]] = sysroot + here[0]
            programs.append(found[here[0]])
    return list(found.items())


def unpack(image, directory):
    """Writes the files themselves."""
    os.makedirs(directory, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(image.layer())) as tar:
        tar.extractall(directory)


def _built(build, path):
    full = os.path.join(build, path)
    if not os.path.exists(full):
        raise FileNotFoundError(f"{full} is not built yet")
    return full


def version_of(build):
    with open(_built(build, "meson-info/intro-projectinfo.json")) as f:
        return json.load(f)["version"]


def _named(name, build, program, sysroot):
    version = version_of(build)
    image = Image(f"docker.io/library/aliquot-{name}:{version}", machine_of(program), sysroot)
    image.label(title=f"aliquot-{name}", version=version, vendor=VENDOR)
    return image


def agent(build, sysroot=""):
    program = _built(build, "src/agent/aliquot-agent")
    image = _named("agent", build, program, sysroot)
    image.label(description="Aliquot's node agent: shares of GPUs with limits, for Kubernetes")
    image.program("/usr/local/bin/aliquot-agent", program, strip=True)
    image.driver_needs()
    # Containers get these files by mount; their own dependencies come from the tenant's libc.
    for name, place in (("libaliquot.so", ""), ("libshadow-cuda.so.1", "shadow/"),
                        ("libshadow-nvidia-ml.so.1", "shadow/")):
        image.copy(f"/usr/local/lib/aliquot/node/{place}{name}", _built(build, "src/intercept/node/" + name), strip=True)
    image.copy("/usr/local/lib/aliquot/aliquot-hook", _built(build, "src/agent/aliquot-hook"), strip=True)
    image.config["Entrypoint"] = ["/usr/local/bin/aliquot-agent"]
    return image


def scheduler(build, sysroot=""):
    program = _built(build, "src/scheduler/aliquot-scheduler")
    image = _named("scheduler", build, program, sysroot)
    image.label(description="Aliquot's scheduler extender: places pods that share GPUs, for Kubernetes")
    image.program("/usr/local/bin/aliquot-scheduler", program, strip=True)
    # For `helm test`: `aliquot doctor` with the few things of kubectl that it needs.
    for name in ("aliquot", "aliquot-kubectl"):
        image.program(f"/usr/local/bin/{name}", _built(build, f"src/cli/{name}"), strip=True)
    image.config["Entrypoint"] = ["/usr/local/bin/aliquot-scheduler"]
    return image


IMAGES = {"agent": agent, "scheduler": scheduler}
# What they are made of, in a build directory.
PROGRAMS = ("src/agent/aliquot-agent", "src/agent/aliquot-hook", "src/scheduler/aliquot-scheduler", "src/cli/aliquot",
            "src/cli/aliquot-kubectl", "src/intercept/node/libaliquot.so", "src/intercept/node/libshadow-cuda.so.1",
            "src/intercept/node/libshadow-nvidia-ml.so.1")


def save_all(images, directory, builds, created=None, revision=""):
    """Writes all files of one image, which is there for several processors; `builds` has the build of each. Returns
    their paths."""
    paths = []
    for image, build in zip(images, builds):
        parts = sbom.Parts(image, build)
        image.created = created
        image.label(licenses=parts.licences(), revision=revision, created=created is not None and timestamp(created))
        paths += [image.save(directory), os.path.join(directory, image.file_name() + ".spdx.json")]
        with open(paths[-1], "w") as f:
            json.dump(parts.document(timestamp(created or 0)), f, indent=1, sort_keys=True)
    return [*paths, oci_layout.save(images, os.path.join(directory, archive_name(images[0].tag) + ".oci.tar"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="build directory of Meson")
    parser.add_argument("--cross", default=[], nargs=2, action="append", metavar=("BUILD", "SYSROOT"),
                        help="a build for another processor, and the directory of its libraries")
    parser.add_argument("--revision", default="", help="the commit, for the labels")
    parser.add_argument("--out", default=".", help="directory for the archives, which are printed with their sizes")
    parser.add_argument("--rootfs", help="directory for the files of one image of --build, in place of archives")
    parser.add_argument("names", nargs="*", help="agent, scheduler; default: both")
    options = parser.parse_args()
    if unknown := set(options.names) - set(IMAGES):
        parser.error("no such image: " + ", ".join(sorted(unknown)))
    created = os.environ.get("SOURCE_DATE_EPOCH")
    builds = [(options.build, ""), *options.cross]
    for name in options.names or IMAGES:
        if options.rootfs:
            unpack(IMAGES[name](options.build), options.rootfs)
            continue
        images = [IMAGES[name](build, sysroot) for build, sysroot in builds]
        for path in save_all(images, options.out, [build for build, _ in builds], int(created) if created else None,
                             options.revision):
            print(f"{os.path.getsize(path):>10,}  {path}")


if __name__ == "__main__":
    main()
