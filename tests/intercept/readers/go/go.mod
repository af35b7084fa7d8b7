module aliquot/tests/reader

go 1.21

require github.com/NVIDIA/go-nvml v0.12.4-0
