# SPDX-License-Identifier: Apache-2.0
"""The table of questions, and the processes that they are asked with.

A question is a function that returns what was seen. It runs in a process of its own without CUDA; what uses CUDA is an
actor: a function that runs in a fresh process and exchanges lines with the question.

    asking.py question NAME         prints what was seen as JSON
    asking.py actor MODULE FUNCTION ARGUMENTS
"""

import dataclasses
import importlib
import json
import os
import pathlib
import select
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

MODULES = ("life", "memory", "calls")
QUESTIONS = {}
ACTOR_SECONDS = 15


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    asks: str
    decides: str
    function: object
    of_kernel: bool         # of descriptors, fork or process lists: under gVisor the answer is gVisor's
    seconds: int
    real_only: bool


def question(asks, decides, of_kernel=False, seconds=30, real_only=False):
    def enter(function):
        name = function.__name__.replace("_", "-")
        QUESTIONS[name] = Question(name, asks, decides, function, of_kernel, seconds, real_only)
        return function
    return enter


def load():
    """{name: question}, in the order of MODULES."""
    for name in MODULES:
        importlib.import_module(name)
    return dict(sorted(QUESTIONS.items(), key=lambda item: MODULES.index(item[1].function.__module__)))


class Actor:
    """A process that is told to go on and says what it sees; see say() and wait()."""

    def __init__(self, *command, pass_fds=(), env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=pass_fds, env=env)
        self.pid, self.buffer = self.process.pid, b""

    def line(self, seconds=ACTOR_SECONDS):
        """The next line; None where the actor ended without one."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"nothing from the process within {seconds} s")
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                return None
            self.buffer += read
        text, _, self.buffer = self.buffer.partition(b"\n")
        return text.decode()

    def said(self, seconds=ACTOR_SECONDS):
        text = self.line(seconds)
        if text is None:
            raise RuntimeError(f"the process ended with status {self.process.wait()} without an answer")
        answer = json.loads(text)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self, seconds=ACTOR_SECONDS):
        self.process.stdin.close()
        return self.process.wait(seconds)

    def kill(self):
        self.process.kill()
        return self.process.wait(ACTOR_SECONDS)


def start(function, *arguments, **options):
    return Actor(sys.executable, str(HERE / "asking.py"), "actor", function.__module__, function.__name__,
                 *map(str, arguments), **options)


def tenant_for(us, seconds, calibrated_by_us=1000):
    """A program that keeps the card busy with kernels of that length, started."""
    program = [sys.executable, str(HERE.parent / "tenant.py")]
    simulated = ["--simulated"] if os.environ.get("KIT_SIMULATED") else []
    said = subprocess.run([*program, "calibrate", str(calibrated_by_us), *simulated], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=ACTOR_SECONDS).stdout.split()
    rounds = int(int(said[0]) * us / float(said[1]))
    actor = Actor(*program, "work", str(seconds), str(rounds), str(us), *simulated)
    actor.line()
    actor.go()
    return actor


def say(thing):
    """From an actor."""
    os.write(1, json.dumps(thing).encode() + b"\n")


def wait():
    """In an actor: until it is told to go on; False when the question is over."""
    return bool(os.read(0, 1))


def attempt(function, *arguments):
    """What a function returns, or the text of its error."""
    try:
        return function(*arguments)
    except Exception as error:      # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def act(module, name, *arguments):
    try:
        getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        raise


def ask(name):
    try:
        print(json.dumps(load()[name].function()))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        raise


if __name__ == "__main__":
    sys.modules["asking"] = sys.modules["__main__"]
    {"actor": act, "question": ask}[sys.argv[1]](*sys.argv[2:])
