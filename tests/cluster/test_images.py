# SPDX-License-Identifier: Apache-2.0
"""Aliquot's own images: complete, the same bytes each time, with what registries and auditors want to know of them."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

import pytest

from cluster import images

NAMES = sorted(images.IMAGES)
OWN = "/usr/local/"


@pytest.fixture(scope="module")
def build():
    where = os.environ.get("ALIQUOT_BUILD")
    assert where, "set ALIQUOT_BUILD to the build directory"
    return where


def version_of(build):
    return json.loads(pathlib.Path(build, "meson-info/intro-projectinfo.json").read_text())["version"]


@pytest.mark.parametrize("name", NAMES)
def test_same_bytes_each_time(build, tmp_path, name):
    first, second = (images.IMAGES[name](build).save(str(tmp_path / d)) for d in "ab")
    assert pathlib.Path(first).read_bytes() == pathlib.Path(second).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_program_starts_with_nothing_but_its_image(build, tmp_path, name):
    root = str(tmp_path / "root")
    images.unpack(images.IMAGES[name](build), root)
    done = subprocess.run(["chroot", root, f"/usr/local/bin/aliquot-{name}", "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "--listen" in done.stdout


def test_agent_brings_the_library(build):
    entries = images.IMAGES["agent"](build).entries
    for name in ("libaliquot.so", "shadow/libshadow-cuda.so.1", "shadow/libshadow-nvidia-ml.so.1"):
        assert "/usr/local/lib/aliquot/node/" + name in entries
    # The node runs it without this image around it.
    with tempfile.NamedTemporaryFile() as hook:
        hook.write(entries["/usr/local/lib/aliquot/aliquot-hook"][2])
        hook.flush()
        headers = subprocess.run(["readelf", "-lW", hook.name], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "INTERP" not in headers


# ---- OCI layouts ----

class Layout:
    def __init__(self, path):
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar}

    def blob(self, descriptor):
        content = self.files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
        assert len(content) == descriptor["size"]
        return content

    def json(self, descriptor, kind):
        assert descriptor["mediaType"] == f"application/vnd.oci.image.{kind}.v1+json"
        return json.loads(self.blob(descriptor))


def labelled(image):
    image.created = 1_700_000_000
    image.label(revision="0123abc", created="2023-11-14T22:13:20Z")
    return image


@pytest.mark.parametrize("name", NAMES)
def test_oci_layout_has_an_index_with_an_image_for_each_processor(build, tmp_path, name):
    made = {"amd64": labelled(images.IMAGES[name](build)), "arm64": labelled(images.IMAGES[name](build))}
    made["amd64"].machine, made["arm64"].machine = "x86_64", "aarch64"
    made["arm64"].label(licenses="MIT")
    layout = Layout(images.oci_layout.save(list(made.values()), str(tmp_path / "made.oci.tar")))
    assert json.loads(layout.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (tagged,) = json.loads(layout.files["index.json"])["manifests"]
    assert tagged["annotations"] == {"org.opencontainers.image.ref.name": version_of(build),
                                     "io.containerd.image.name": f"docker.io/library/aliquot-{name}:{version_of(build)}"}
    index = layout.json(tagged, "index")
    assert [entry["platform"] for entry in index["manifests"]] == [{"architecture": a, "os": "linux"} for a in made]
    assert index["annotations"] == made["amd64"].config["Labels"]      # what is true for both
    for entry, (architecture, image) in zip(index["manifests"], made.items()):
        manifest = layout.json(entry, "manifest")
        config = layout.json(manifest["config"], "config")
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
        content = gzip.decompress(layout.blob(layer))
        assert content == image.layer()
        assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(content).hexdigest()]
        assert (config["architecture"], config["os"], config["created"]) == (architecture, "linux", "2023-11-14T22:13:20Z")
        assert manifest["annotations"] == config["config"]["Labels"] == image.config["Labels"]
    # The blobs of one program for both would be one.
    assert len(layout.files) == 3 + 2 * 2 + 1


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_those_of_oci(build, name):
    labels = labelled(images.IMAGES[name](build)).config["Labels"]
    assert {label.removeprefix("org.opencontainers.image."): value for label, value in labels.items()} == {
        "title": f"aliquot-{name}", "version": version_of(build), "vendor": "Aliquot", "revision": "0123abc",
        "created": "2023-11-14T22:13:20Z", "description": labels["org.opencontainers.image.description"]}


# ---- SBOM ----

@pytest.fixture(scope="module", params=NAMES)
def made(build, request):
    """An image and its document."""
    image = images.IMAGES[request.param](build)
    return image, images.sbom.Parts(image, build).document("2023-11-14T22:13:20Z")


def related(document, kind, element=None):
    return [r["relatedSpdxElement"] for r in document["relationships"]
            if r["relationshipType"] == kind and element in (None, r["spdxElementId"])]


def file_of(document, path):
    (found,) = [f["SPDXID"] for f in document["files"] if f["fileName"] == "." + path]
    return found


def test_sbom_lists_every_file_and_its_package(made):
    image, document = made
    assert document["spdxVersion"] == "SPDX-2.3" and document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    content = {"." + path: entry[2] for path, entry in image.entries.items() if entry[0] == "file"}
    listed = {f["fileName"]: {c["algorithm"]: c["checksumValue"] for c in f["checksums"]} for f in document["files"]}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in content.items()} == \
        {name: sums["SHA256"] for name, sums in listed.items()}
    for path in image.origins:
        origin = related(document, "GENERATED_FROM" if path.startswith(OWN) else "EXPANDED_FROM_ARCHIVE",
                         file_of(document, path))
        assert len(origin) == 1 and (origin == ["SPDXRef-Aliquot"]) == path.startswith(OWN), path
    identifiers = [e["SPDXID"] for e in (*document["packages"], *document["files"])]
    assert len(set(identifiers)) == len(identifiers)
    named = {r[end] for r in document["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
    assert named == {*identifiers, "SPDXRef-DOCUMENT"}      # nothing is named that is not there, and the reverse


def test_sbom_has_versions_and_licences(made):
    _, document = made
    packages = {p["name"]: p for p in document["packages"] if p["SPDXID"].startswith("SPDXRef-Package")}
    shown = subprocess.run(["dpkg-query", "-W", "-f=${Package}\t${Version}\n", *packages], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    assert dict(line.split("\t") for line in shown.splitlines()) == {n: p["versionInfo"] for n, p in packages.items()}
    for package in packages.values():
        assert package["licenseDeclared"] != "NOASSERTION" and package["supplier"].startswith("Organization: ")
        assert re.match(r"pkg:deb/\w+/[\w.+-]+@[\w.%-]+\?", package["externalRefs"][0]["referenceLocator"])


def test_sbom_has_what_programs_were_linked_to(made, build):
    image, document = made
    for path, origin in image.origins.items():
        if not path.startswith(OWN + "bin/"):
            continue
        dynamic = subprocess.run(["readelf", "-d", origin], check=True, stdout=subprocess.PIPE, text=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", dynamic)
        libraries = related(document, "DYNAMIC_LINK", file_of(document, path))
        assert needed and all(any(one.endswith("-" + re.sub(r"[^\w.]+|_", "-", name)) for one in libraries) for name in needed)
        # What is headers alone is linked as well.
        assert "SPDXRef-Package-uthash-dev" in related(document, "STATIC_LINK", file_of(document, path))
    hook = [path for path in image.origins if path.endswith("aliquot-hook")]
    for path in hook:
        static = related(document, "STATIC_LINK", file_of(document, path))
        assert "SPDXRef-Package-musl-dev" in static and "SPDXRef-Package-libc6-dev" not in static
    assert bool(hook) == ("/aliquot-agent:" in image.tag)


def test_members_of_archives_are_part_of_a_program(tmp_path):
    """An archive of which no member is needed is not."""
    for name in ("used", "unused"):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 0; }}\n")
        subprocess.run(["sh", "-euc", f"gcc -c {name}.c && ar rc lib{name}.a {name}.o"], check=True, cwd=tmp_path)
    (tmp_path / "main.c").write_text("int used(void);\nint main(void) { return used(); }\n")
    (tmp_path / "build.ninja").write_text(f"rule cc\n  command = gcc -o $out $in {tmp_path}/libused.a {tmp_path}/libunused.a\n"
                                          "build program: cc main.c\n")
    found = images.sbom.linked_statically(str(tmp_path), "program")
    assert str(tmp_path / "libused.a") in found and str(tmp_path / "libunused.a") not in found
    assert any(path.endswith("/Scrt1.o") for path in found)


def test_file_of_no_package_is_named(tmp_path):
    (tmp_path / "stray.a").write_text("")
    with pytest.raises(RuntimeError, match="no package has .*/stray.a"):
        images.sbom.packages_of([str(tmp_path / "stray.a")])
