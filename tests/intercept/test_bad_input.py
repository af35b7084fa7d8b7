# SPDX-License-Identifier: Apache-2.0
"""Damaged share files: each has a defined outcome, and none crashes a program. docs/failure-modes.md lists
the outcomes."""

import os
import random
import struct
import subprocess

import handmade
import pytest

GIB = 1 << 30
CARD = 80 * GIB
NOTHING = ["2", "0 0"]


@pytest.fixture(scope="module")
def uuid(aliquot):
    """Of the simulated machine's first card."""
    return handmade.first_card(aliquot)


@pytest.fixture
def ask(sim, programs, library):
    """Commands to a holder in the share of a directory; its answers."""
    def run(place, *commands, **options):
        lines = "; ".join(f"echo {c}" for c in commands)
        return sim("sh", "-c", f"({lines}) | {programs}/holder",
                   env={"LD_PRELOAD": library, "ALIQUOT_SHARE_DIR": str(place)}, **options).stdout.splitlines()
    return run


def test_a_whole_share_works(ask, uuid, tmp_path):
    """So that what follows fails for the reason given."""
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB))
    assert ask(tmp_path, f"take {GIB}", "info", f"take {4 * GIB}") == ["0", f"{3 * GIB} {4 * GIB}", "2"]


@pytest.mark.parametrize("name, content", [
    ("empty", lambda whole: b""),
    ("half written", lambda whole: whole[:len(whole) // 2]),
    ("the head only", lambda whole: whole[:64]),
    ("one byte short", lambda whole: whole[:-1]),
    ("another magic", lambda whole: b"x" + whole[1:]),
    ("newer version", lambda whole: whole[:8] + struct.pack("<I", 2) + whole[12:]),
    ("a size that it has not", lambda whole: whole[:12] + struct.pack("<I", 99) + whole[16:]),
])
def test_limits_that_cannot_be_read_give_nothing(ask, uuid, tmp_path, name, content):
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB))
    (tmp_path / "limits").write_bytes(content((tmp_path / "limits").read_bytes()))
    assert ask(tmp_path, "take 1000", "info") == NOTHING, name


def test_limits_that_are_not_there_give_nothing(ask, tmp_path):
    (tmp_path / "ledger").write_bytes(handmade.ledger())
    assert ask(tmp_path, "take 1000", "info") == NOTHING


def test_older_and_longer_files_are_read(ask, uuid, tmp_path):
    card = handmade.card(uuid, 4 * GIB)
    handmade.make(tmp_path, card)
    (tmp_path / "limits").write_bytes(handmade.limits(card, size=handmade.OLD_SIZE)[:handmade.OLD_SIZE])
    assert ask(tmp_path, f"take {GIB}", "info") == ["0", f"{3 * GIB} {4 * GIB}"]
    (tmp_path / "ledger").write_bytes(handmade.ledger())
    (tmp_path / "limits").write_bytes(handmade.limits(card, size=handmade.SIZE + 500) + bytes(500))
    assert ask(tmp_path, f"take {GIB}", "info") == ["0", f"{3 * GIB} {4 * GIB}"]


@pytest.mark.parametrize("memory", [0, 2**64 - 1, 2**63])
def test_extreme_limits(ask, uuid, tmp_path, memory):
    """Zero is no limit, and more than the card has is the card."""
    handmade.make(tmp_path, handmade.card(uuid, memory))
    took, info, much, refused = ask(tmp_path, f"take {GIB}", "info", f"take {2**63}", f"take {2**64 - 1}")
    free, total = map(int, info.split())
    assert took == "0" and total == CARD and CARD - 2 * GIB < free <= CARD - GIB and much == refused == "2"


@pytest.mark.parametrize("overhead, free", [(GIB, 2 * GIB), (4 * GIB, 0), (2**64 - 1, 0)])
def test_overhead_counts_as_used(ask, uuid, tmp_path, overhead, free):
    """Also one that is more than the limit."""
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB, overhead=overhead))
    took, info, *rest = ask(tmp_path, f"take {GIB}", "info", "memory", f"take {2 * GIB + 1}", f"take {2 * GIB}")
    assert took == ("0" if free else "2") and info == f"{free} {4 * GIB}"
    assert list(map(int, rest[0].split())) == [4 * GIB - free, free, 4 * GIB] * 2
    assert rest[1:] == ["2", "0" if free else "2"]


def test_a_limit_for_a_card_that_is_not_there(ask, uuid, tmp_path):
    """Cards in view that are not in the share give nothing; garbage for a UUID is no card."""
    for other in ("GPU-00000000-0000-0000-0000-000000000000", "", "GPU-", "x" * 47):
        handmade.make(tmp_path, handmade.card(other, 4 * GIB))
        assert ask(tmp_path, "take 1000")[0] == "2", other
    handmade.make(tmp_path, handmade.card("", 4 * GIB), handmade.card(uuid, 2 * GIB))
    assert ask(tmp_path, f"take {GIB}", "info") == ["0", f"{GIB} {2 * GIB}"]
    handmade.make(tmp_path)
    assert ask(tmp_path, "take 1000")[0] == "2"


@pytest.mark.parametrize("name, content", [
    ("empty", lambda whole: b""),
    ("truncated", lambda whole: whole[:8192]),
    ("another magic", lambda whole: b"x" + whole[1:]),
    ("newer version", lambda whole: whole[:8] + struct.pack("<I", 2) + whole[12:]),
    ("fewer slots", lambda whole: whole[:16] + struct.pack("<I", 7) + whole[20:]),
])
def test_ledgers_that_cannot_be_used_give_nothing(ask, uuid, tmp_path, name, content):
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB))
    (tmp_path / "ledger").write_bytes(content(handmade.ledger()))
    assert ask(tmp_path, "take 1000")[0] == "2", name


def test_a_ledger_that_cannot_be_written_gives_nothing(aliquot, programs, library, uuid, tmp_path):
    place = tmp_path / "share"
    place.mkdir()
    handmade.make(place, handmade.card(uuid, 4 * GIB))
    script = (f"mount --bind {place} {place} && mount -o remount,ro,bind {place} && echo take 1000 | {programs}/holder")
    done = subprocess.run([aliquot, "sim", "--", "unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=True, env=dict(os.environ, LD_PRELOAD=library, ALIQUOT_SHARE_DIR=str(place)))
    assert done.stdout == "2\n"


def test_a_ledger_on_a_full_file_system_gives_nothing(aliquot, programs, library, uuid, tmp_path):
    """A sparse file: without a place for its slot a process must not be ended by its first write."""
    place, full = tmp_path / "share", tmp_path / "full"
    place.mkdir(), full.mkdir()
    handmade.make(place, handmade.card(uuid, 4 * GIB))
    first = f"(echo take 1000; cat {tmp_path}/hold) | {programs}/holder > {tmp_path}/first &"
    script = (f"mount -t tmpfs -o size=256k none {full} && cp {place}/limits {full}/ && "
              f"truncate -s {handmade.LEDGER_SIZE} {full}/ledger && "
              f"dd if={place}/ledger of={full}/ledger bs={handmade.LEDGER_SLOTS_AT} count=1 conv=notrunc status=none && "
              f"(cat /dev/zero > {full}/rest || true) 2>/dev/null && mkfifo {tmp_path}/hold && touch {tmp_path}/first && "
              f"{first} while ! grep -q . {tmp_path}/first; do sleep 0.02; done; "
              f"echo take 1000 | {programs}/holder; rm {full}/rest; echo take 1000 | {programs}/holder; "
              f": > {tmp_path}/hold; wait")
    done = subprocess.run([aliquot, "sim", "--", "unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                          timeout=60, env=dict(os.environ, LD_PRELOAD=library, ALIQUOT_SHARE_DIR=str(full)))
    assert (tmp_path / "first").read_text() == "0\n"      # its slot lies where the ledger begins
    assert done.stdout.splitlines() == ["2", "0"]


def test_a_forged_ledger_crashes_nobody(ask, uuid, tmp_path):
    """What it gains its container is for the driver's figures to show, which the agent compares. Seeds are fixed."""
    for seed in range(12):
        source = random.Random(seed)
        whole = bytearray(handmade.make(tmp_path, handmade.card(uuid, 4 * GIB)) and handmade.ledger())
        whole[20:24] = struct.pack("<I", source.choice([0, 3, 1024, 2**32 - 1]))
        whole[128:128 + 4096] = source.randbytes(4096)
        whole[handmade.LEDGER_SLOTS_AT:handmade.LEDGER_SLOTS_AT + 8 * handmade.LEDGER_SLOT] = source.randbytes(
            8 * handmade.LEDGER_SLOT)
        (tmp_path / "ledger").write_bytes(whole)
        answers = ask(tmp_path, "take 1000", "info", f"take {5 * GIB}", "memory")
        assert answers[0] in ("0", "2") and len(answers) == 4, seed
        free, total = map(int, answers[1].split())
        assert free <= total


def test_a_ledger_that_says_too_much_refuses(ask, uuid, tmp_path):
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB))
    with open(tmp_path / "ledger", "r+b") as f:
        f.seek(128)
        f.write(struct.pack("<QQ", 2**64 - 1, 0))
    assert ask(tmp_path, "take 1000", "info", "memory") == ["2", f"0 {4 * GIB}", " ".join([f"{4 * GIB} 0 {4 * GIB}"] * 2)]
