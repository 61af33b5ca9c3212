// Package history is what the clients write down: each call and its return, and
// what was done to the servers meanwhile. The checks see nothing else, so a
// stored history can be checked again.
package history

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
)

// Never is later than everything.
const Never = int64(1) << 60

// How a call ended.
const (
	OK      = "ok"      // granted, given back, renewed: what was asked for
	Refused = "refused" // an integer instead of a grant
	NotHeld = "notheld" // the error NOTHELD
	Failed  = "failed"  // any other error: nothing was changed
	Lost    = "lost"    // no reply: it may have happened or not
)

// Part is one lock of a command, and what became of it.
type Part struct {
	Key string `json:"key"`
	// Kind is read, write, all or empty.
	Kind string `json:"kind,omitempty"`
	// Answer is the integer that MUNLOCK and MRENEW give for this lock.
	Answer int64 `json:"answer,omitempty"`
	// Token is the fencing token of this lock.
	Token int64 `json:"token,omitempty"`
}

// Holder is one that INSPECT lists.
type Holder struct {
	Owner string `json:"owner"`
	Kind  string `json:"kind"`
	Holds int    `json:"holds"`
	TTL   int64  `json:"ttl"`
}

// View is what INSPECT shows.
type View struct {
	Mode    string   `json:"mode"`
	Holders []Holder `json:"holders"`
	Fence   int64    `json:"fence,omitempty"`
}

// Op is one call of one client. Times are µs of a clock that only goes forward.
type Op struct {
	Client  int    `json:"client"`
	Conn    int    `json:"conn,omitempty"`
	Node    string `json:"node,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Command string `json:"command"`
	Parts   []Part `json:"parts,omitempty"`
	Lease   int64  `json:"lease,omitempty"`
	Blocks  bool   `json:"blocks,omitempty"`
	Block   int64  `json:"block,omitempty"`
	Reserve int64  `json:"reserve,omitempty"`
	Session bool   `json:"session,omitempty"`
	Once    bool   `json:"once,omitempty"`
	Fence   bool   `json:"fence,omitempty"`
	// Replica says that it was sent to a replica on purpose.
	Replica bool  `json:"replica,omitempty"`
	Call    int64 `json:"call"`
	Return  int64 `json:"return"`
	// Passed is when the request was in the server's socket, Closed when the
	// connection to the server was closed; 0 where that is not known.
	Passed  int64  `json:"passed,omitempty"`
	Closed  int64  `json:"closed,omitempty"`
	Outcome string `json:"outcome"`
	// Answer is the integer that came: the ms of a refusal, 1 or 0 of a release.
	Answer int64  `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
	View   *View  `json:"view,omitempty"`
	// Silent: the client gave up waiting for a reply on an open connection.
	Silent bool `json:"silent,omitempty"`
	// Until is when the effect of a lost call, or of a closed connection, has
	// come if it ever comes.
	Until int64 `json:"until,omitempty"`
	// Maybe: a closed connection that the server may have known as closed before,
	// or never had a session of.
	Maybe bool `json:"maybe,omitempty"`
	// Chosen: the client itself closed the connection.
	Chosen bool `json:"chosen,omitempty"`
}

// Fault is what was done to the servers or connections.
type Fault struct {
	Name string `json:"name"`
	// Start to Struck: when it was done. Undone: it no longer acts. End: the
	// servers are well again.
	Start  int64 `json:"start"`
	Struck int64 `json:"struck"`
	Undone int64 `json:"undone"`
	End    int64 `json:"end"`
	// Lossy: acknowledged writes may be gone, by the mode of persistence or
	// because replication is asynchronous.
	Lossy bool `json:"lossy,omitempty"`
	// SessionsEnd: session holds go on as plain ones, until their lease ends.
	SessionsEnd bool `json:"sessions_end,omitempty"`
	// Killed: the process was dead at Struck, and nothing sent to it acts later.
	// From Restart on there is a new one.
	Killed  bool  `json:"killed,omitempty"`
	Restart int64 `json:"restart,omitempty"`
	// Moves: slots move, and connections may close where the lock is not served.
	Moves bool `json:"moves,omitempty"`
	// Harmless: no server stalls and no connection is delayed by it.
	Harmless bool `json:"harmless,omitempty"`
	// ClockError, in µs, is what it adds to the error of the server's clock.
	ClockError int64 `json:"clock_error,omitempty"`
	// Settings: rwlock's settings, or the limits of the server, are others meanwhile.
	Settings bool   `json:"settings,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// Span is a time without processor for this program.
type Span struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// Difference is what a replica had otherwise than its primary after the round.
type Difference struct {
	Key, Primary, Replica string
}

// Round is one history: some seconds of traffic on locks of its own.
type Round struct {
	Seed        uint64       `json:"seed"`
	Round       int          `json:"round"`
	Engine      string       `json:"engine"`
	Topology    string       `json:"topology"`
	Persistence string       `json:"persistence"`
	ClockError  int64        `json:"clock_error"`
	Faults      []Fault      `json:"faults"`
	Stalls      []Span       `json:"stalls"`
	Differences []Difference `json:"differences,omitempty"`
	Crashes     []string     `json:"crashes,omitempty"`
	// After is what INSPECT said after a lossy fault, by lock.
	After map[string]Look `json:"after,omitempty"`
	Ops   []Op            `json:"ops"`
}

// Look is a view with its time.
type Look struct {
	At   int64 `json:"at"`
	View *View `json:"view"`
}

// Error bounds how far the servers' clock is from ours in this round, in µs.
func (r *Round) Error() int64 {
	e := r.ClockError
	for _, f := range r.Faults {
		e += f.ClockError
	}
	return e
}

// Disturbed says whether a fault that delays anything, or a stall, touches the span.
func (r *Round) Disturbed(from, to int64) bool {
	for _, f := range r.Faults {
		if !f.Harmless && f.Start <= to && f.End >= from {
			return true
		}
	}
	for _, s := range r.Stalls {
		if s.Start <= to && s.End >= from {
			return true
		}
	}
	return false
}

// Save writes a round into a folder.
func (r *Round) Save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "history.json"), text, 0o644)
}

// Load reads it again.
func Load(folder string) (*Round, error) {
	text, err := os.ReadFile(filepath.Join(folder, "history.json"))
	if err != nil {
		return nil, err
	}
	round := new(Round)
	return round, json.Unmarshal(text, round)
}

// Bounds, in µs: in so short a time a server that nothing disturbs has read what was
// sent to it, and knows of a connection that was closed.
const (
	settled   = 150_000
	recovered = 1_500_000
)

// Finish completes the notes, once all faults of the round are known: until when
// the effect of a lost call or of a closed connection may come.
func (r *Round) Finish() {
	kept := r.Ops[:0]
	for _, op := range r.Ops {
		if op.Command == "close" || op.Outcome == Lost {
			op.Until = r.until(&op)
		}
		if op.Outcome == Lost && r.dead(&op) {
			continue
		}
		if op.Command == "close" && r.endsSession(&op) {
			continue
		}
		kept = append(kept, op)
	}
	r.Ops = kept
}

// until is when a server has surely read all of a broken connection, and knows
// that it is broken.
func (r *Round) until(op *Op) int64 {
	until := max(op.Return, op.Closed) + settled
	for _, f := range r.Faults {
		switch {
		case f.Harmless || f.Start > until || f.End < op.Call:
		case f.Killed && !op.Silent:
			// The new process read nothing that was sent to the old one.
			if op.Call < f.Struck && op.Return >= f.Start {
				return max(op.Return, f.Struck)
			}
		default:
			until = max(until, f.End+recovered)
		}
	}
	for _, s := range r.Stalls {
		if s.Start <= until && s.End >= op.Call {
			until = max(until, s.End+settled)
		}
	}
	return until
}

// dead says whether the call was sent while no process could read it.
func (r *Round) dead(op *Op) bool {
	for _, f := range r.Faults {
		if f.Killed && op.Call > f.Struck && op.Return < f.Restart {
			return true
		}
	}
	return false
}

// endsSession says whether a fault ended the session before the connection closed.
// Then the hold lives on, as a plain one.
func (r *Round) endsSession(op *Op) bool {
	op.Outcome = OK
	for _, f := range r.Faults {
		if f.Moves {
			op.Maybe = true
		}
		if f.SessionsEnd && !op.Chosen && op.Call <= f.Struck && op.Return >= f.Start {
			return true
		}
	}
	return false
}

// Recorder collects the calls of all clients.
type Recorder struct {
	mutex sync.Mutex
	ops   []Op
}

// Add notes a finished call.
func (r *Recorder) Add(op Op) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ops = append(r.ops, op)
}

// Take returns all, and begins anew.
func (r *Recorder) Take() []Op {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	ops := r.ops
	r.ops = nil
	return ops
}
