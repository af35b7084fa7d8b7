# SPDX-License-Identifier: Apache-2.0
"""What tests start can be ended by Ctrl-C, also where a shell started them in the background, which ignores it: a shell
that was started with a signal ignored cannot trap it, and a test would wait for ever."""

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
