# SPDX-License-Identifier: Apache-2.0
"""What tests start can be ended by signals, also where a shell started the tests in the background or under nohup, which
ignore some: what is ignored stays so in programs that are started, and a test would wait for ever.

Tests marked `waits` spend their time waiting for processes of their own: tests/run.py runs several of them at once, each in a
process of pytest-xdist. All others run alone in their process; the start of a cluster computes and is not marked.

Tests marked `foreign` are about an unmodified program, library or header of another project; `make test-foreign` runs all
of them. `make test` leaves out those that are marked `long` as well. Every `long` test is `foreign`.
"""

import signal

import pytest

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "waits: spends its time waiting; runs beside other such tests")
    config.addinivalue_line("markers", "foreign: about a program, library or header of another project; make test-foreign")
    config.addinivalue_line("markers", "long: a foreign test that make test leaves out")


def pytest_collection_modifyitems(items):
    never = [item.nodeid for item in items if item.get_closest_marker("long") and not item.get_closest_marker("foreign")]
    if never:
        raise pytest.UsageError(f"long and not foreign, so no target runs it: {' '.join(never)}")
