# SPDX-License-Identifier: Apache-2.0
"""The parts of an image, as an SPDX 2.3 document: what its programs were really linked to.

Shared libraries are files of the image. What is part of a program is what the linker names when it links that program
once more, and the headers that hold code and that its objects were compiled from. dpkg tells the package of a file."""

import collections
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
import urllib.parse

# By Debian's source packages, of what gets into programs: from /usr/share/doc/PACKAGE/copyright.
LICENCES = {
    "cross-toolchain-base": "LGPL-2.1-or-later",    # glibc for cross-compilers
    "gcc": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "gmp": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "gnutls28": "LGPL-2.1-or-later",
    "libdeflate": "MIT",
    "libffi": "MIT",
    "libidn2": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libmicrohttpd": "LGPL-2.1-or-later",
    "libtasn1-6": "LGPL-2.1-or-later",
    "libunistring": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libuv1": "MIT",
    "libyaml": "MIT",
    "musl": "MIT",
    "nettle": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "nghttp2": "MIT",
    "p11-kit": "BSD-3-Clause",
    "protobuf-c": "BSD-2-Clause",
    "simdjson": "Apache-2.0",
    "uthash": "BSD-1-Clause",
}
OWN_LICENCE = "Apache-2.0"
UNKNOWN = "NOASSERTION"
HEADERS_OF_CODE = ("uthash.h",)     # libraries that consist of headers

Package = collections.namedtuple("Package", "name version source source_version architecture")
PACKAGE_FIELDS = "${Package}\t${Version}\t${source:Package}\t${source:Version}\t${Architecture}\n"


class Parts:
    def __init__(self, image, build):
        """build: the directory from which the image's own programs are."""
        self.image, self.build = image, os.path.realpath(build)
        own = dict(self._targets())
        static = {path: linked_statically(self.build, target) for path, target in own.items()}
        foreign = {path: os.path.realpath(origin) for path, origin in image.origins.items() if path not in own}
        packages = packages_of({*foreign.values(), *(file for files in static.values() for file in files)}, image.sysroot)
        self.package = {path: packages[origin] for path, origin in foreign.items()}
        self.static = {path: sorted({packages[file] for file in files}) for path, files in static.items()}
        self.packages = sorted(set(packages.values()))

    def _targets(self):
        """The programs that the build has made: (path in the image, path in the build directory)."""
        for path, origin in self.image.origins.items():
            origin = os.path.realpath(origin)
            if origin.startswith(self.build + "/"):
                yield path, os.path.relpath(origin, self.build)

    def licences(self):
        """One expression for all."""
        return expression({OWN_LICENCE, *map(licence, self.packages)} - {UNKNOWN})

    def document(self, created):
        """created: as SPDX writes times."""
        name, version = (self.image.config["Labels"]["org.opencontainers.image." + key] for key in ("title", "version"))
        digest = hashlib.sha256(self.image.layer()).hexdigest()
        files = {path: content for path, (kind, _, content) in self.image.entries.items() if kind == "file"}
        sums = {path: hashlib.sha1(content).hexdigest() for path, content in files.items()}
        full = f"{name}-{version}-{self.image.architecture()}"
        root = {
            **_package("Image", name, version, OWN_LICENCE), "primaryPackagePurpose": "CONTAINER", "filesAnalyzed": True,
            "packageVerificationCode": {"packageVerificationCodeValue": hashlib.sha1(
                "".join(sorted(sums.values())).encode()).hexdigest()},
        }
        return {
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": full,
            "documentNamespace": f"https://spdx.org/spdxdocs/{full}-{digest}",
            "creationInfo": {"created": created, "creators": [f"Tool: aliquot_images-{version}"]},
            "packages": [root, _package("Aliquot", "aliquot", version, OWN_LICENCE), *map(_debian, self.packages)],
            "files": [{
                "SPDXID": _id("File", path), "fileName": "." + path, "copyrightText": UNKNOWN, "licenseConcluded": UNKNOWN,
                "checksums": [{"algorithm": "SHA1", "checksumValue": sums[path]},
                              {"algorithm": "SHA256", "checksumValue": hashlib.sha256(files[path]).hexdigest()}],
            } for path in sorted(files)],
            "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                              for one, kind, other in self._relationships(sorted(files))],
        }

    def _relationships(self, files):
        yield "SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"
        for path in files:
            file = _id("File", path)
            yield "SPDXRef-Image", "CONTAINS", file
            if path in self.package:
                yield file, "EXPANDED_FROM_ARCHIVE", _id("Package", self.package[path].name)
            elif path in self.static:
                yield file, "GENERATED_FROM", "SPDXRef-Aliquot"
            for package in self.static.get(path, ()):
                yield file, "STATIC_LINK", _id("Package", package.name)
            for library in self.image.linked.get(path, ()):
                yield file, "DYNAMIC_LINK", _id("File", library)


def licence(package):
    return LICENCES.get(re.sub(r"^gcc-\d+(-cross)?$", "gcc", package.source), UNKNOWN)


def expression(licences):
    return " AND ".join(f"({one})" if " OR " in one else one for one in sorted(licences))


def _id(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.]+", "-", name.strip("/"))


def _package(identifier, name, version, declared):
    return {"SPDXID": f"SPDXRef-{identifier}", "name": name, "versionInfo": version, "licenseDeclared": declared,
            "licenseConcluded": UNKNOWN, "copyrightText": UNKNOWN, "downloadLocation": UNKNOWN, "filesAnalyzed": False}


def _debian(package):
    system = _os_release()
    url = (f"pkg:deb/{system['ID']}/{package.name}@{urllib.parse.quote(package.version, safe='')}"
           f"?arch={package.architecture}&distro={system['ID']}-{system.get('VERSION_ID', 'unstable')}")
    return {
        **_package(_id("Package", package.name).removeprefix("SPDXRef-"), package.name, package.version, licence(package)),
        "supplier": f"Organization: {system['NAME']}",
        "sourceInfo": f"built from the source package {package.source} {package.source_version}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}],
    }


def _os_release():
    with open("/etc/os-release") as f:
        return {name: shlex.split(value)[0] for name, _, value in (line.strip().partition("=") for line in f) if value}


# ---- what is part of a program ----

def _output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def linked_statically(build, target):
    """The files of this machine that are part of a program or library: objects, archives of which a member is, and
    headers of code."""
    commands = _output("ninja", "-C", build, "-t", "commands", target).splitlines()
    objects = [name for command in commands for name in re.findall(r" -o (\S+\.o) ", command)]
    headers = re.findall(r"^    (\S+)$", _output("ninja", "-C", build, "-t", "deps", *objects), re.M)
    found = {os.path.realpath(os.path.join(build, path)) for path in headers if path.endswith(HEADERS_OF_CODE)}
    return sorted(found | set(_in_map(_map_of(build, shlex.split(commands[-1])))))


def _map_of(build, command):
    with tempfile.TemporaryDirectory() as work:
        command[command.index("-o") + 1] = os.path.join(work, "linked")
        subprocess.run([*command, f"-Wl,-Map={work}/map"], cwd=build, check=True)
        with open(os.path.join(work, "map")) as f:
            return f.read()


def _in_map(text):
    """Archives of which a member is needed begin a line; paths of this project are relative."""
    named = re.findall(r"^(/[^\s(]+)\([^)]+\)", text, re.M) + re.findall(r"^LOAD (/\S+\.o)$", text, re.M)
    return {os.path.realpath(path) for path in named}


# ---- dpkg ----

def packages_of(files, sysroot=""):
    """{file: its package}, of real paths. The files below sysroot are in its own database."""
    root = os.path.realpath(sysroot) if sysroot else "/nonexistent"
    asked = collections.defaultdict(dict)   # of each database: {a path that it may know: the file}
    for file in files:
        database, path = (root, file.removeprefix(root)) if file.startswith(root + "/") else ("", file)
        # Some of Debian's packages still have their files in /lib, which is a link to /usr/lib.
        for known in (path, path.removeprefix("/usr")):
            asked[database + "/var/lib/dpkg"][known] = file
    found = {}
    for database, paths in asked.items():
        found.update(_owners(database, paths))
    if missing := sorted(set(files) - set(found)):
        raise RuntimeError("no package has " + ", ".join(missing))
    return found


def _owners(database, paths):
    query = ["dpkg-query", "--admindir=" + database]
    # Its status is not 0: a file has one of the paths asked for.
    said = subprocess.run([*query, "--search", *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    owners = dict(reversed(line.split(": ", 1)) for line in said.splitlines() if not line.startswith("diversion "))
    names = {path: owner.split(",")[0] for path, owner in owners.items() if path in paths}
    return {paths[path]: Package(*_output(*query, "--show", "--showformat=" + PACKAGE_FIELDS, name).rstrip("\n").split("\t"))
            for path, name in names.items()}
