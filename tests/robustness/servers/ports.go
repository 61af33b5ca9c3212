package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// bus is the distance from a node's port to that of its cluster bus.
const bus = 10_000

// claimPort returns a port that is ours until the program ends: it holds the lock
// on a file that the other tests of this repository respect. The port and that of
// the bus lie below those that the system gives to outgoing connections.
func claimPort() (int, error) {
	first := 12_768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if low, err := strconv.Atoi(strings.Fields(string(text))[0]); err == nil && low-2*bus >= 1024 {
			first = low - 2*bus
		}
	}
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("redis-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	for range 1000 {
		port := first + rand.IntN(bus)
		file, err := os.OpenFile(filepath.Join(folder, strconv.Itoa(port)), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return 0, err
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && free(port) && free(port+bus) {
			claimed = append(claimed, file)
			return port, nil
		}
		file.Close()
	}
	return 0, fmt.Errorf("no free port from %d on", first)
}

// claimed keeps the lock files open.
var claimed []*os.File

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
