// Package servers starts, stops and kills the servers of a run. All live on
// loopback addresses of their own, in a folder of their own, and talk to each
// other and to the clients through the links of this program.
package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"robustness/resp"
)

// Node is one server or sentinel.
type Node struct {
	Name     string
	IP       string // where it listens
	PublicIP string // where the others reach it: a proxy of this program
	Port     int
	Sentinel bool
	alone    bool // a primary that has no replica
	dir      string
	engine   string
	config   string
	env      []string
	process  *exec.Cmd
	exited   chan struct{}
	logSeen  int
	mutex    sync.Mutex
	admin    *resp.Conn
}

// Address is where clients and other servers connect to.
func (n *Node) Address() string { return fmt.Sprintf("%s:%d", n.PublicIP, n.Port) }

// starter runs on one thread that never ends: a server dies with the thread that
// started it.
var starter = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for f := range starter {
			f()
		}
	}()
}

// Start starts the process and waits until it answers.
func (n *Node) Start() error {
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	words := []string{n.configPath()}
	if n.Sentinel {
		words = append(words, "--sentinel")
	}
	cmd := exec.Command(n.engine, words...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	cmd.Env = append(os.Environ(), n.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	starter <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	exited := make(chan struct{})
	n.process, n.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return n.Until("it answers", 20*time.Second, func() bool {
		reply, err := n.Do("PING")
		return err == nil && reply == "PONG"
	})
}

// writeConfig is done once: servers rewrite their own file.
func (n *Node) writeConfig() error {
	return os.WriteFile(n.configPath(), []byte(n.config), 0o644)
}

func (n *Node) configPath() string { return filepath.Join(n.dir, n.Name+".conf") }
func (n *Node) logPath() string    { return filepath.Join(n.dir, n.Name+".log") }

// Alive says whether the process runs.
func (n *Node) Alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process at once and waits for its end.
func (n *Node) Kill() {
	n.Signal(syscall.SIGKILL)
	<-n.exited
}

// Signal sends one to the process that this program started.
func (n *Node) Signal(signal syscall.Signal) {
	if n.Alive() {
		_ = n.process.Process.Signal(signal)
	}
}

// Do sends a command on a connection of the harness, past the links.
func (n *Node) Do(words ...string) (any, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.admin == nil {
		c, err := resp.Dial(fmt.Sprintf("%s:%d", n.IP, n.Port), time.Second)
		if err != nil {
			return nil, err
		}
		n.admin = c
	}
	reply, err := n.admin.Do(3*time.Second, words...)
	if err != nil {
		n.admin.Close()
		n.admin = nil
		return nil, err
	}
	if e, ok := reply.(resp.Error); ok {
		return nil, e
	}
	return reply, nil
}

// Info is one field of INFO.
func (n *Node) Info(section, field string) string {
	reply, err := n.Do("INFO", section)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(reply.(string), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

// IsPrimary asks the server for its role.
func (n *Node) IsPrimary() bool { return n.Info("replication", "role") == "master" }

// Until waits for a condition.
func (n *Node) Until(what string, limit time.Duration, is func() bool) error {
	end := time.Now().Add(limit)
	for !is() {
		if !n.Alive() {
			return fmt.Errorf("%s ended before %s: %s", n.Name, what, n.tail())
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %s: %s: %s", n.Name, limit, what, n.tail())
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	return nil
}

func (n *Node) tail() string {
	text, _ := os.ReadFile(n.logPath())
	return string(text[max(0, len(text)-800):])
}

var bad = regexp.MustCompile(`BUG REPORT|panicked|AddressSanitizer|runtime error|Assertion failed`)

// Complaints are the lines of the log, since the last look, that no server writes
// unless something is wrong with it.
func (n *Node) Complaints() []string {
	text, _ := os.ReadFile(n.logPath())
	fresh := string(text[min(n.logSeen, len(text)):])
	n.logSeen = len(text)
	var found []string
	for line := range strings.SplitSeq(fresh, "\n") {
		if bad.MatchString(line) {
			found = append(found, n.Name+": "+line)
		}
	}
	return found
}
