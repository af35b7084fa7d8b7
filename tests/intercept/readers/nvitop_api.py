# SPDX-License-Identifier: Apache-2.0
"""What nvitop says, as JSON: one object a card."""

import json

from nvitop import Device

print(json.dumps([
    {"uuid": d.uuid(), "total": d.memory_total(), "used": d.memory_used(), "free": d.memory_free(),
     "load": d.gpu_utilization(),
     "processes": sorted([pid, p.gpu_memory()] for pid, p in d.processes().items())} for d in Device.all()]))
