// Package resp is one connection to a server, and nothing else: no pool, no
// retry, no reconnect. A client of the soak must know exactly what it sent on
// which connection, and when.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Error is a reply that begins with "-".
type Error string

func (e Error) Error() string { return string(e) }

// Conn is one connection. Only one goroutine uses it at a time.
type Conn struct {
	net    net.Conn
	reader *bufio.Reader
	buffer []byte
}

// Dial opens a connection.
func Dial(address string, timeout time.Duration) (*Conn, error) {
	c, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	return &Conn{net: c, reader: bufio.NewReader(c)}, nil
}

// Local is the address of this end.
func (c *Conn) Local() string { return c.net.LocalAddr().String() }

// Close closes it.
func (c *Conn) Close() { _ = c.net.Close() }

// Do sends a command and waits for its reply. The error is that of the
// connection, after which it is of no use; an error reply is a value.
func (c *Conn) Do(timeout time.Duration, words ...string) (any, error) {
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	b := c.buffer[:0]
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	c.buffer = b
	if _, err := c.net.Write(b); err != nil {
		return nil, err
	}
	return c.read()
}

func (c *Conn) read() (any, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, errors.New("a reply line is too short")
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		return c.bulk(rest)
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("a reply of an unknown kind: %q", line)
}

func (c *Conn) bulk(length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err
	}
	text := make([]byte, n+2)
	for got := 0; got < len(text); {
		more, err := c.reader.Read(text[got:])
		if err != nil {
			return nil, err
		}
		got += more
	}
	return string(text[:n]), nil
}

// Map reads a flat array of names and values.
func Map(value any) map[string]any {
	list, _ := value.([]any)
	m := make(map[string]any, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		if name, ok := list[i].(string); ok {
			m[name] = list[i+1]
		}
	}
	return m
}
