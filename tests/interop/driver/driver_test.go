// SPDX-License-Identifier: Apache-2.0

// Package driver holds what a container gets of the driver against what NVIDIA's container toolkit gives: both look at
// the same tree, Debian's packages of driver 535 unpacked, with the simulator's libnvidia-ml in the place of the real one,
// which answers nothing without a card. ALIQUOT_DRIVER_FILES names our side, ALIQUOT_CLI the simulator.
package driver

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const version = "535.261.03"

// Of another source than the driver's packages (nvidia-persistenced, libnvidia-egl-*), or too large to fetch (firmware).
var standIns = []string{
	"usr/bin/nvidia-persistenced",
	"usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.0",
	"usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.10",
	"usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
	"usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
	"usr/share/nvidia/nvoptix.bin",
	"lib/firmware/nvidia/" + version + "/gsp_ga10x.bin",
	"lib/firmware/nvidia/" + version + "/gsp_tu10x.bin",
	"run/nvidia-persistenced/socket",
	"run/nvidia-fabricmanager/socket",
}

// Links that the packages' scripts make, or ldconfig does. Theirs are absolute: the toolkit follows those to the host's
// root where the driver's is another; that ours does not is shown in tests/unit/test-gpu-driver.c.
var links = map[string]string{
	"usr/bin/nvidia-smi":                                  "../lib/nvidia/current/nvidia-smi",
	"usr/bin/nvidia-debugdump":                            "../lib/nvidia/current/nvidia-debugdump",
	"usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1":     "libnvidia-egl-gbm.so.1.1.0",
	"usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1": "libnvidia-egl-wayland.so.1.1.10",
	"usr/lib/xorg/modules/drivers/nvidia_drv.so":          "../../../nvidia/current/nvidia_drv.so",
}

var nodes = map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 9}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(text)
}

func given(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set", variable)
	}
	return path
}

func tree(t *testing.T) string {
	t.Helper()
	cache := strings.TrimSpace(output(t, "../../../scripts/fetch-driver535"))
	root := filepath.Join(t.TempDir(), "driver")
	output(t, "cp", "-a", filepath.Join(cache, "root"), root)
	nvml := filepath.Join(root, "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so."+version)
	must(t, os.Remove(nvml))
	output(t, "cp", filepath.Join(given(t, "ALIQUOT_SIM_LIBRARIES"), "libnvidia-ml.so.1"), nvml)
	for _, name := range standIns {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("stand-in"), 0o755))
	}
	for name, target := range links {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(target, path))
	}
	must(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
	for name, minor := range nodes {
		must(t, unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor))))
	}
	return root
}

type edits struct {
	DeviceNodes []struct{ Path string }
	Mounts      []struct{ HostPath, ContainerPath string }
	Hooks       []struct{ Args []string }
}

type spec struct {
	Devices        []struct{ ContainerEdits edits }
	ContainerEdits edits
}

// The toolkit's list for a machine with a card that can be divided, but is not, and one that cannot be.
func toolkit(t *testing.T, root string) spec {
	t.Helper()
	dir := t.TempDir()
	machine := filepath.Join(dir, "two.machine")
	must(t, os.WriteFile(machine, []byte("[machine]\ndriver = "+version+"\n[gpu 0]\nmodel = T4\n[gpu 1]\nmodel = A100\n"), 0o644))
	ctk := filepath.Join(dir, "nvidia-ctk")
	output(t, "go", "build", "-o", ctk, "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk")
	text := output(t, given(t, "ALIQUOT_CLI"), "sim", "--machine", machine, "--", ctk, "--quiet", "cdi", "generate",
		"--mode", "nvml", "--driver-root", root, "--format", "json", "--nvidia-cdi-hook-path", "/nvidia-cdi-hook")
	var s spec
	must(t, json.Unmarshal([]byte(text), &s))
	return s
}

// Our list: files of the tree, links resolved, and the names they have in the container.
func ours(t *testing.T, root, capabilities string) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	text := output(t, given(t, "ALIQUOT_DRIVER_FILES"), root, capabilities)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var kind, host, container string
		if _, err := fmt.Sscan(line, &kind, &host, &container); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		names[host] = append(names[host], container)
	}
	return names
}

func has(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func TestEverythingOfTheToolkit(t *testing.T) {
	root := tree(t)
	want := toolkit(t, root)
	got := ours(t, root, "")
	files := 0
	for _, m := range want.ContainerEdits.Mounts {
		real, err := filepath.EvalSymlinks(m.HostPath)
		must(t, err)
		host := strings.TrimPrefix(real, root)
		names := got[host]
		library := strings.HasPrefix(filepath.Base(m.ContainerPath), "lib")
		switch {
		case len(names) == 0:
			t.Errorf("%s is missing", host)
		case library && !strings.HasPrefix(names[0], "/usr/lib/x86_64-linux-gnu/"):
			t.Errorf("%s is a library and is at %v", host, names)
		case !library && !has(names, m.ContainerPath):
			t.Errorf("%s is at %v, not at %s", host, names, m.ContainerPath)
		}
		files++
	}
	if files < 40 {
		t.Errorf("the toolkit lists %d files only", files)
	}
	linked := 0
	for _, hook := range want.ContainerEdits.Hooks {
		for _, arg := range hook.Args {
			_, link, found := strings.Cut(arg, "::")
			if !found {
				continue
			}
			linked++
			// Relative to the directory of the libraries, of which the tree has two.
			name := strings.TrimPrefix(link, "/usr/lib/x86_64-linux-gnu/")
			name = "/usr/lib/x86_64-linux-gnu/" + strings.TrimPrefix(name, "nvidia/current/")
			some := false
			for _, names := range got {
				some = some || has(names, name)
			}
			if !some {
				t.Errorf("the toolkit links %s, and nothing has that name", link)
			}
		}
	}
	if linked < 20 {
		t.Errorf("the toolkit makes %d links only", linked)
	}
	for _, e := range append([]edits{want.ContainerEdits}, want.Devices[0].ContainerEdits) {
		for _, node := range e.DeviceNodes {
			if len(got[node.Path]) == 0 {
				t.Errorf("the node %s is missing", node.Path)
			}
		}
	}
}

func TestCapabilities(t *testing.T) {
	root := tree(t)
	lib := "/usr/lib/x86_64-linux-gnu/"
	files := map[string]string{ // what a container sees, and the capability that it needs
		lib + "libnvidia-ptxjitcompiler.so.1":         "compute",
		lib + "libnvidia-nvvm.so.4":                   "compute",
		"/etc/OpenCL/vendors/nvidia.icd":              "compute",
		"/usr/bin/nvidia-smi":                         "utility",
		"/usr/local/nvidia/bin/nvidia-smi":            "utility",
		"/run/nvidia-persistenced/socket":             "utility",
		lib + "libnvidia-cfg.so.1":                    "utility",
		lib + "libnvcuvid.so.1":                       "video",
		lib + "libnvidia-encode.so.1":                 "video",
		lib + "libGLX_nvidia.so.0":                    "graphics",
		lib + "libEGL_nvidia.so.0":                    "graphics",
		"/etc/vulkan/icd.d/nvidia_icd.json":           "graphics",
		"/usr/lib/xorg/modules/drivers/nvidia_drv.so": "display",
		lib + "libnvidia-ngx.so.1":                    "ngx",
	}
	for _, asked := range []string{"compute", "utility", "video", "graphics", "display", "ngx", "compute,video", "all", "", "magic"} {
		names := map[string]bool{}
		for _, list := range ours(t, root, asked) {
			for _, name := range list {
				names[name] = true
			}
		}
		for _, always := range []string{"libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1"} {
			if !names[lib+always] || !names["/usr/lib64/"+always] {
				t.Errorf("%q: no %s", asked, always)
			}
		}
		for name, capability := range files {
			want := asked == "all" || asked == "" || asked == "magic" || strings.Contains(asked, capability) ||
				(strings.Contains(asked, "display") && capability == "graphics") ||
				(strings.Contains(asked, "graphics") && capability == "display")
			if names[name] != want {
				t.Errorf("%q: %s is given: %v", asked, name, names[name])
			}
		}
	}
}
