# SPDX-License-Identifier: Apache-2.0
"""The files of a share, made by hand: what the agent would never write, and what it changes while programs run."""

import struct
import subprocess

MAGIC, VERSION = 0x31736c746c71615f, 1
LEDGER_MAGIC = 0x3172676c716c615f
NAMES, DEVICE, DEVICES, MORE = 640, 72, 64, 32
COPY = NAMES + DEVICES * DEVICE
OLD_SIZE = 64 + 2 * COPY
SIZE = OLD_SIZE + 2 * DEVICES * MORE
LEDGER_SLOTS_AT = 128 + 64 * 128
LEDGER_SLOT = 64 + 64 * 32
LEDGER_SIZE = LEDGER_SLOTS_AT + 1024 * LEDGER_SLOT


def first_card(aliquot):
    """The UUID of the simulated machine's first card."""
    copied = subprocess.run([aliquot, "sim", "--", aliquot, "run", "--memory", "1Gi", "--", "sh", "-c",
                             "cat $ALIQUOT_SHARE_DIR/limits"], stdout=subprocess.PIPE, check=True).stdout
    return copied[64 + NAMES:][:48].rstrip(b"\0").decode()


def card(uuid, memory=0, context=0, core=0, overhead=0, physical=0):
    return {"uuid": uuid, "memory": memory, "context": context, "core": core, "overhead": overhead,
            "physical": physical}


def copies(cards):
    """One copy of the limits, and its part that lies behind both."""
    devices = b"".join(struct.pack("<48sQQII", c["uuid"].encode(), c["memory"], c["context"], c["core"], 0) for c in cards)
    more = b"".join(struct.pack("<QQQQ", c["overhead"], c["physical"], 0, 0) for c in cards)
    return (bytes(NAMES - 4) + struct.pack("<I", len(cards)) + devices.ljust(DEVICES * DEVICE, b"\0"),
            more.ljust(DEVICES * MORE, b"\0"))


def limits(*cards, version=VERSION, size=SIZE, magic=MAGIC):
    first, more = copies(cards)
    return struct.pack("<QIIQ", magic, version, size, 0) + bytes(40) + first * 2 + more * 2


def ledger():
    return struct.pack("<QIII", LEDGER_MAGIC, 1, 64, 1024).ljust(LEDGER_SIZE, b"\0")


def make(place, *cards):
    """A share in the directory `place`."""
    (place / "limits").write_bytes(limits(*cards))
    (place / "ledger").write_bytes(ledger())
    return place


def change(place, *cards):
    """What the agent does while programs run: fill the copy that is not in force, then move the index."""
    first, more = copies(cards)
    with open(place / "limits", "r+b", buffering=0) as f:
        head = f.read(64)
        index = struct.unpack_from("<Q", head, 16)[0] + 1
        f.seek(64 + (index & 1) * COPY)
        f.write(first)
        f.seek(OLD_SIZE + (index & 1) * DEVICES * MORE)
        f.write(more)
        f.seek(16)
        f.write(struct.pack("<Q", index))
