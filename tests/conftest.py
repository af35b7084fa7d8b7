# SPDX-License-Identifier: Apache-2.0
"""What tests start can be ended by Ctrl-C, also where a shell started them in the background, which ignores it: a shell
that was started with a signal ignored cannot trap it, and a test would wait for ever.

Tests marked `waits` spend their time waiting for processes of their own: tests/run.py runs several of them at once, each in a
process of pytest-xdist. All others run alone in their process; the start of a cluster computes and is not marked.

Tests marked `foreign` are about an unmodified program, library or header of another project; `make test-foreign` runs all
of them. `make test` leaves out those that are marked `long` as well. Every `long` test is `foreign`.
"""

import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "waits: spends its time waiting; runs beside other such tests")
    config.addinivalue_line("markers", "foreign: about a program, library or header of another project; make test-foreign")
    config.addinivalue_line("markers", "long: a foreign test that make test leaves out")


def pytest_collection_modifyitems(items):
    never = [item.nodeid for item in items if item.get_closest_marker("long") and not item.get_closest_marker("foreign")]
    if never:
        raise pytest.UsageError(f"long and not foreign, so no target runs it: {' '.join(never)}")
