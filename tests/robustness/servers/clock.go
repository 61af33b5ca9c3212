package servers

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Clock is the wall clock of all servers of a run. It is that of the machine until
// it is set: tests/support/src/server/clock.c is preloaded into the servers.
type Clock struct {
	face    []byte
	library string
	file    string
	ahead   int64 // µs
}

func makeClock(source, folder string) (*Clock, error) {
	c := &Clock{library: filepath.Join(folder, "clock.so"), file: filepath.Join(folder, "clock")}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", c.library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the clock does not compile: %w: %s", err, out)
	}
	if err := os.WriteFile(c.file, make([]byte, 32), 0o644); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(c.file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c.face, err = syscall.Mmap(int(file.Fd()), 0, 32, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return c, err
}

// Step sets the clock forward by so many ms, or back.
func (c *Clock) Step(ms int64) {
	c.ahead += ms * 1000
	// The number of turns is odd while the offset is being written.
	turn := binary.NativeEndian.Uint64(c.face)
	binary.NativeEndian.PutUint64(c.face, turn+1)
	binary.NativeEndian.PutUint64(c.face[8:], uint64(c.ahead))
	binary.NativeEndian.PutUint64(c.face, turn+2)
}

func (c *Clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "RWLOCK_TEST_CLOCK=" + c.file}
}

// Ahead is how far it is ahead of the machine's clock, in ms.
func (c *Clock) Ahead() int64 { return c.ahead / 1000 }
