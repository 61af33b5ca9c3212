package servers

import (
	"fmt"
	"strconv"
	"time"
)

// startSentinels starts three that watch the primary.
func (g *Group) startSentinels() error {
	for i := range 3 {
		p := g.primary.Load()
		n, err := g.add(fmt.Sprint("sentinel", i+1),
			"sentinel resolve-hostnames no",
			fmt.Sprintf("sentinel monitor soak %s %d 2", p.PublicIP, g.port),
			"sentinel down-after-milliseconds soak 1200",
			"sentinel failover-timeout soak 3000",
			"sentinel parallel-syncs soak 2")
		if err != nil {
			return err
		}
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, s := range g.Sentinels {
		if err := s.Until("it knows the others", 20*time.Second, func() bool { return g.knows(s) }); err != nil {
			return err
		}
	}
	return nil
}

// knows says whether the sentinel has found all replicas and sentinels.
func (g *Group) knows(s *Node) bool {
	reply, err := s.Do("SENTINEL", "MASTER", "soak")
	list, ok := reply.([]any)
	if err != nil || !ok {
		return false
	}
	want := map[string]string{"num-slaves": strconv.Itoa(len(g.Nodes) - 1), "num-other-sentinels": strconv.Itoa(len(g.Sentinels) - 1), "flags": "master"}
	for i := 0; i+1 < len(list); i += 2 {
		if value, ok := want[list[i].(string)]; ok && value != list[i+1] {
			return false
		}
	}
	return true
}
