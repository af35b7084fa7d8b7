# SPDX-License-Identifier: Apache-2.0
"""Aliquot's container images, made of files of this machine: no docker, no registry, no base image.

    python3 images/aliquot_images.py --build build --out DIR          DIR/aliquot-agent-dev.tar, …-scheduler-dev.tar
    python3 images/aliquot_images.py --build build --rootfs DIR agent  the files alone (for the Dockerfiles)

An archive is what `docker save` writes (one uncompressed layer): `docker load`, `ctr images import` and
`podman load` read it. An image holds the program and the libraries that it is linked to, nothing else. The
same files give the same bytes: entries are sorted, and nothing says when or where it was made.
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

# As Debian has it: one /usr, so that a library is found under either name.
MERGED_USR = {"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64"}
DRIVER_NEEDS = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
ETC = {
    "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}


class Image:
    """Files of an image: {path: bytes, or ("link", target), or ("dir", mode)} and modes."""

    def __init__(self, tag):
        self.tag = tag
        self.entries = {}
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

    def program(self, path, source, strip=False):
        """A program or library of this machine, with every library that it is linked to."""
        self.file(path, stripped(source) if strip else content_of(source), 0o755)
        for name, found in _libraries(source):
            self.file(_merged(name), content_of(found), 0o755)

    def driver_needs(self):
        """The parts of libc that a driver's libraries are linked to and that arrive with nothing else."""
        for name in DRIVER_NEEDS:
            source = os.path.join("/lib/x86_64-linux-gnu", name)
            self.file(_merged(source), content_of(os.path.realpath(source)), 0o755)

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

    def save(self, directory):
        """Writes DIRECTORY/<name>.tar and returns its path."""
        layer = self.layer()
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "config": self.config, "history": [],
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }, sort_keys=True).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [self.tag], "Layers": ["layer.tar"]}]).encode()
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, re.sub(r"[^a-z0-9-]+", "-", self.tag.rpartition("/")[2]) + ".tar")
        with tarfile.open(path + ".new", "w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in ((config_name, config), ("layer.tar", layer), ("manifest.json", manifest)):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
        os.rename(path + ".new", path)
        return path


def content_of(path):
    with open(path, "rb") as f:
        return f.read()


def stripped(path):
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["strip", "--strip-unneeded", "-o", f.name, path], check=True)
        return content_of(f.name)


def _merged(path):
    """The path below /usr of one that goes through Debian's links."""
    first = "/" + path.split("/")[1]
    return "/" + MERGED_USR[first] + path[len(first):] if first in MERGED_USR else path


def _libraries(program):
    """[(path in the image, file here)] of the libraries of a dynamically linked program."""
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


def agent(build):
    image = Image("docker.io/library/aliquot-agent:dev")
    image.program("/usr/local/bin/aliquot-agent", _built(build, "src/agent/aliquot-agent"), strip=True)
    image.driver_needs()
    # Containers get these files by mount; their own dependencies come from the tenant's libc.
    for name, place in (("libaliquot.so", ""), ("libshadow-cuda.so.1", "shadow/"),
                        ("libshadow-nvidia-ml.so.1", "shadow/")):
        image.file(f"/usr/local/lib/aliquot/node/{place}{name}", stripped(_built(build, "src/intercept/node/" + name)), 0o755)
    image.file("/usr/local/lib/aliquot/aliquot-hook", stripped(_built(build, "src/agent/aliquot-hook")), 0o755)
    image.config["Entrypoint"] = ["/usr/local/bin/aliquot-agent"]
    return image


def scheduler(build):
    image = Image("docker.io/library/aliquot-scheduler:dev")
    image.program("/usr/local/bin/aliquot-scheduler", _built(build, "src/scheduler/aliquot-scheduler"), strip=True)
    image.config["Entrypoint"] = ["/usr/local/bin/aliquot-scheduler"]
    return image


IMAGES = {"agent": agent, "scheduler": scheduler}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="build directory of Meson")
    parser.add_argument("--out", help="directory for the archives")
    parser.add_argument("--rootfs", help="directory for the files of one image")
    parser.add_argument("names", nargs="*", help="agent, scheduler; default: both")
    options = parser.parse_args()
    if unknown := set(options.names) - set(IMAGES):
        parser.error("no such image: " + ", ".join(sorted(unknown)))
    for name in options.names or IMAGES:
        image = IMAGES[name](options.build)
        if options.rootfs:
            unpack(image, options.rootfs)
        else:
            print(image.save(options.out or "."))


if __name__ == "__main__":
    main()
