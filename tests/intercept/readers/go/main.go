// SPDX-License-Identifier: Apache-2.0

// What NVIDIA's Go binding of NVML says, as JSON: one object a card.
package main

import (
	"encoding/json"
	"log"
	"os"
	"sort"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type card struct {
	UUID      string      `json:"uuid"`
	Total     uint64      `json:"total"`
	Used      uint64      `json:"used"`
	Free      uint64      `json:"free"`
	Load      uint32      `json:"load"`
	Processes [][2]uint64 `json:"processes"`
}

func must(r nvml.Return) {
	if r != nvml.SUCCESS {
		log.Fatal(nvml.ErrorString(r))
	}
}

func read(i int) card {
	device, r := nvml.DeviceGetHandleByIndex(i)
	must(r)
	uuid, r := device.GetUUID()
	must(r)
	memory, r := device.GetMemoryInfo()
	must(r)
	load, r := device.GetUtilizationRates()
	must(r)
	processes, r := device.GetComputeRunningProcesses()
	must(r)
	c := card{uuid, memory.Total, memory.Used, memory.Free, load.Gpu, [][2]uint64{}}
	for _, p := range processes {
		c.Processes = append(c.Processes, [2]uint64{uint64(p.Pid), p.UsedGpuMemory})
	}
	sort.Slice(c.Processes, func(a, b int) bool { return c.Processes[a][0] < c.Processes[b][0] })
	return c
}

func main() {
	must(nvml.Init())
	n, r := nvml.DeviceGetCount()
	must(r)
	cards := []card{}
	for i := 0; i < n; i++ {
		cards = append(cards, read(i))
	}
	if err := json.NewEncoder(os.Stdout).Encode(cards); err != nil {
		log.Fatal(err)
	}
}
