// SPDX-License-Identifier: Apache-2.0

// Package interop tries our gRPC server and client with the library and stubs that kubelet uses.
// ALIQUOT_INTEROP_PLUGIN names the built plugin.
package interop

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const bound = 20 * time.Second // of anything that is waited for

type plugin struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket string
	lines  chan string
}

func start(t testing.TB) *plugin {
	t.Helper()
	path := os.Getenv("ALIQUOT_INTEROP_PLUGIN")
	if path == "" {
		t.Fatal("ALIQUOT_INTEROP_PLUGIN is not set")
	}
	p := &plugin{t: t, socket: filepath.Join(t.TempDir(), "plugin.sock"), lines: make(chan string, 100)}
	p.cmd = exec.Command(path, p.socket)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	p.expect("server ready")
	return p
}

// expect waits for a line with that beginning and returns it; other lines are a failure.
func (p *plugin) expect(want string) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("plugin ended, want %q", want)
		}
		if !strings.HasPrefix(line, want) {
			p.t.Fatalf("plugin said %q, want %q", line, want)
		}
		return line
	case <-time.After(bound):
		p.t.Fatalf("plugin does not say %q", want)
	}
	return ""
}

func dial(t testing.TB, socket string, opts ...grpc.DialOption) api.DevicePluginClient {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("unix://"+socket, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewDevicePluginClient(conn)
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

func order(t *testing.T, c api.DevicePluginClient, words ...string) {
	t.Helper()
	r, err := c.Allocate(limit(t), &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: words}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.ContainerResponses[0].Envs["ORDER"]; got != words[0] {
		t.Fatalf("ORDER = %q, want %q", got, words[0])
	}
}

func receive(t *testing.T, s grpc.ServerStreamingClient[api.ListAndWatchResponse], want int) {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Devices) != want {
		t.Fatalf("%d devices, want %d", len(r.Devices), want)
	}
	for i, d := range r.Devices {
		if d.ID != fmt.Sprintf("dev-%06d", i) || d.Health != "Healthy" || len(d.Topology.GetNodes()) != 1 {
			t.Fatalf("device %d is %v", i, d)
		}
	}
}

func TestUnary(t *testing.T) {
	c := dial(t, start(t).socket)
	for range 100 {
		r, err := c.GetDevicePluginOptions(limit(t), &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		if !r.PreStartRequired || r.GetPreferredAllocationAvailable {
			t.Fatalf("options are %v", r)
		}
	}
}

func BenchmarkUnary(b *testing.B) {
	c := dial(b, start(b).socket)
	ctx := context.Background()
	for b.Loop() {
		if _, err := c.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
			b.Fatal(err)
		}
	}
}

// kubelets before 1.26 send the path of the socket, others "localhost".
func TestAnyAuthority(t *testing.T) {
	p := start(t)
	for _, authority := range []string{p.socket, "localhost", "%2Fvar%2Flib", "a b"} {
		c := dial(t, p.socket, grpc.WithAuthority(authority))
		if _, err := c.GetDevicePluginOptions(limit(t), &api.Empty{}); err != nil {
			t.Errorf("authority %q: %v", authority, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	c := dial(t, start(t).socket)
	_, err := c.Allocate(limit(t), &api.AllocateRequest{})
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "100% wrong: ä\n" {
		t.Fatalf("got %v %q", s.Code(), s.Message())
	}
}

func TestUnknownMethod(t *testing.T) {
	p := start(t)
	conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Invoke(limit(t), "/v1beta1.DevicePlugin/Nothing", &api.Empty{}, &api.Empty{})
	if status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}

func TestWatchAndPush(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	ctx, cancel := context.WithCancel(limit(t))
	s, err := c.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s, 2)
	// 120,000 devices are 3.1 MB, near to what kubelet takes, and far over the first window.
	for _, n := range []int{0, 1, 6552, 120000, 3, 120000, 120000} {
		order(t, c, "push", fmt.Sprint(n))
		receive(t, s, n)
	}
	cancel()
	p.expect("watch cancelled")

	s, err = c.ListAndWatch(limit(t), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s, 2)
}

// A watcher that does not read must not stop the others.
func TestSlowWatcher(t *testing.T) {
	p := start(t)
	slow := dial(t, p.socket)
	s1, err := slow.ListAndWatch(limit(t), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s1, 2)
	c := dial(t, p.socket)
	s2, err := c.ListAndWatch(limit(t), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s2, 2)
	for range 5 {
		order(t, c, "push", "100000")
		receive(t, s2, 100000)
	}
	for range 5 {
		receive(t, s1, 100000)
	}
}

func TestConnectionLost(t *testing.T) {
	p := start(t)
	conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.NewDevicePluginClient(conn).ListAndWatch(limit(t), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s, 2)
	conn.Close()
	p.expect("watch cancelled")
}

func TestDeferredAndDeadline(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	if _, err := c.PreStartContainer(limit(t), &api.PreStartContainerRequest{DevicesIds: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	p.expect("deadline set")
	p.expect("prestart answered")
	if _, err := c.PreStartContainer(context.Background(), &api.PreStartContainerRequest{}); err != nil {
		t.Fatal(err)
	}
	p.expect("deadline none")
	p.expect("prestart answered")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := c.PreStartContainer(ctx, &api.PreStartContainerRequest{})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Fatal(err)
	}
	p.expect("deadline set")
	p.expect("prestart cancelled")
}

func TestRequestOver4MiB(t *testing.T) {
	c := dial(t, start(t).socket)
	ids := make([]string, 200000)
	for i := range ids {
		ids[i] = fmt.Sprintf("some-long-device-name-%012d", i)
	}
	r, err := c.GetPreferredAllocation(limit(t), &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: ids}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.ContainerResponses[0].DeviceIDs[0]; got != "200000" {
		t.Fatalf("the plugin saw %s IDs", got)
	}
}

func TestParallelCalls(t *testing.T) {
	c := dial(t, start(t).socket)
	errs := make(chan error)
	const n = 200
	for range n {
		go func() {
			_, err := c.GetDevicePluginOptions(limit(t), &api.Empty{})
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestGracefulClose(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	s, err := c.ListAndWatch(limit(t), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s, 2)
	order(t, c, "close")
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatalf("the stream ended with %v", err)
	}
	p.expect("watch cancelled")
	p.expect("server closed")
	if _, err := os.Lstat(p.socket); !os.IsNotExist(err) {
		t.Fatalf("the socket is still there: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestStaleSocketAndMode(t *testing.T) {
	p := start(t)
	p.cmd.Process.Kill()
	p.cmd.Wait()
	st, err := os.Lstat(p.socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, mode %v", err, st.Mode())
	}
	again := exec.Command(p.cmd.Path, p.socket)
	out, _ := again.StdoutPipe()
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { again.Process.Kill(); again.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "server ready\n" {
		t.Fatalf("said %q", line)
	}
	text, err := exec.Command(p.cmd.Path, p.socket).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "another process listens on") {
		t.Fatalf("a second server on the same socket: %v, %s", err, text)
	}
}

// Garbage must end its own connection and nothing else.
func TestGarbage(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	for _, garbage := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00", strings.Repeat("\xff", 100000),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00\x01\x02garbage", 1000),
	} {
		conn, err := net.Dial("unix", p.socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(garbage))
		conn.(*net.UnixConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(bound))
		buf := make([]byte, 4096)
		for {
			if _, err = conn.Read(buf); err != nil {
				break
			}
		}
		if os.IsTimeout(err) {
			t.Errorf("%.20q: the server keeps the connection", garbage)
		}
		conn.Close()
	}
	if _, err := c.GetDevicePluginOptions(limit(t), &api.Empty{}); err != nil {
		t.Fatal(err)
	}
}

// ---- our client ----

type registration struct {
	api.UnimplementedRegistrationServer
	t      *testing.T
	socket string
	seen   chan *api.RegisterRequest
	fail   error
}

// Register calls the plugin back before it answers, as kubelet does.
func (r *registration) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	if _, err := dial(r.t, r.socket).GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		return nil, err
	}
	r.seen <- request
	return &api.Empty{}, r.fail
}

func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return path
}

func TestRegister(t *testing.T) {
	p := start(t)
	r := &registration{t: t, socket: p.socket, seen: make(chan *api.RegisterRequest, 1)}
	kubelet := serve(t, func(s *grpc.Server) { api.RegisterRegistrationServer(s, r) })
	c := dial(t, p.socket)
	order(t, c, "register", kubelet)
	p.expect("registered OK")
	got := <-r.seen
	if got.Version != "v1beta1" || got.Endpoint != "plugin.sock" ||
		got.ResourceName != "example.com/thing" || !got.Options.PreStartRequired {
		t.Fatalf("kubelet saw %v", got)
	}
	r.fail = status.Error(codes.PermissionDenied, "100% nö")
	order(t, c, "register", kubelet)
	if line := p.expect("registered"); line != "registered PermissionDenied 100% nö" {
		t.Fatalf("said %q", line)
	}
}

func TestNoKubelet(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	order(t, c, "register", "/nonexistent/kubelet.sock")
	p.expect("registered Unavailable /nonexistent/kubelet.sock: no such file or directory")
	order(t, c, "register", strings.Repeat("/long", 40))
	p.expect("registered cannot call")
}

func TestSilentKubelet(t *testing.T) {
	p := start(t)
	path := filepath.Join(t.TempDir(), "silent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, p.socket)
	order(t, c, "register", path)
	p.expect("registered DeadlineExceeded")
}

func TestNotGrpc(t *testing.T) {
	p := start(t)
	path := filepath.Join(t.TempDir(), "http1.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			defer conn.Close()
		}
	}()
	order(t, dial(t, p.socket), "register", path)
	p.expect("registered Unavailable")
}

type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	devices int
}

func (l *lister) Get(_ context.Context, r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	var devices []*podresources.ContainerDevices
	for i := range l.devices {
		devices = append(devices, &podresources.ContainerDevices{
			ResourceName: "example.com/thing", DeviceIds: []string{fmt.Sprintf("dev-%06d", i)}})
	}
	return &podresources.GetPodResourcesResponse{PodResources: &podresources.PodResources{
		Name: r.PodName, Namespace: r.PodNamespace,
		Containers: []*podresources.ContainerResources{{Name: "main", Devices: devices, CpuIds: []int64{1, 2}}},
	}}, nil
}

func TestPodResources(t *testing.T) {
	p := start(t)
	c := dial(t, p.socket)
	for _, n := range []int{0, 30, 100000} {
		path := serve(t, func(s *grpc.Server) {
			podresources.RegisterPodResourcesListerServer(s, &lister{devices: n})
		})
		order(t, c, "get", path)
		p.expect(fmt.Sprintf("got ns-a/pod-a main devices=%d ", n))
	}
	path := serve(t, func(s *grpc.Server) {
		podresources.RegisterPodResourcesListerServer(s, podresources.UnimplementedPodResourcesListerServer{})
	})
	order(t, c, "get", path)
	p.expect("got Unimplemented")
}
