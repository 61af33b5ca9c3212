package rwlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The kinds of errors, for errors.Is.
var (
	ErrTimedOut  = errors.New("not granted in time")
	ErrDeadlock  = errors.New("deadlock: each owner would wait for another one")
	ErrNotHeld   = errors.New("the hold was lost: another owner may have worked at the same time")
	ErrReleased  = errors.New("the hold was unlocked before")
	ErrNotLoaded = errors.New("the rwlock module is not loaded, or too old")
	ErrUsage     = errors.New("this call is not possible")
)

// Special values of Error.Held.
const (
	NoExpiry time.Duration = -1 // the lock has no expiry
	Unknown  time.Duration = -2 // no server took the request
)

// Error is every error of this package. Errors of go-redis and of ctx stay as they are.
type Error struct {
	Kind  error         // one of the above
	Held  time.Duration // of ErrTimedOut: when the lease ends, unless it is renewed; 0: others are ahead in its queue
	text  string
	cause error
}

func (e *Error) Error() string {
	text := "rwlock: " + e.Kind.Error()
	if e.text != "" {
		text += ": " + e.text
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *Error) Is(target error) bool { return target == e.Kind }
func (e *Error) Unwrap() error        { return e.cause }

func usage(format string, args ...any) error {
	return &Error{Kind: ErrUsage, text: fmt.Sprintf(format, args...)}
}

// timedOut makes an error of the integer that the server answered.
func timedOut(name string, held int64) error {
	e := &Error{Kind: ErrTimedOut, Held: time.Duration(held) * time.Millisecond}
	switch {
	case held < 0:
		e.Held, e.text = NoExpiry, name+" is held without expiry"
	case held == 0:
		e.text = "others are ahead in the queue of " + name
	default:
		e.text = fmt.Sprintf("%s: its lease ends in %d ms, unless it is renewed", name, held)
	}
	return e
}

// refused tells whether a server refused the request.
func refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == ErrTimedOut && e.Held != Unknown
}

// named turns an error of the server into one of this package.
func named(err error) error {
	text := ""
	if answered(err) {
		text = err.Error()
	}
	switch {
	case strings.HasPrefix(text, "NOTHELD"):
		return &Error{Kind: ErrNotHeld, cause: err}
	case strings.HasPrefix(text, "DEADLOCK"):
		return &Error{Kind: ErrDeadlock, cause: err}
	case strings.HasPrefix(text, "ERR unknown command"):
		return &Error{Kind: ErrNotLoaded, cause: err}
	}
	return err
}

// answered tells an error that a server sent from a connection that failed.
func answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// passing tells whether the request may succeed when another server, or a new connection,
// takes over.
func passing(err error) bool {
	var ours *Error
	if errors.As(err, &ours) {
		return false
	}
	for _, prefix := range []string{"UNBLOCKED", "READONLY", "LOADING", "TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return !answered(err)
}
