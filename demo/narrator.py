# SPDX-License-Identifier: Apache-2.0
"""What the demo prints: steps, shown commands, claims and the summary. Colours only on a terminal."""

import os
import sys
import textwrap
import time

WIDTH = 100
LINE = 150      # of shown output; longer ones lose their middle


class Narrator:
    def __init__(self, steps, out=sys.stdout):
        self.out = out
        self.steps = steps
        self.step_number = 0
        self.started = time.monotonic()
        self.claims = []        # (text, true)
        self.tty = out.isatty()
        self.colours = self.tty and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        self.progress_shown = False
        self.interruption = None

    def interrupt(self, exception):
        """For signal handlers. What they raise is lost when it meets a destructor; then the next line raises it."""
        self.interruption = exception
        raise exception

    def _paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colours else text

    def _line(self, text=""):
        if self.interruption:
            raise self.interruption
        if self.progress_shown:
            self.out.write("\r\033[K")
            self.progress_shown = False
        self.out.write(text + "\n")
        self.out.flush()

    def step(self, text):
        self.step_number += 1
        elapsed = time.monotonic() - self.started
        head = self._paint("1", f"[{self.step_number}/{self.steps}] {text}")
        self._line(f"\n{head}" + self._paint("2", f"  ({elapsed:.0f} s)"))

    def say(self, text):
        for line in textwrap.wrap(text, WIDTH - 4):
            self._line("    " + line)

    def progress(self, text):
        """Overwrites itself on a terminal, a line each elsewhere."""
        if self.tty:
            self.out.write("\r\033[K    " + text[:WIDTH])
            self.out.flush()
            self.progress_shown = True
        else:
            self._line("    " + text)

    def show(self, command, output, limit=40):
        """A command as the user would type it, and what it answers."""
        self._line(self._paint("36", "    $ " + command))
        lines = output.rstrip().splitlines()
        for line in lines[:limit]:
            self._line("      " + (line if len(line) <= LINE else line[:LINE * 2 // 3] + " … " + line[-LINE // 4:]))
        if len(lines) > limit:
            self._line(f"      … {len(lines) - limit} more lines")

    def claim(self, text, true, detail=""):
        """One thing that the demo says of the product, and whether it was so."""
        self.claims.append((text, bool(true)))
        mark = self._paint("32", "PASS") if true else self._paint("31", "FAIL")
        self._line(f"    {mark}  {text}")
        if detail and not true:
            for line in str(detail).splitlines()[-12:]:
                self._line("          " + line)

    def summary(self):
        """Prints every claim; returns whether all were true."""
        self._line("\n" + self._paint("1", "What was shown"))
        for text, true in self.claims:
            mark = self._paint("32", "PASS") if true else self._paint("31", "FAIL")
            self._line(f"    {mark}  {text}")
        bad = sum(not true for _, true in self.claims)
        elapsed = time.monotonic() - self.started
        self._line(f"\n    {len(self.claims) - bad} of {len(self.claims)} claims hold; took {elapsed:.0f} s")
        return bad == 0
