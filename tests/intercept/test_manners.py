# SPDX-License-Identifier: Apache-2.0
"""What libaliquot.so needs, and what it does to programs that have nothing to do with CUDA."""

import collections
import os
import re
import shutil
import subprocess

import pytest
from intercept_kit import TOP

# Functions that glibc 2.17 and musl 1.1 both have.
ALLOWED = {"__errno_location", "calloc", "clock_gettime", "close", "dl_iterate_phdr", "fallocate", "fcntl", "free",
           "getenv", "getpid", "kill", "lseek", "madvise", "malloc", "memcmp", "memcpy", "memmove", "memset", "mmap", "mprotect", "munmap",
           "open", "openat", "read", "readlink", "readlinkat", "strchr", "strcmp", "strlen", "strncmp", "strrchr", "strstr",
           "syscall"}


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("directory", ["", "node"])
def test_needs_libc_only_and_an_old_one(build, directory):
    library = build / "src" / "intercept" / directory / "libaliquot.so"
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))
    assert needed == ["libc.so.6"]
    for version in re.findall(r"Name: GLIBC_([\d.]+)", output("readelf", "-V", library)):
        assert tuple(map(int, version.split("."))) <= (2, 17), version
    undefined = {line.split()[-1] for line in output("objdump", "-T", library).splitlines() if "*UND*" in line}
    assert undefined and undefined <= ALLOWED, undefined - ALLOWED


def test_runs_nothing_at_load(library):
    dynamic = output("readelf", "-d", library)
    assert not re.search(r"\((INIT|INIT_ARRAY|PREINIT_ARRAY|FINI|FINI_ARRAY)\)", dynamic)
    assert "BIND_NOW" in dynamic
    assert "TLS" not in output("readelf", "-lW", library)
    assert not re.search(r"GNU_STACK.*RWE", output("readelf", "-lW", library))


def test_shadows_export_their_half(build):
    for name, prefix in (("cuda", "cu"), ("nvidia-ml", "nvml")):
        path = build / "src" / "intercept" / "node" / f"libshadow-{name}.so.1"
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path))
        assert needed == [f"lib{name}-driver.so.1", "libc.so.6"]
        names = {line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()}
        assert len(names) > 10 and {n for n in names if not n.startswith(prefix)} == {"aliquot_instance"}


def test_exports_hooks_only(library):
    names = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    others = {n for n in names if not n.startswith(("cu", "nvml"))}
    assert others == {"dlsym", "dlvsym", "aliquot_instance"}


# What the loader does to map one more object of four segments, and where it puts its own memory meanwhile.
ONE_OBJECT = collections.Counter(openat=1, read=1, newfstatat=1, mmap=4, close=1, mprotect=1)
# By /etc/ld.so.preload, which it reads first.
FILE_OF_OBJECTS = ONE_OBJECT + collections.Counter(openat=1, newfstatat=1, mmap=1, close=1, munmap=1)
# Not the same from one run to the next, whatever is loaded: what is awaited, and where memory lies.
UNSTEADY = {"futex", "poll", "ppoll", "epoll_wait", "select", "wait4", "waitid", "restart_syscall", "sched_yield", "brk",
            "madvise", "munmap", "mremap", "clock_nanosleep", "rt_sigreturn"}


def normal(line):
    """Without what differs between runs: addresses, process numbers, random bytes, times."""
    if re.match(r"(getrandom|sysinfo|set_tid_address|arch_prctl|rseq|set_robust_list|execve)\(", line):
        line = line.partition("(")[0]
    line = re.sub(r"0x[0-9a-f]+|\b\d{3,}\b|\"/tmp/[^\"]*\"|\{tv_[^}]*\}", "#", line)
    return re.sub(r"st_(size|mode)=[^,}]*|SIGCHLD \{.*|parent_tid=\S+|= -?\d+$", "#", line)


def traces(tmp_path, command, library=None, only=None):
    """The finished command, and of each of its processes the system calls."""
    for old in tmp_path.glob("trace.*"):
        old.unlink()
    extra = [f"-ELD_PRELOAD={library}"] if library else ["-ELD_PRELOAD"]
    extra += ["--seccomp-bpf", "-e", f"trace={only}"] if only else []
    done = subprocess.run(["strace", "-ff", "-qq", "-o", tmp_path / "trace", *extra, *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    paths = sorted(tmp_path.glob("trace.*"), key=lambda path: int(path.suffix[1:]))
    found = [[line for line in path.read_text().splitlines() if re.match(r"\w+\(", line)] for path in paths]
    assert found
    return done, found


def calls(trace):
    return collections.Counter(line.partition("(")[0] for line in trace)


def lines(trace):
    """Without calls that a signal has interrupted: when it comes is chance, and they follow once more."""
    return collections.Counter(normal(line) for line in trace
                               if line.partition("(")[0] not in UNSTEADY and "MAP_ANONYMOUS" not in line
                               and "ERESTARTSYS" not in line)


def without_object(trace, library):
    """The trace less what the loader did for our object; how often it did."""
    rest, objects, loading, mapped = [], 0, False, 0
    for line in trace:
        if line.startswith("openat(") and library in line:
            objects, loading, mapped = objects + 1, True, 0
        elif loading:
            mapped += line.startswith("mmap(")
            loading = not line.startswith("close(")
        else:
            rest.append(line)
    return rest, objects


def test_loader_calls_only(tmp_path, library):
    """Nine calls of the loader for one more object, and none of the library's."""
    _, (plain,) = traces(tmp_path, ["/bin/true"])
    _, (loaded,) = traces(tmp_path, ["/bin/true"], library)
    assert calls(loaded) - calls(plain) == ONE_OBJECT and not calls(plain) - calls(loaded)
    rest, objects = without_object(loaded, library)
    assert objects == 1
    # In the program's order, but for the mprotects at the end of loading, which are one more.
    assert [normal(line) for line in rest if not line.startswith("mprotect(")] == \
           [normal(line) for line in plain if not line.startswith("mprotect(")]


def test_loader_calls_only_by_file(tmp_path, library):
    """As the agent does it: /etc/ld.so.preload. Fourteen calls."""
    for name in ("upper", "work"):
        (tmp_path / name).mkdir()
    script = (f"mount -t overlay overlay -o lowerdir=/etc,upperdir={tmp_path}/upper,workdir={tmp_path}/work /etc && "
              f"echo {library} > /etc/ld.so.preload && strace -qq -o {tmp_path}/loaded /bin/true && "
              f": > /etc/ld.so.preload && rm /etc/ld.so.preload && strace -qq -o {tmp_path}/plain /bin/true")
    subprocess.run(["unshare", "-m", "sh", "-c", script], check=True, env={"PATH": os.environ["PATH"]})
    plain, loaded = ([line for line in (tmp_path / name).read_text().splitlines() if re.match(r"\w+\(", line)]
                     for name in ("plain", "loaded"))
    assert calls(loaded) - calls(plain) == FILE_OF_OBJECTS and not calls(plain) - calls(loaded)


JAVA = """
public class Signals {
    public static void main(String[] arguments) throws Exception {
        for (String name : new String[] {"USR1", "USR2"}) {
            var come = new java.util.concurrent.CountDownLatch(1);
            var signal = new sun.misc.Signal(name);
            sun.misc.Signal.handle(signal, s -> { System.out.println("got " + s); come.countDown(); });
            sun.misc.Signal.raise(signal);
            if (!come.await(20, java.util.concurrent.TimeUnit.SECONDS))
                System.out.println("lost " + name);
        }
        System.out.println(new ProcessBuilder("/bin/true").start().waitFor());
    }
}
"""

PYTHON = """
import multiprocessing, os, signal, sys
def work(x):
    return x * x
if __name__ == "__main__":
    for way in ("fork", "spawn"):
        context = multiprocessing.get_context(way)
        ends = context.Pipe()
        child = context.Process(target=ends[1].send, args=(work(7),))
        child.start(); print(way, ends[0].recv()); child.join()
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the programs below read."""
    top = tmp_path_factory.mktemp("programs")
    (top / "Signals.java").write_text(JAVA)
    (top / "processes.py").write_text(PYTHON)
    (top / "page").write_text("hello\n")
    return top


PROGRAMS = {
    "false": lambda f: ["/bin/false"],
    "sh": lambda f: ["/bin/sh", "-c", "umask; ls / | head -1; (exit 3) || echo $?; exit 7"],
    "sh, killed": lambda f: ["/bin/sh", "-c", "trap '' USR1; kill -USR1 $$; echo a; kill -TERM $$"],
    "curl": lambda f: ["curl", "-sS", f"file://{f}/page"],
    "python fork, spawn": lambda f: ["/usr/bin/python3", "-I", str(f / "processes.py")],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_the_same(name, files, tmp_path, library):
    """Same output and end, and in each process the same calls but for those of the loader: per program that it starts."""
    command = PROGRAMS[name](files)
    plain, processes = traces(tmp_path, command)
    loaded, loaded_processes = traces(tmp_path, command, library)
    assert (plain.returncode, plain.stdout) == (loaded.returncode, loaded.stdout)
    assert len(processes) == len(loaded_processes)
    for before, after in zip(processes, loaded_processes):
        rest, objects = without_object(after, library)
        assert objects == sum(line.startswith("execve(") and line.endswith("= 0") for line in after)
        more, less = lines(rest) - lines(before), lines(before) - lines(rest)
        # The loader protects what it has relocated when it is done.
        assert not less and calls(more.elements()) == +collections.Counter(mprotect=objects), (more, less)


@pytest.mark.foreign
def test_a_java_machine_keeps_its_signals(files, tmp_path, library):
    """Its handlers for SIGUSR1 and SIGUSR2, of the machine itself and of the program, and every other one."""
    java = subprocess.run([TOP / "scripts" / "fetch-jvm"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    command = [java, "-XX:+UseSerialGC", "-XX:-UsePerfData", str(files / "Signals.java")]
    only = "rt_sigaction,sigaltstack,umask,openat,creat"
    seen = []
    for loaded in (None, library):
        done, processes = traces(tmp_path, command, loaded, only)
        assert done.stdout.splitlines()[-3:] == ["got SIGUSR1", "got SIGUSR2", "0"], done.stdout
        # Which thread did it, and how often, is chance.
        seen.append((done.returncode, done.stdout, {normal(line) for trace in processes for line in trace
                                                    if library not in line and not re.search("= -1|/proc/|/sys/", line)}))
    assert seen[0] == seen[1], (seen[0][2] ^ seen[1][2])


SETUID = """
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("%d\\n", getuid() != geteuid()); return 4; }
"""


def test_setuid_programs(tmp_path, library):
    """The loader leaves our object out of a program with more rights than its caller, and that is all that happens."""
    program = tmp_path / "program"
    (tmp_path / "program.c").write_text(SETUID)
    subprocess.run(["gcc", "-o", program, tmp_path / "program.c"], check=True)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    plain, (before,) = traces(tmp_path, [program])
    loaded, (after,) = traces(tmp_path, [program], library)
    assert (plain.returncode, plain.stdout) == (loaded.returncode, loaded.stdout) == (4, "1\n")
    assert [normal(line) for line in before] == [normal(line) for line in after]


def test_programs_do_not_notice(library):
    programs = [["/bin/sh", "-c", "exit 7"], ["/bin/sh", "-c", "echo a; kill -TERM $$"], ["/bin/false"],
                ["python3", "-c", "import ctypes, threading; t = threading.Thread(target=print, args=('x',)); t.start(); "
                 "t.join(); print(ctypes.CDLL(None).getpid() > 0)"]]
    for program in programs:
        plain, loaded = (subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **extra)) for extra in ({}, {"LD_PRELOAD": library}))
        assert (plain.returncode, plain.stdout, plain.stderr) == (loaded.returncode, loaded.stdout, loaded.stderr)


MUSL = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What of the driver a musl program gets: nothing while there is none, then our hook. */
int main(int argc, char **argv) {
    Dl_info info = {0};
    void *cuda, *found;

    printf("%s %s\\n", dlsym(RTLD_DEFAULT, "puts") ? "found" : "none",
           dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ? "cuda" : "no");
    if (argc > 1) {
        cuda = dlopen("libcuda.so.1", RTLD_NOW);
        found = cuda ? dlsym(cuda, "cuMemAlloc_v2") : NULL;
        if (found && dladdr(found, &info))
            printf("%s %d\\n", strrchr(info.dli_fname, '/') + 1, ((int (*)(unsigned)) dlsym(cuda, "cuInit"))(0));
        return found ? 3 : 4;
    }
    fflush(stdout);
    if (fork() == 0)
        execl(argv[0], argv[0], "again", (char *) 0);
    int status;
    wait(&status);
    return WEXITSTATUS(status);
}
"""


@pytest.fixture
def musl_image(library, build, tmp_path):
    """A root directory with nothing in it but musl, a program, the library, and a driver that does nothing."""
    if not shutil.which("musl-gcc"):
        pytest.fail("musl-gcc is missing: apt-get install musl-tools")
    (tmp_path / "lib").mkdir()
    shutil.copy("/lib/ld-musl-x86_64.so.1", tmp_path / "lib")
    shutil.copy(library, tmp_path / "lib" / "libaliquot.so")
    shutil.copy(build / "tests" / "bench" / "null" / "libcuda.so.1", tmp_path / "lib" / "libcuda.so.1")
    (tmp_path / "program.c").write_text(MUSL)
    subprocess.run(["musl-gcc", "-D_GNU_SOURCE", "-o", tmp_path / "program", tmp_path / "program.c"], check=True)
    return tmp_path


def test_musl_images(musl_image):
    def run(environment):
        done = subprocess.run(["/program"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
                              preexec_fn=lambda: os.chroot(musl_image), cwd="/")
        return done.returncode, done.stdout.splitlines()

    paths = {"LD_LIBRARY_PATH": "/lib"}
    assert run(paths) == (3, ["found no", "found no", "libcuda.so.1 0"])
    assert run({**paths, "LD_PRELOAD": "/lib/libaliquot.so"}) == (3, ["found no", "found no", "libaliquot.so 0"])


def test_musl_makes_only_the_loaders_calls(musl_image, tmp_path):
    command = [musl_image / "lib" / "ld-musl-x86_64.so.1", musl_image / "program", "again"]
    library = str(musl_image / "lib" / "libaliquot.so")
    plain, loaded = (subprocess.run(["strace", "-qq", "-o", tmp_path / "trace", *extra, *command], stdout=subprocess.PIPE,
                                    env={"LD_LIBRARY_PATH": "/nonexistent"}) and
                     (tmp_path / "trace").read_text().splitlines() for extra in ([], ["-E", f"LD_PRELOAD={library}"]))
    added = calls(loaded) - calls(plain)
    assert added["open"] == 1 and set(added) <= {"open", "fcntl", "fstat", "read", "pread64", "mmap", "mprotect", "brk",
                                                 "munmap", "close"}, added
