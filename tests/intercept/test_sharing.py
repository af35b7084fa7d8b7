# SPDX-License-Identifier: Apache-2.0
"""Memory that several processes of a container have open is booked once, and as long as any process has it open. On the
driver that succeeds at everything, so what is refused, the books refuse."""

import subprocess
import sys

import pytest
from test_corners import CUDA, VMM, nothing_driver  # noqa: F401 (a fixture)

GIB = 1 << 30

# The importer, in a slice of 4 GiB; `exporter` starts a process that takes 3 of them and lets others open them.
WORLD = VMM + """
import signal, subprocess, sys, time
class Ipc(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
begin()

class Exporter:
    def __init__(self, how):
        self.p = subprocess.Popen([sys.executable, "-c", PREAMBLE + how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        assert self.said() == "exported"
    def said(self):
        return self.p.stdout.readline().strip()
    def tell(self, what):
        self.p.stdin.write(what + "\\n"); self.p.stdin.flush()
        assert self.said() == "done"
    def kill(self):
        self.p.kill(); self.p.wait()

def has(bytes_there):
    "To the byte."
    r, p = take(bytes_there)
    assert r == 0, r
    assert take(1)[0] == 2
    ok("cuMemFree_v2", p)
def open_ipc(at, how="cuIpcOpenMemHandle_v2"):
    p = u64(at)
    ok(how, ref(p), Ipc(), 1)
    return p
def import_handle(number):
    h = u64(number)
    ok("cuMemImportFromShareableHandle", ref(h), ctypes.c_void_p(3), 1)
    return h
"""

COMMANDS = """
print("exported", flush=True)
import sys
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""

BY_IPC = """
class Ipc(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
begin()
p = u64(0x7000000)
ok("cuMemAlloc_v2", ref(p), u64(3 * GIB))
ok("cuIpcGetMemHandle", ref(Ipc()), p)
""" + COMMANDS

BY_HANDLE = VMM + """
begin()
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
ok("cuMemExportToShareableHandle", ref(ctypes.c_int()), handle, 1, u64(0))
""" + COMMANDS

OPEN = {"ipc": (BY_IPC, "open_ipc(0x5000000)", 'ok("cuIpcCloseMemHandle", a)'),
        "older ipc": (BY_IPC, "open_ipc(0x5000000, 'cuIpcOpenMemHandle')", 'ok("cuIpcCloseMemHandle", a)'),
        "handle": (BY_HANDLE, "import_handle(77)", 'ok("cuMemRelease", a)')}


# What is free when nothing of it is open any more. That a descriptor keeps it no longer only figures of a driver show, and
# here are none.
LEFT = {"ipc": "4 * GIB", "older ipc": "4 * GIB", "handle": "GIB"}


@pytest.fixture
def world(nothing_driver):  # noqa: F811
    def run(script):
        nothing_driver(f"PREAMBLE = {CUDA!r}\n{WORLD}\n{script}")
    return run


@pytest.mark.parametrize("way", OPEN)
def test_an_importer_is_not_charged_twice(world, way):
    how, opening, closing = OPEN[way]
    world(f"""
e = Exporter({how!r})
has(GIB)
a = {opening}
has(GIB)
b = {opening}
has(GIB)
{closing}
{closing}
has(GIB)
e.kill()
has({LEFT[way]})
""")


@pytest.mark.parametrize("way", OPEN)
def test_nothing_is_opened_that_cannot_be_kept_booked(world, way):
    """No descriptor is left for the lock that keeps it booked after its owner's death."""
    how, opening, closing = OPEN[way]
    world(f"""
import resource
e = Exporter({how!r})
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
try:
    {opening}
    opened = True
except AssertionError:
    opened = False
resource.setrlimit(resource.RLIMIT_NOFILE, before)
assert not opened
a = {opening}
{closing}
e.kill()
has({LEFT[way]})
""")


@pytest.mark.parametrize("way", OPEN)
def test_what_is_open_outlives_its_owner(world, way):
    how, opening, closing = OPEN[way]
    world(f"""
e = Exporter({how!r})
a = {opening}
e.kill()
has(GIB)
b = {opening}        # the driver counts
{closing}
has(GIB)
{closing}
has({LEFT[way]})
""")


@pytest.mark.parametrize("way", OPEN)
def test_an_importer_that_dies_lets_go(world, way):
    """The last of two, which never had the owner alive."""
    how, opening, closing = OPEN[way]
    other = f"{VMM}\n{WORLD.split('class Exporter')[0]}\n" \
            f"def open_ipc(at, how='cuIpcOpenMemHandle_v2'):\n    p = u64(at)\n    ok(how, ref(p), Ipc(), 1)\n    return p\n" \
            f"def import_handle(n):\n    h = u64(n)\n    " \
            f"ok('cuMemImportFromShareableHandle', ref(h), ctypes.c_void_p(3), 1)\n    return h\n" \
            f"a = {opening}\n{COMMANDS}"
    world(f"""
e = Exporter({how!r})
a = {opening}
e.kill()
o = Exporter({other!r})
{closing}
has(GIB)
o.kill()
has({LEFT[way]})
""")


def test_what_is_freed_while_others_have_it_open(world):
    """It stays booked until they close it."""
    world(f"""
e = Exporter({BY_IPC!r})
a = open_ipc(0x5000000)
e.tell("ok('cuMemFree_v2', p)")
has(GIB)
ok("cuIpcCloseMemHandle", a)
e.tell("assert take(4 * GIB)[0] == 0")
""")


def test_exported_memory_that_nobody_opened_is_freed_at_once(world):
    world(f"""
e = Exporter({BY_IPC!r})
e.tell("ok('cuMemFree_v2', p)")
has(4 * GIB)
""")


def test_own_memory_of_an_exporter_goes_with_it(world):
    """Only what was exported is kept."""
    world(f"""
e = Exporter({BY_IPC!r}.replace("u64(3 * GIB)", "u64(GIB)"))
e.tell("assert take(2 * GIB)[0] == 0")
a = open_ipc(0x5000000)
has(GIB)
e.kill()
has(3 * GIB)
ok("cuIpcCloseMemHandle", a)
has(4 * GIB)
""")


def test_an_import_dies_with_its_context(world):
    world(f"""
context = u64(0x9990)
ok("cuCtxCreate_v2", ref(context), 0, 0)
e = Exporter({BY_IPC!r})
a = open_ipc(0x5000000)
e.kill()
has(GIB)
ok("cuCtxDestroy_v2", CURRENT)
has(4 * GIB)
""".replace("CURRENT", "u64(CONTEXT)").replace("CONTEXT", "current()") .replace("context = u64(0x9990)\n", """
def current():
    c = u64()
    ok("cuCtxGetCurrent", ref(c))
    return c.value
context = u64(0x9990)
"""))


def test_external_memory_keeps_what_is_exported(world):
    world(f"""
e = Exporter({BY_HANDLE!r})
external = u64(0x4440)
ok("cuImportExternalMemory", ref(external), ctypes.create_string_buffer(104))
e.kill()
has(GIB)
ok("cuDestroyExternalMemory", external)
has(GIB)        # no figures show that it is back
""")


def test_an_imported_handle_lives_until_it_is_unmapped(world):
    world(f"""
e = Exporter({BY_HANDLE!r})
a = import_handle(77)
ok("cuMemMap", u64(0x10000000), u64(0x200000), u64(0), a, u64(0))
ok("cuMemRelease", a)
e.kill()
has(GIB)
ok("cuMemUnmap", u64(0x10000000), u64(0x200000))
has(GIB)        # no figures show that it is back
""")


@pytest.mark.parametrize("bind", ['("cuMulticastBindMem", mc, u64(0), handle, u64(0), u64(GIB), u64(0))',
                                  '("cuMulticastBindMem_v2", mc, 0, u64(0), handle, u64(0), u64(GIB), u64(0))',
                                  '("cuMulticastBindAddr", mc, u64(0), u64(0x10000000), u64(GIB), u64(0))',
                                  '("cuMulticastBindAddr_v2", mc, 0, u64(0), u64(0x10000000), u64(GIB), u64(0))'])
@pytest.mark.parametrize("end", ['("cuMulticastUnbind", mc, 0, u64(0), u64(GIB))', '("cuMemRelease", mc)'],
                         ids=["unbound", "released"])
def test_memory_bound_to_a_multicast_object(world, bind, end):
    world(f"""
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
mc = u64(99)
ok("cuMulticastCreate", ref(mc), ctypes.create_string_buffer(64))
ok("cuMulticastAddDevice", mc, 0)
ok("cuMemMap", u64(0x10000000), u64(GIB), u64(0), handle, u64(0))
ok{bind}
ok("cuMemRelease", handle)
ok("cuMemUnmap", u64(0x10000000), u64(GIB))
has(GIB)
ok{end}
has(4 * GIB)
""")


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
@pytest.mark.parametrize("end", ["piece(2)", 'ok("cuArrayDestroy", array)'], ids=["unmapped", "destroyed"])
def test_memory_mapped_into_a_sparse_array(world, suffix, end):
    world(f"""
class Piece(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint), ("resource", u64), ("kind", ctypes.c_uint), ("where", u64 * 4),
                ("operation", ctypes.c_uint), ("handle_type", ctypes.c_uint), ("handle", u64), ("offset", u64),
                ("mask", ctypes.c_uint), ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint * 2)]
class Flat(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
                ("format", ctypes.c_int), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]
def piece(operation):
    ok("cuMemMapArrayAsync{suffix}", ref(Piece(0, array, 0, (u64 * 4)(1, 2, 3), operation, 0, handle, 0, 1, 0)), 1,
       u64(0))
array = u64(0x8880)
ok("cuArray3DCreate_v2", ref(array), ref(Flat(4096, 4096, 0, 1, 4, 0x40)))
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
piece(1)
ok("cuMemRelease", handle)
has(GIB)
{end}
has(4 * GIB)
""")


# Two processes on the simulated driver, which counts shared memory once, as a real one does. `card` is what the card says
# that is used, read by a process without the library.
PAIR = CUDA + VMM + """
import socket, subprocess, sys, time
class Ipc(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]

def card():
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ALIQUOT_SHARE_DIR")}
    return int(subprocess.run([os.environ["HOLDER"]], input="memory\\n", text=True, stdout=subprocess.PIPE, env=clean,
                              check=True).stdout.split()[0])

class Exporter:
    def __init__(self, how):
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = here
        self.p = subprocess.Popen([sys.executable, "-c", PREAMBLE + how, str(there.fileno())], pass_fds=[there.fileno()])
        there.close()
        self.data, fds, _, _ = socket.recv_fds(here, 4096, 4)
        self.fd = fds[0] if fds else None
    def tell(self, what):
        self.link.send(what.encode()); assert self.link.recv(100) == b"done"
    def kill(self):
        self.p.kill(); self.p.wait()

def settled(before, expected):
    "The figures follow a death."
    end = time.monotonic() + 60
    while check(before) != expected:
        assert time.monotonic() < end, (check(before), expected)

def check(before):
    "Never more on the card than is booked."
    f, t = u64(), u64()
    ok("cuMemGetInfo_v2", ref(f), ref(t))
    assert card() - before <= t.value - f.value, (card() - before, t.value - f.value)
    return f.value
"""

SERVE = """
def serve(data, fds):
    link = socket.socket(fileno=int(sys.argv[1]))
    socket.send_fds(link, [data], fds)
    while True:
        exec(link.recv(4096).decode())
        link.send(b"done")
begin()
"""

REAL = {
    "ipc": (SERVE + """
_, p = take(3 * GIB)
h = Ipc()
ok("cuIpcGetMemHandle", ref(h), p)
serve(ctypes.string_at(ref(h), 64), [])
""", """
h, p = Ipc(), u64()
ctypes.memmove(ref(h), e.data, 64)
ok("cuIpcOpenMemHandle_v2", ref(p), h, 1)
""", "ok('cuIpcCloseMemHandle', p)"),
    "handle": (SERVE + """
props.handle = 1
fd = ctypes.c_int()
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
ok("cuMemExportToShareableHandle", ref(fd), handle, 1, u64(0))
serve(b"x", [fd.value])
""", """
h = u64()
ok("cuMemImportFromShareableHandle", ref(h), ctypes.c_void_p(e.fd), 1)
os.close(e.fd)
""", "ok('cuMemRelease', h)"),
}

DESCRIBE = """
class Where(ctypes.Union):
    _fields_ = [("fd", ctypes.c_int), ("pair", u64 * 2)]
class Description(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("where", Where), ("size", u64), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_uint * 16)]
def describe(fd):
    d = Description(type=1, size=3 * GIB)
    d.where.fd = fd
    return ref(d)
"""
REAL["external"] = (REAL["handle"][0], "x = u64()\nok('cuImportExternalMemory', ref(x), describe(e.fd))\n",
                    "ok('cuDestroyExternalMemory', x)")


@pytest.fixture
def pair(sim, programs):
    def run(script, **options):
        preamble = PAIR.replace("os.environ[\"HOLDER\"]", repr(str(programs / "holder")))
        return sim(sys.executable, "-c", f"{preamble}\nPREAMBLE = {preamble!r}\n{DESCRIBE}\n{script}",
                   **{"memory": "6Gi", **options})
    return run


def test_what_is_released_and_imported_again_stays_booked(pair):
    """The driver counts it as the process's then, so that the card has less in use for no process than is orphaned."""
    pair("""
before = card()
begin()
alone = check(before)
props.handle = 1
fd, h = ctypes.c_int(), u64()
ok("cuMemCreate", ref(h), u64(3 * GIB), ref(props), u64(0))
ok("cuMemExportToShareableHandle", ref(fd), h, 1, u64(0))
ok("cuMemRelease", h)
ok("cuMemImportFromShareableHandle", ref(h), ctypes.c_void_p(fd.value), 1)
os.close(fd.value)
end = time.monotonic() + 2
while time.monotonic() < end:
    check(before)
assert call("cuMemCreate", ref(u64()), u64(3 * GIB), ref(props), u64(0)) == 2
ok("cuMemRelease", h)
settled(before, alone)
""")


@pytest.mark.parametrize("way", REAL)
def test_shared_memory_on_a_driver_that_counts_it_once(pair, way):
    """Open in two processes, then in one whose owner is dead, then in none: booked once, and never less than is held."""
    exporting, opening, closing = REAL[way]
    pair(f"""
before = card()
begin()
alone = check(before)
e = Exporter({exporting!r})
shared = check(before)
assert shared < alone - 3 * GIB
{opening}
assert check(before) == shared
assert take(3 * GIB)[0] == 2
e.kill()
settled(before, alone - 3 * GIB)
r, q = take(alone - 3 * GIB)
assert r == 0 and take(1)[0] == 2
ok("cuMemFree_v2", q)
{closing}
settled(before, alone)
r, q = take(alone)
assert r == 0
check(before)
""")


def test_a_shared_pool_on_a_driver_that_counts_it_once(pair):
    exporting = SERVE + """
class PoolProps(ctypes.Structure):
    _fields_ = [("alloc", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("security", ctypes.c_void_p),
                ("rest", ctypes.c_char * 64)]
pool, p, fd, data = u64(), u64(), ctypes.c_int(), (ctypes.c_char * 64)()
ok("cuMemPoolCreate", ref(pool), ref(PoolProps(alloc=1, handles=1, location=Location(1, 0))))
ok("cuMemPoolExportToShareableHandle", ref(fd), pool, 1, u64(0))
ok("cuMemAllocFromPoolAsync", ref(p), u64(3 * GIB), pool, u64(0))
ok("cuCtxSynchronize")
ok("cuMemPoolExportPointer", ref(data), p)
serve(data.raw, [fd.value])
"""
    pair(f"""
before = card()
begin()
alone = check(before)
e = Exporter({exporting!r})
shared = check(before)
assert shared < alone - 3 * GIB, alone - shared
pool, p, data = u64(), u64(), ctypes.create_string_buffer(e.data, 64)
ok("cuMemPoolImportFromShareableHandle", ref(pool), ctypes.c_void_p(e.fd), 1, u64(0))
os.close(e.fd)
ok("cuMemPoolImportPointer", ref(p), pool, data)
assert check(before) == shared
e.kill()
settled(before, alone - 3 * GIB)
ok("cuMemFreeAsync", p, u64(0))
ok("cuCtxSynchronize")
ok("cuMemPoolDestroy", pool)
check(before)
""")


@pytest.mark.parametrize("way", ["ipc", "handle"])
def test_memory_of_another_container_is_booked_by_who_opens_it(sim, aliquot, programs, library, tmp_path, way):
    """No process here exports anything, so it is no memory of this container's: it is booked, and refused where it does not
    fit. The handle travels by a socket in a directory that both see."""
    exporting, opening, closing = REAL[way]
    preamble = PAIR.replace("os.environ[\"HOLDER\"]", repr(str(programs / "holder")))
    listen = f"""{preamble}
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind({str(tmp_path / "link")!r}); listener.listen()
sys.argv[1:] = [None]
{exporting.replace("link = socket.socket(fileno=int(sys.argv[1]))", "link, _ = listener.accept()")}"""
    mapped = """
at = u64()
ok("cuMemAddressReserve", ref(at), u64(3 * GIB), u64(0), u64(0), u64(0))
r = call("cuMemMap", at, u64(3 * GIB), u64(0), h, u64(0))
""" if way == "handle" else "r = 0\n"
    unmapped = "ok('cuMemUnmap', at, u64(3 * GIB))\n" if way == "handle" else ""
    other = f"""{preamble}
import time
class Link: pass
e, path = Link(), {str(tmp_path / "link")!r}
s, end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), time.monotonic() + 20
while s.connect_ex(path) != 0:
    assert time.monotonic() < end
    time.sleep(0.02)
e.data, fds, _, _ = socket.recv_fds(s, 4096, 4)
e.fd = fds[0] if fds else None
begin()
before = free()
{opening}{mapped}
assert r == 0 and free() == before - 3 * GIB, (r, before - free())
{unmapped}{closing}
assert free() == before
s.send(b"os._exit(0)")
"""
    (tmp_path / "listen.py").write_text(listen)
    (tmp_path / "other.py").write_text(other)
    script = (f"{aliquot} run --memory 5Gi -- {sys.executable} {tmp_path}/listen.py & "
              f"{aliquot} run --memory 4Gi -- {sys.executable} {tmp_path}/other.py || exit 1; wait")
    sim("sh", "-c", script)


def test_a_checkpointed_process_leaves_and_comes_back(world):
    """Its memory is there for others meanwhile, and it comes back only if it fits."""
    world(f"""
e = Exporter({'begin(); assert take(3 * GIB)[0] == 0' + COMMANDS!r})
pid, nothing = e.p.pid, ctypes.c_void_p()
assert take(2 * GIB)[0] == 2
ok("cuCheckpointProcessLock", pid, nothing)
ok("cuCheckpointProcessCheckpoint", pid, nothing)
has(4 * GIB)
r, mine = take(2 * GIB)
assert r == 0
assert call("cuCheckpointProcessRestore", pid, nothing) == 2
has(2 * GIB)
ok("cuMemFree_v2", mine)
ok("cuCheckpointProcessRestore", pid, nothing)
ok("cuCheckpointProcessUnlock", pid, nothing)
has(GIB)
ok("cuCheckpointProcessCheckpoint", 1, nothing)       # of no process here
has(GIB)
e.tell("assert take(GIB)[0] == 0")
ok("cuCheckpointProcessCheckpoint", pid, nothing)
e.kill()                                              # it never comes back
has(4 * GIB)
""")


def test_heaps_and_code_as_the_card_counts_them(pair):
    """Heaps are booked when they are asked for; code is not, until the agent puts what the card says on top."""
    pair("""
before = card()
begin()
alone = check(before)
MIB = 1 << 20
for limit, value in ((2, 300 * MIB), (1, 64 * MIB), (0, 4096), (2, 500 * MIB), (0, 2048), (1, 1 * MIB)):
    ok("cuCtxSetLimit", limit, u64(value))
    check(before)
assert free() < alone - 400 * MIB
second = u64()
ok("cuCtxCreate_v2", ref(second), 0, 0)
ok("cuCtxSetLimit", 2, u64(200 * MIB))
check(before)
ok("cuCtxDestroy_v2", second)
check(before)
""")


def test_memory_bound_to_a_multicast_object_on_the_driver(aliquot, programs):
    """The driver keeps what is bound; so do the books."""
    script = PAIR.replace("os.environ[\"HOLDER\"]", repr(str(programs / "holder"))) + """
class McProps(ctypes.Structure):
    _fields_ = [("devices", ctypes.c_uint), ("size", ctypes.c_size_t), ("handles", u64), ("flags", u64)]
before = card()
begin()
alone = check(before)
SIZE = 512 << 20
mc = u64()
ok("cuMulticastCreate", ref(mc), ref(McProps(2, SIZE, 0, 0)))
ok("cuMulticastAddDevice", mc, 0)
ok("cuMulticastAddDevice", mc, 1)
ok("cuMemCreate", ref(handle), u64(SIZE), ref(props), u64(0))
ok("cuMulticastBindMem", mc, u64(0), handle, u64(0), u64(SIZE), u64(0))
ok("cuMemRelease", handle)
check(before)
ok("cuMulticastUnbind", mc, 0, u64(0), u64(SIZE))
assert check(before) == alone
ok("cuMemRelease", mc)
assert check(before) == alone
"""
    subprocess.run([aliquot, "sim", "--machine", "hgx-h100", "--", aliquot, "run", "--memory", "4Gi", "--", sys.executable, "-c",
                    script.replace("props = Props(1, 1", "props = Props(1, 0")], check=True, timeout=60)
