package check

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"robustness/history"
)

// Slack, in µs, for a wait that ended without a grant: the server may look at the
// clock a little after the lease that it waited for has lapsed.
const slack = 300_000

// part is the history of one lock between two lossy faults.
type part struct {
	key   string
	start lock
	ops   []porcupine.Operation
}

// porcupineModel makes the model one that Porcupine knows.
func (m *Model) porcupineModel(start lock) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{&start} },
		Step: func(state, input, _ any) []any {
			var next []any
			for _, s := range m.take(state.(*lock), input.(*step)) {
				next = append(next, s)
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(*lock).equal(b.(*lock)) },
		Hash:              func(s any) uint64 { return s.(*lock).hash() },
		DescribeOperation: func(input, _ any) string { return input.(*step).text },
		DescribeState:     func(s any) string { return s.(*lock).String() },
	}
	return model.ToModel()
}

// split makes the histories that Porcupine judges: one for each lock, cut where a
// fault may have lost acknowledged writes. What was held at such a cut is unknown
// afterwards, until the last lease has ended.
func split(round *history.Round) []part {
	byKey := map[string][]*history.Op{}
	var all []*history.Op // those without a lock: closed connections, FLUSHALL
	for i := range round.Ops {
		op := &round.Ops[i]
		if op.Command == "close" || op.Command == "flushall" {
			all = append(all, op)
		}
		for _, p := range op.Parts {
			byKey[p.Key] = append(byKey[p.Key], op)
		}
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var parts []part
	for _, key := range keys {
		parts = append(parts, splitLock(round, key, byKey[key], all)...)
	}
	return parts
}

func splitLock(round *history.Round, key string, ops, all []*history.Op) []part {
	ops = slices.Clone(ops)
	for _, op := range all {
		// The end of a connection matters where it may have had a session.
		if op.Command != "close" || slices.ContainsFunc(ops, func(o *history.Op) bool { return o.Session && o.Conn == op.Conn }) {
			ops = append(ops, op)
		}
	}
	slices.SortStableFunc(ops, func(a, b *history.Op) int { return cmp.Compare(a.Call, b.Call) })
	var cuts []history.Fault
	for _, f := range round.Faults {
		if f.Lossy {
			cuts = append(cuts, f)
		}
	}
	slices.SortFunc(cuts, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	sure := certain(round, key, ops)
	var parts []part
	from, fog := int64(math.MinInt64), int64(0)
	for n := 0; n <= len(cuts); n++ {
		to := int64(history.Never)
		if n < len(cuts) {
			to = cuts[n].Start
		}
		p := part{key: key, start: lock{fog: fog}}
		for _, op := range ops {
			switch {
			case hindered(sure, op, key): // it took nothing, though it may have waited
			case op.Call >= from && op.Call < to:
				p.add(round, op, to, ops)
			case op.Call < from:
				// What it took, before or after the cut, is unknown, too.
				p.start.firm = max(p.start.firm, effective(op))
			}
		}
		p.addFaults(round, from, to)
		if len(p.ops) > 0 {
			parts = append(parts, p)
		}
		if n < len(cuts) {
			from = cuts[n].End
			fog = lastEnd(round, ops, from)
		}
	}
	return parts
}

// lastEnd is when the last lease ends that was asked for before that time.
func lastEnd(round *history.Round, ops []*history.Op, before int64) int64 {
	end := int64(0)
	for _, op := range ops {
		if op.Call >= before || op.Lease == 0 {
			continue
		}
		last := max(before, effective(op))
		if op.Session {
			// The server renews it until the connection closes.
			last = max(last, closed(round, op.Conn))
		}
		end = max(end, min(last, history.Never-op.Lease*1000)+op.Lease*1000)
	}
	return end
}

// closed is when the server may have noticed at the latest that the connection was closed.
func closed(round *history.Round, conn int) int64 {
	for i := range round.Ops {
		op := &round.Ops[i]
		if op.Command == "close" && op.Conn == conn {
			return effective(op)
		}
	}
	return history.Never
}

// effective is the latest time at which the call can have had its effect.
func effective(op *history.Op) int64 {
	return max(op.Until, op.Return)
}

func (p *part) add(round *history.Round, op *history.Op, to int64, ops []*history.Op) {
	if op.Outcome == history.Failed || op.Replica {
		return
	}
	in := &step{
		owner: op.Owner, conn: op.Conn, lease: op.Lease * 1000, session: op.Session, once: op.Once,
		outcome: op.Outcome, answer: op.Answer, maybe: op.Maybe, view: op.View,
		at: moment{op.Call, effective(op)},
	}
	if op.Outcome != history.Lost && in.at.to > to {
		// The fault struck before the reply: what came of it is part of what is lost.
		in.outcome = history.Lost
	}
	if in.at.to > to {
		in.at.to = to
	}
	mine := history.Part{}
	for _, x := range op.Parts {
		if x.Key == p.key {
			mine = x
		}
	}
	in.token = mine.Token
	switch op.Command {
	case "rlock":
		in.what = "read"
	case "wlock":
		in.what = "write"
	case "upgrade", "downgrade", "renew", "inspect", "force", "close":
		in.what = op.Command
	case "unlock":
		in.what, in.kind = "unlock", mine.Kind
	case "mlock":
		if op.Outcome == history.Refused {
			return // nothing was taken, here or elsewhere
		}
		in.what = mine.Kind
	case "munlock":
		in.what, in.kind, in.answer = "unlock", mine.Kind, mine.Answer
		if mine.Answer == -1 && in.outcome == history.OK {
			in.outcome = history.NotHeld
		}
	case "mrenew":
		in.what = "renew"
		if mine.Answer == 0 && in.outcome == history.OK {
			in.outcome = history.NotHeld
		}
	case "flushall", "del":
		in.what = "clear"
	default:
		return
	}
	if in.outcome == history.Lost && (in.what == "inspect" || op.Return < op.Call) {
		return
	}
	in.sure = sure(round, op)
	if in.outcome == history.Refused {
		if op.Blocks && op.Return-op.Call >= op.Block*1000 {
			in.at.from = max(op.Call, op.Call+op.Block*1000-slack)
		}
		in.excused = queued(ops, op, p.key, in.at)
	}
	for _, other := range ops {
		if other.Reserve > 0 && other.Call <= in.at.to && slices.ContainsFunc(other.Parts, func(x history.Part) bool { return x.Key == p.key }) &&
			in.at.from <= effective(other)+other.Reserve*1000+slack+round.Error() {
			in.reserved = true
			in.excused = in.excused || other.Owner != op.Owner
		}
	}
	in.text = describe(op, mine)
	p.ops = append(p.ops, porcupine.Operation{ClientId: op.Client, Input: in, Call: in.at.from, Return: max(in.at.to, in.at.from)})
}

// addFaults puts the ends of all sessions where a fault ended them. A slot moves once, or there and
// back: the sessions of each node that it leaves end.
func (p *part) addFaults(round *history.Round, from, to int64) {
	for _, f := range round.Faults {
		ends := 0
		switch {
		case f.Lossy || f.Start < from || f.End > to:
		case f.Moves:
			ends = 2
		case f.SessionsEnd:
			ends = 1
		}
		for range ends {
			in := &step{what: "crash", outcome: history.OK, at: moment{f.Start, f.Struck}, text: f.Name}
			p.ops = append(p.ops, porcupine.Operation{ClientId: faultClient, Input: in, Call: f.Start, Return: f.Struck})
		}
	}
}

// faultClient is the row of faults in the picture.
const faultClient = 99

// shortest is the shortest lease, in µs, of which the server surely renews a session hold: it
// does so every third of the lease, and a busy machine may keep it waiting for longer than a
// shorter one.
const shortest = 300_000

// sure is until when a session hold that was taken here lives in any case, as
// long as its connection is open: nothing kept the server from renewing it.
func sure(round *history.Round, op *history.Op) int64 {
	first := history.Never
	for _, f := range round.Faults {
		if !f.Harmless && f.End >= op.Call {
			first = min(first, f.Start)
		}
	}
	for _, s := range round.Stalls {
		if s.End >= op.Call {
			first = min(first, s.Start)
		}
	}
	lease := op.Lease * 1000
	switch {
	case lease < shortest:
		return op.Call + lease
	case first == history.Never:
		return first
	case first <= op.Return:
		return op.Call + lease
	}
	return max(op.Call+lease, first+lease/2)
}

// queued says whether another waiter may have stood in the way of this request.
func queued(ops []*history.Op, op *history.Op, key string, at moment) bool {
	for _, other := range ops {
		if other == op || !other.Blocks || other.Call > at.to || effective(other) < at.from {
			continue
		}
		for _, x := range other.Parts {
			if x.Key == key {
				return true
			}
		}
	}
	return false
}

func describe(op *history.Op, mine history.Part) string {
	text := op.Command
	if mine.Kind != "" {
		text += " " + mine.Kind
	}
	text += " " + op.Owner
	if op.Lease > 0 {
		text += fmt.Sprint(" ", op.Lease)
	}
	if op.Blocks {
		text += fmt.Sprint(" BLOCK ", op.Block)
	}
	for _, word := range []struct {
		is   bool
		text string
	}{{op.Session, " SESSION"}, {op.Once, " ONCE"}, {op.Fence, " FENCE"}} {
		if word.is {
			text += word.text
		}
	}
	text += " -> " + op.Outcome
	switch {
	case op.View != nil:
		text += fmt.Sprintf(" %s %v", op.View.Mode, op.View.Holders)
	case op.Command == "munlock" || op.Command == "mrenew":
		text += fmt.Sprint(" ", mine.Answer)
	case op.Outcome == history.Refused || op.Command == "unlock":
		text += fmt.Sprint(" ", op.Answer)
	}
	if mine.Token != 0 {
		text += fmt.Sprint(" token ", mine.Token)
	}
	return text
}

// judge asks Porcupine for its verdict on one history.
func judge(round *history.Round, p part, limit time.Duration) (porcupine.CheckResult, string) {
	m := &Model{Error: round.Error()}
	result := porcupine.CheckOperationsTimeout(m.porcupineModel(p.start), p.ops, limit)
	if result != porcupine.Illegal {
		return result, ""
	}
	for _, rule := range rules {
		relaxed := &Model{Error: round.Error(), Relaxed: rule}
		if porcupine.CheckOperationsTimeout(relaxed.porcupineModel(p.start), p.ops, limit) == porcupine.Ok {
			return result, rule
		}
	}
	return result, "not-linearizable"
}

// Draw writes the picture of one lock's history, and tells beside it in words how
// far Porcupine came.
func Draw(round *history.Round, key, path string) error {
	for _, p := range split(round) {
		if p.key != key {
			continue
		}
		m := &Model{Error: round.Error()}
		model := m.porcupineModel(p.start)
		result, info := porcupine.CheckOperationsVerbose(model, p.ops, 10*time.Second)
		if result == porcupine.Ok {
			continue
		}
		if err := os.WriteFile(path+".txt", []byte(m.explain(p, info)), 0o644); err != nil {
			return err
		}
		return porcupine.VisualizePath(model, info, path+".html")
	}
	return nil
}

// explain shows the legal order of calls that comes farthest, and what could follow
// it but does not fit.
func (m *Model) explain(p part, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	farthest := int64(0)
	for _, parts := range info.PartialLinearizationsOperations() {
		for _, ops := range parts {
			inside := map[any]bool{}
			for _, op := range ops {
				inside[op.Input] = true
			}
			next := history.Never // the first return that is not explained
			for _, op := range p.ops {
				if !inside[op.Input] {
					next = min(next, op.Return)
				}
			}
			if next > farthest {
				longest, farthest = ops, next
			}
		}
	}
	states := []*lock{&p.start}
	done := map[*step]bool{}
	var b strings.Builder
	for _, op := range longest {
		in := op.Input.(*step)
		done[in] = true
		var next []*lock
		for _, s := range states {
			next = append(next, m.take(s, in)...)
		}
		states = next
		fmt.Fprintf(&b, "%d..%d  %s\n", in.at.from, in.at.to, in.text)
		for _, s := range states {
			fmt.Fprintf(&b, "          %s\n", s)
		}
	}
	b.WriteString("\nno order goes on from here with one of these:\n")
	last := int64(history.Never)
	rest := []*step{}
	for _, op := range p.ops {
		if in := op.Input.(*step); !done[in] {
			rest = append(rest, in)
			last = min(last, op.Return)
		}
	}
	for _, in := range rest {
		if in.at.from <= last {
			fmt.Fprintf(&b, "%d..%d  %s\n", in.at.from, in.at.to, in.text)
		}
	}
	return b.String()
}
