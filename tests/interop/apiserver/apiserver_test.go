// SPDX-License-Identifier: Apache-2.0

// Package apiserver tries our API server client on Go's HTTP/2 server with everything that a real
// one does on bad days. ALIQUOT_KUBE_PROBE names the built probe.
package apiserver

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const bound = 20 * time.Second // of anything that is waited for

func newServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

type probe struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	token string
}

func start(t *testing.T, url string, ca []byte) *probe {
	t.Helper()
	path := os.Getenv("ALIQUOT_KUBE_PROBE")
	if path == "" {
		t.Fatal("ALIQUOT_KUBE_PROBE is not set")
	}
	dir := t.TempDir()
	p := &probe{t: t, lines: make(chan string, 100000), token: filepath.Join(dir, "token")}
	caFile := filepath.Join(dir, "ca.crt")
	os.WriteFile(p.token, []byte("first\n"), 0o600)
	os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), 0o600)
	cmd := exec.Command(path, url, p.token, caFile)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		p.in.Close()
		done := make(chan error)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the probe ended with %v", err)
			}
		case <-time.After(bound):
			cmd.Process.Kill()
			t.Error("the probe does not end")
		}
	})
	return p
}

func begin(t *testing.T, handler http.HandlerFunc) (*probe, *httptest.Server) {
	t.Helper()
	s := newServer(t, handler)
	return start(t, s.URL, s.Certificate().Raw), s
}

func (p *probe) order(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *probe) next() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the probe ended")
		}
		return line
	case <-time.After(bound):
		p.t.Fatal("the probe says nothing")
	}
	return ""
}

func (p *probe) expect(wants ...string) {
	p.t.Helper()
	for _, want := range wants {
		if got := p.next(); !strings.HasPrefix(got, want) {
			p.t.Fatalf("the probe said %q, want %q", got, want)
		}
	}
}

// until skips lines up to one with that beginning.
func (p *probe) until(want string) {
	p.t.Helper()
	for {
		if strings.HasPrefix(p.next(), want) {
			return
		}
	}
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","reason":%q,"message":%q,"code":%d}`, reason, message, code)
}

// ---- requests ----

func TestRequests(t *testing.T) {
	p, s := begin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 || r.Header.Get("Authorization") != "Bearer first" {
			fail(w, 401, "Unauthorized", r.Proto)
			return
		}
		switch r.Method + " " + r.URL.String() {
		case "GET /ok?a=b%20c":
			fmt.Fprint(w, `{"kind":"Thing"}`)
		case "POST /made":
			if r.Header.Get("Content-Type") != "application/json" || string(body) != `{"a": 1}` {
				fail(w, 400, "BadRequest", string(body))
				return
			}
			w.WriteHeader(201)
			fmt.Fprint(w, `{"kind":"Made"}`)
		case "PATCH /patched":
			if r.Header.Get("Content-Type") != "application/merge-patch+json" {
				fail(w, 400, "BadRequest", "content type")
			}
		case "DELETE /conflict":
			fail(w, 409, "Conflict", "Precondition failed: UID")
		case "GET /plain":
			w.WriteHeader(503)
			fmt.Fprint(w, "not ready")
		case "GET /large":
			w.Write([]byte(`{"kind":"Large","x":"`))
			w.Write([]byte(strings.Repeat("x", 20<<20)))
			w.Write([]byte(`"}`))
		default:
			fail(w, 404, "NotFound", r.Method+" "+r.URL.String())
		}
	})
	for _, c := range []struct{ order, want string }{
		{"GET 9000 /ok?a=b%20c", "response 200 maybe=0 reason= kind=Thing"},
		{`POST 9000 /made {"a": 1}`, "response 201 maybe=0 reason= kind=Made"},
		{"PATCH 9000 /patched {}", "response 200 maybe=0 reason= kind=- text= size=0"},
		{"DELETE 9000 /conflict", "response 409 maybe=0 reason=Conflict kind=Status text=Precondition failed: UID"},
		{"GET 9000 /plain", "response 503 maybe=0 reason= kind=- text=the API server answered HTTP status 503"},
		{"GET 9000 /large", "response 200 maybe=0 reason= kind=Large text= size=20971543"},
		{"GET 9000 /none", "response 404 maybe=0 reason=NotFound"},
		{"GET 9000 none", "error 'none' is not an escaped path"},
	} {
		p.order("request %s", c.order)
		p.expect(c.want)
	}
	_ = s
}

// An overloaded server says when to ask again; a date, and what is longer than an hour, do not count.
func TestRetryAfter(t *testing.T) {
	p, _ := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if value := r.URL.Query().Get("after"); value != "" {
			w.Header().Set("Retry-After", value)
		}
		fail(w, 429, "TooManyRequests", "later")
	})
	for _, c := range []struct{ after, want string }{
		{"7", "7"}, {"", "0"}, {"3600", "3600"}, {"3601", "0"}, {"Wed%2C%2021%20Oct%202026%2007:28:00%20GMT", "0"},
	} {
		p.order("exchange /x?after=%s", c.after)
		p.expect("exchange 429 retry=" + c.want + " error=0")
	}
}

func TestParallelRequestsUseOneConnection(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{}`)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	p := start(t, s.URL, s.Certificate().Raw)
	const n = 500 // more than the server allows at once
	for range n {
		p.order("request GET 9000 /x")
	}
	for range n {
		p.expect("response 200")
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestTokenIsReadAgain(t *testing.T) {
	p, _ := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fail(w, 403, "Forbidden", r.Header.Get("Authorization"))
	})
	p.order("request GET 9000 /")
	p.expect("response 403 maybe=0 reason=Forbidden kind=Status text=Bearer first")
	os.WriteFile(p.token+".new", []byte("second"), 0o600)
	os.Rename(p.token+".new", p.token)
	p.order("request GET 9000 /")
	p.expect("response 403 maybe=0 reason=Forbidden kind=Status text=Bearer second")
	os.Remove(p.token) // a moment without the file keeps the last token
	p.order("request GET 9000 /")
	p.expect("response 403 maybe=0 reason=Forbidden kind=Status text=Bearer second")
}

func TestTimeoutAndLoss(t *testing.T) {
	release := make(chan bool)
	p, s := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/ok" {
			<-release
		}
		fmt.Fprint(w, "{}")
	})
	defer close(release)
	p.order("request POST 100 /hang {}")
	p.expect("response 0 maybe=1 reason= kind=- text=the API server did not answer in time")
	p.order("request GET 9000 /ok")
	p.expect("response 200")
	p.order("request POST 9000 /abort {}")
	p.expect("response 0 maybe=1 reason= kind=- text=the API server broke off the answer")
	p.order("request POST 9000 /lost {}")
	p.order("request GET 9000 /ok")
	p.expect("response 200")
	s.CloseClientConnections()
	p.expect("response 0 maybe=1 reason= kind=- text=the connection to the API server was lost")
	p.order("request GET 9000 /ok")
	p.expect("response 200")
}

// A process that was paused between deciding to write and writing does not write what it decided long ago.
func TestPaused(t *testing.T) {
	var late atomic.Int32
	p, _ := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			late.Add(1)
		}
		fmt.Fprint(w, "{}")
	})
	p.order("request GET 9000 /ok")
	p.expect("response 200")
	p.order("request POST 100 /late {}\nstand 300")
	p.expect("response 0 maybe=0 reason= kind=- text=no connection to the API server in time")
	p.order("request GET 9000 /ok")
	p.expect("response 200")
	if late.Load() != 0 {
		t.Fatal("it was sent when its time was over")
	}
}

func TestNoServer(t *testing.T) {
	p, s := begin(t, func(w http.ResponseWriter, r *http.Request) {})
	s.Close()
	p.order("request POST 9000 / {}")
	p.order("request GET 9000 /")
	p.expect("response 0 maybe=0 reason= kind=- text=cannot reach the API server "+s.URL+": connection refused",
		"response 0 maybe=0")
}

func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newServer(t, nil)
	p := start(t, "https://"+l.Addr().String(), s.Certificate().Raw)
	p.order("request POST 200 / {}")
	p.expect("response 0 maybe=0 reason= kind=- text=no connection to the API server in time")
}

func TestWrongPeers(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer plain.Close()
	http1 := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer http1.Close()
	good := newServer(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") })
	ca := good.Certificate().Raw
	port := good.URL[strings.LastIndex(good.URL, ":"):]

	for _, c := range []struct{ url, want string }{
		{strings.Replace(plain.URL, "http:", "https:", 1), "response 0 maybe=0 reason= kind=- text=cannot reach the API server"},
		{http1.URL, "response 0 maybe=0 reason= kind=- text=cannot reach the API server"},
		{"https://localhost" + port, "response 0 maybe=0 reason= kind=- text=cannot reach the API server https://localhost" + port + ": the certificate of localhost is not accepted"},
		{"https://nothing.invalid" + port, "response 0 maybe=0 reason= kind=- text=cannot reach the API server"},
		{good.URL, "response 200"},
	} {
		p := start(t, c.url, ca)
		p.order("request GET 9000 /")
		p.expect(c.want)
	}

	other := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
		"-nodes", "-keyout", "/dev/null", "-subj", "/CN=other", "-outform", "DER")
	der, err := other.Output()
	if err != nil {
		t.Skip("openssl is not there")
	}
	p := start(t, good.URL, der)
	p.order("request GET 9000 /")
	p.expect("response 0 maybe=0 reason= kind=- text=cannot reach the API server " + good.URL +
		": the certificate of 127.0.0.1 is not accepted")
}

// Go answers "Connection: close" with GOAWAY, as the API server does for --goaway-chance.
func TestGoaway(t *testing.T) {
	var slow sync.WaitGroup
	slow.Add(1)
	p, _ := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow.Wait()
		} else {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprintf(w, `{"kind":%q}`, r.URL.Path[1:])
	})
	p.order("request GET 9000 /slow")
	for i := range 20 {
		p.order("request POST 9000 /%d {}", i)
		p.expect(fmt.Sprintf("response 200 maybe=0 reason= kind=%d", i))
	}
	slow.Done()
	p.expect("response 200 maybe=0 reason= kind=slow")
}

// ---- lists and watches ----

// A script of answers: each request takes the next one and says what was asked for.
type step struct {
	want   string // of the query
	answer func(w http.ResponseWriter, r *http.Request)
}

func script(t *testing.T, steps ...step) http.HandlerFunc {
	var at atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		i := int(at.Add(1)) - 1
		if i >= len(steps) {
			<-r.Context().Done()
			return
		}
		q := r.URL.Query()
		q.Del("allowWatchBookmarks")
		q.Del("timeoutSeconds")
		if got := q.Encode(); got != steps[i].want {
			t.Errorf("request %d asks %q, want %q", i, got, steps[i].want)
		}
		steps[i].answer(w, r)
	}
}

func object(name, version string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q}}`, name, version)
}

func list(version, more string, names ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		var items []string
		for _, name := range names {
			items = append(items, object(name, "1"))
		}
		fmt.Fprintf(w, `{"kind":"List","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`,
			version, more, strings.Join(items, ","))
	}
}

// events sends them in pieces that do not end where lines do, then stays open or ends.
func events(stay bool, lines ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		text := strings.Join(lines, "")
		piece := len(text)/7 + 1
		for len(text) > 0 {
			n := min(piece, len(text))
			io.WriteString(w, text[:n])
			w.(http.Flusher).Flush()
			text = text[n:]
		}
		w.(http.Flusher).Flush()
		if stay {
			<-r.Context().Done()
		}
	}
}

func event(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object(name, version))
}

func status(code int, reason string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { fail(w, code, reason, reason) }
}

func TestListAndWatch(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"fieldSelector=a%3Db&limit=2", list("10", "to/ken+=&", "a", "b")},
		step{"continue=to%2Fken%2B%3D%26&fieldSelector=a%3Db&limit=2", list("10", "", "c")},
		step{"fieldSelector=a%3Db&resourceVersion=10&watch=true", events(false,
			event("ADDED", "d", "11"), event("MODIFIED", "a", "12"), event("DELETED", "b", "13"))},
		step{"fieldSelector=a%3Db&resourceVersion=13&watch=true", events(false, event("BOOKMARK", "", "20"))},
		step{"fieldSelector=a%3Db&resourceVersion=20&watch=true", events(true, event("ADDED", "e", "21"))},
	))
	p.order("reflect 2 /things fieldSelector=a%%3Db")
	p.expect("begin", "added a", "added b", "added c", "end", "added d", "modified a", "deleted b", "added e")
	p.order("stop")
	p.order("close")
	p.expect("closed")
}

func TestGone(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "", "a", "b")},
		step{"resourceVersion=10&watch=true", status(410, "Expired")},
		step{"limit=500", list("20", "", "a")},
		step{"resourceVersion=20&watch=true", events(true, event("ADDED", "c", "21"),
			`{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}`+"\n")},
		step{"limit=500", list("30", "more", "x")},
		step{"continue=more&limit=500", status(410, "Expired")},
		step{"limit=0", list("40", "", "x", "y")},
		step{"resourceVersion=40&watch=true", events(true, event("ADDED", "z", "41"))},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "added a", "added b", "end", "begin", "added a", "end", "added c", "begin", "added x",
		"trouble soon cannot list /things: Expired", "begin", "added x", "added y", "end", "added z")
}

// A watch that was refused and then taken up is up to date, also where nothing ever happens.
func TestQuietWatchAfterTrouble(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "")},
		step{"resourceVersion=10&watch=true", status(429, "TooManyRequests")},
		step{"resourceVersion=10&watch=true", events(true)},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "end", "trouble soon cannot watch /things: HTTP status 429")
	for limit := time.Now().Add(bound); ; time.Sleep(10 * time.Millisecond) {
		p.order("synced")
		if p.next() == "synced 1" {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it never is")
		}
	}
}

// A kind that is not installed is one without objects; when it is taken away, so are its objects.
func TestAbsent(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "", "a")},
		step{"resourceVersion=10&watch=true", status(404, "NotFound")},
		step{"limit=500", status(404, "NotFound")},
		step{"limit=500", list("20", "", "b")},
		step{"resourceVersion=20&watch=true", events(true, event("ADDED", "c", "21"))},
	))
	p.order("reflect 500 /optional")
	p.expect("begin", "added a", "end", "begin", "end")
	p.order("relist") // it would be looked for again in ten seconds
	p.expect("begin", "added b", "end", "added c")
}

// A client that needs all writes until now lists again, in the middle of a watch.
func TestRelist(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "", "a")},
		step{"resourceVersion=10&watch=true", events(true, event("ADDED", "b", "11"))},
		step{"limit=500", list("20", "", "a", "b", "c")},
		step{"resourceVersion=20&watch=true", events(true, event("ADDED", "d", "21"))},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "added a", "end", "added b")
	p.order("relist")
	p.expect("begin", "added a", "added b", "added c", "end", "added d")
}

// What was written after a list had been asked for need not be in it, however late its pages come.
func TestWhenAListBegan(t *testing.T) {
	const pause = 100 * time.Millisecond
	late := func(answer func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(pause)
			answer(w, r)
		}
	}
	p, _ := begin(t, script(t,
		step{"limit=500", late(list("10", "more", "a"))},
		step{"continue=more&limit=500", late(list("10", "", "b"))},
		step{"resourceVersion=10&watch=true", events(true, event("ADDED", "c", "11"))},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "added a", "added b", "end", "added c")
	p.order("began")
	var ms int64
	if _, err := fmt.Sscanf(p.next(), "began %d", &ms); err != nil || ms < 2*pause.Milliseconds()-1 {
		t.Errorf("the list was asked for %d ms before its end: %v", ms, err)
	}
}

// A list whose second page always fails is asked for less and less often.
func TestSecondPageFails(t *testing.T) {
	const lists = 5
	var pages []time.Time
	steps := []step{}
	for i := 0; i < lists; i++ {
		steps = append(steps, step{"limit=500", func(w http.ResponseWriter, r *http.Request) {
			pages = append(pages, time.Now())
			list("10", "more", "a")(w, r)
		}}, step{"continue=more&limit=500", status(500, "InternalError")})
	}
	steps = append(steps, step{"limit=500", list("20", "", "a")},
		step{"resourceVersion=20&watch=true", events(true, event("ADDED", "b", "21"))})
	p, _ := begin(t, script(t, steps...))
	p.order("reflect 500 /things")
	for i := 0; i < lists; i++ {
		p.expect("begin", "added a", "trouble soon cannot list /things: InternalError")
	}
	p.expect("begin", "added a", "end", "added b")
	// The probe begins with 20 ms and doubles; half of it may be taken off.
	if pause := pages[lists-1].Sub(pages[lists-2]); pause < 75*time.Millisecond {
		t.Errorf("after %d failures it asks again after %v", lists-1, pause)
	}
}

func TestBadAnswers(t *testing.T) {
	p, _ := begin(t, script(t,
		step{"limit=500", status(403, "Forbidden")},
		step{"limit=500", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "[]") }},
		step{"limit=500", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{nonsense") }},
		step{"limit=500", list("10", "", "a")},
		step{"resourceVersion=10&watch=true", status(500, "InternalError")},
		step{"resourceVersion=10&watch=true", events(true, event("ADDED", "b", "11"), "nonsense\n")},
		step{"limit=500", list("20", "", "a", "b")},
		step{"resourceVersion=20&watch=true", events(true, `{"type":"ADDED","object":{}}`+"\n")},
		step{"limit=500", list("30", "", "a", "b")},
		step{"resourceVersion=30&watch=true", events(false)},
		step{"resourceVersion=30&watch=true", events(true, event("DELETED", "a", "31"))},
	))
	p.order("reflect 500 /things")
	p.expect("trouble soon cannot list /things: Forbidden", "trouble soon cannot list /things: the answer is not a list",
		"trouble soon cannot list /things: the answer is not a list", "begin", "added a", "end",
		"trouble soon cannot watch /things: HTTP status 500", "added b", "trouble", "begin", "added a", "added b", "end",
		"trouble soon cannot watch /things: an event has no resourceVersion", "begin", "added a", "added b", "end",
		"trouble soon cannot watch /things: the API server ended it at once", "deleted a")
}

func TestLargeEvents(t *testing.T) {
	large := func(version string) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"name":"l%s","resourceVersion":%q},"x":%q}}`+"\n",
			version, version, strings.Repeat("x", 3<<20))
	}
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "")},
		step{"resourceVersion=10&watch=true", events(true, large("11"), event("ADDED", "a", "12"), large("13"))},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "end", "modified l11", "added a", "modified l13")
}

func TestManyEvents(t *testing.T) {
	const n = 20000
	var lines []string
	for i := range n {
		lines = append(lines, event("ADDED", fmt.Sprint("e", i), fmt.Sprint(100+i)))
	}
	p, _ := begin(t, script(t,
		step{"limit=500", list("10", "")},
		step{"resourceVersion=10&watch=true", events(true, lines...)},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "end")
	for i := range n {
		p.expect(fmt.Sprint("added e", i))
	}
}

func TestServerComesBack(t *testing.T) {
	p, s := begin(t, script(t,
		step{"limit=500", list("10", "", "a")},
		step{"resourceVersion=10&watch=true", events(true, event("ADDED", "b", "11"))},
	))
	p.order("reflect 500 /things")
	p.expect("begin", "added a", "end", "added b")
	address := s.Listener.Addr().String()
	s.CloseClientConnections()
	s.Listener.Close()
	p.until("trouble soon cannot watch /things: cannot reach the API server")

	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(script(t,
		step{"resourceVersion=11&watch=true", events(true, event("DELETED", "a", "12"))}))
	again.Listener.Close()
	again.Listener = l
	again.EnableHTTP2 = true
	again.StartTLS()
	defer again.Close()
	defer again.CloseClientConnections()
	p.until("deleted a")
}

func TestCloseInTheMiddle(t *testing.T) {
	p, _ := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/things" && r.URL.Query().Get("watch") == "" {
			list("10", "", "a")(w, r)
			return
		}
		<-r.Context().Done()
	})
	p.order("reflect 500 /things")
	p.expect("begin", "added a", "end")
	for range 10 {
		p.order("request GET 9000 /hang")
	}
	p.order("close")
	p.expect("closed")
}

// A failed allocation may cost an answer, never the process, and the next try brings everything.
func TestEveryFailedAllocation(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/things":
			io.Copy(w, r.Body)
		case r.URL.Query().Get("watch") != "":
			events(true, event("ADDED", "c", "11"))(w, r)
		case r.URL.Query().Get("continue") != "":
			list("10", "", "b")(w, r)
		default:
			list("10", "more", "a")(w, r)
		}
	})
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	os.WriteFile(token, []byte("secret"), 0o600)
	os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600)
	for n := 1; ; n++ {
		if n > 2000 {
			t.Fatal("allocations have no end")
		}
		cmd := exec.Command(os.Getenv("ALIQUOT_KUBE_PROBE"), s.URL, token, ca)
		cmd.Env = append(os.Environ(), fmt.Sprintf("ALIQUOT_FAIL_MALLOC=%d", n))
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(bound, func() { cmd.Process.Kill() })
		fmt.Fprint(in, "request POST 2000 /echo {}\nreflect 1 /things\n")
		var all []string
		failed, answered, watched, refused := false, false, false, false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := lines.Text()
			all = append(all, line)
			failed = failed || line == "failed"
			refused = refused || strings.HasPrefix(line, "error ")
			answered = answered || strings.HasPrefix(line, "response ")
			watched = watched || line == "added c"
			if refused || answered && watched {
				in.Close()
			}
		}
		timer.Stop()
		err := cmd.Wait()
		if len(all) == 0 && cmd.ProcessState.ExitCode() == 1 {
			continue // it said why on stderr: no client could be made
		}
		if err != nil || !refused && !(answered && watched) {
			t.Fatalf("allocation %d: %v, %q", n, err, all)
		}
		if !failed {
			if n < 30 {
				t.Errorf("only %d allocations", n)
			}
			return
		}
	}
}
