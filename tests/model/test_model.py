"""Some sentences of the contract, asked of the model alone: no server is needed.

    python3 -m unittest model.test_model    (in tests/)
"""

import unittest

from . import apply, circles
from .keyspace import timeout_key
from .world import World


def play(*lines, world=None, slot=0):
    """Each line is `client: command`; the last world, where no outcome is open."""
    world = world or World()
    world.now = world.now or 1_000_000.0
    for line in lines:
        client, _, words = line.partition(": ")
        step = {"k": "run", "c": int(client), "db": 0, "form": "plain",
                "cmds": [("RWLOCK." + words).split(" ")]}
        world = world.branches(lambda w, step=step: apply.step(w, step, w.now))[0]
    return world


class Contract(unittest.TestCase):
    def test_a_released_lock_goes_to_the_next_in_the_same_step(self):
        world = play("1: WLOCK k a 5000", "2: WLOCK k b 5000 BLOCK 0", "1: UNLOCK k a")
        self.assertEqual(world.out, {1: [("int", 1)], 2: [("ok",)]})
        self.assertEqual(world.view(0, "k").writer, "b")

    def test_numbers_move_down_with_their_ends(self):
        world = play("1: RLOCK k a 5000 SESSION", "2: RLOCK k a 9000", "1: UNLOCK k a")
        self.assertEqual(world.keys.dbs[0][timeout_key("k", "a", 1)][2], world.now + 9000)
        self.assertNotIn(timeout_key("k", "a", 2), world.keys.dbs[0])

    def test_who_closes_a_circle_is_told(self):
        world = play("1: WLOCK k a 5000", "2: WLOCK l b 5000", "3: WLOCK l a 5000 BLOCK 0",
                     "4: WLOCK k b 5000 BLOCK 0")
        self.assertEqual(world.out[4][0][0], "deadlock")
        self.assertEqual([w.slot for w in world.waiters], [3])

    def test_writers_go_first_where_the_policy_says_so(self):
        world = World()
        world.settings["policy"] = "prefer-writers"
        world = play("1: WLOCK k a 5000", "2: RLOCK k b 5000 BLOCK 0",
                     "3: WLOCK k c 5000 BLOCK 0", world=world)
        self.assertEqual([w.slot for w in circles.order(world, 0, "k")], [3, 2])

    def test_a_lapse_serves_the_queue(self):
        world = play("1: WLOCK k a 5000", "2: RLOCK k b 5000 BLOCK 0")
        world = world.branches(lambda w: apply.pass_time(w, w.now + 5001))[0]
        self.assertEqual(world.out, {2: [("ok",)]})


if __name__ == "__main__":
    unittest.main()
