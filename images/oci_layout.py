# SPDX-License-Identifier: Apache-2.0
"""OCI image layouts (https://github.com/opencontainers/image-spec/blob/main/image-layout.md), each in one tar archive.

A layout has one tag, of an index that has the image for each processor. `ctr images import`, `podman load` and
`skopeo copy --all oci-archive:FILE docker://REGISTRY/...` read it."""

import hashlib
import io
import json
import os
import subprocess
import tarfile

MEDIA_TYPE = "application/vnd.oci.image."
INDEX, MANIFEST, CONFIG, LAYER = (MEDIA_TYPE + kind for kind in (
    "index.v1+json", "manifest.v1+json", "config.v1+json", "layer.v1.tar+gzip"))


def save(images, path):
    """Writes the layout of one image, which is there for several processors, and returns its path."""
    layout = _Layout()
    manifests = [dict(layout.manifest(image), platform={"architecture": image.architecture(), "os": "linux"})
                 for image in images]
    # What is true for one processor only is in its manifest.
    labels = [image.config.get("Labels", {}) for image in images]
    common = {name: value for name, value in labels[0].items() if all(other.get(name) == value for other in labels)}
    index = layout.add_json(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": common})
    tag = images[0].tag
    names = {"org.opencontainers.image.ref.name": tag.rpartition(":")[2], "io.containerd.image.name": tag}
    write_tar(path, {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "mediaType": INDEX,
                                  "manifests": [dict(index, annotations=names)]}, sort_keys=True).encode(),
        **dict(sorted(layout.blobs.items())),
    })
    return path


class _Layout:
    def __init__(self):
        self.blobs = {}     # by path in the layout

    def add(self, media_type, content):
        """Returns the descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs["blobs/sha256/" + digest] = content
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content)}

    def add_json(self, media_type, value):
        return self.add(media_type, json.dumps(value, sort_keys=True).encode())

    def manifest(self, image):
        layer = image.layer()
        return self.add_json(MANIFEST, {
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": self.add(CONFIG, image.config_of(layer)),
            "layers": [self.add(LAYER, compressed(layer))],
            "annotations": image.config.get("Labels", {}),
        })


def compressed(content):
    """In gzip's format, and 4 % smaller than gzip does it."""
    return subprocess.run(["libdeflate-gzip", "-12", "-n", "-c"], input=content, stdout=subprocess.PIPE, check=True).stdout


def write_tar(path, members):
    """Files with nothing that says when or where, in the order given; the archive is there whole or not at all."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with tarfile.open(path + ".new", "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    os.rename(path + ".new", path)
