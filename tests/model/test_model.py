"""Some sentences of the contract, asked of the model alone: no server is needed.

    python3 -m unittest model.test_model    (in tests/)
"""

import unittest

from . import apply, turns
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
        self.assertEqual([w.slot for w in turns.order(world, 0, "k")], [3, 2])

    def test_several_locks_go_to_who_waits_for_them_in_one_step(self):
        world = play("1: MLOCK a 5000 WRITE 2 k l", "2: MLOCK b 5000 READ 1 l WRITE 1 k BLOCK 0",
                     "1: MUNLOCK a WRITE 2 l k")
        self.assertEqual(world.out, {1: [("ints", [1, 1])], 2: [("ok",)]})
        self.assertEqual((world.view(0, "k").writer, world.view(0, "l").mode), ("b", "read"))

    def test_none_is_taken_where_one_refuses(self):
        world = play("1: WLOCK k a 5000", "1: RLOCK l a 9000", "2: MLOCK b 5000 WRITE 3 k l m")
        self.assertEqual(world.out, {2: [("ms", [world.now + 9000])]})
        self.assertEqual(world.view(0, "m").mode, "free")

    def test_nobody_passes_a_joint_waiter(self):
        world = play("1: WLOCK k a 5000", "2: MLOCK b 5000 READ 2 k l BLOCK 0",
                     "3: RLOCK l c 5000", "4: RLOCK l d 5000 BLOCK 0")
        self.assertEqual(world.view(0, "l").mode, "free")
        self.assertEqual([w.slot for w in turns.order(world, 0, "l")], [2, 4])
        world = play("2: RLOCK m b 5000", world=world)  # its owner asks elsewhere
        self.assertEqual(world.out, {2: [("ok",)]})

    def test_readers_join_readers_whoever_waits_where_the_policy_says_so(self):
        world = World()
        world.settings["policy"] = "prefer-readers"
        world = play("1: WLOCK k a 5000", "1: RLOCK l a 5000",
                     "2: MLOCK b 5000 WRITE 2 k l BLOCK 0", "3: RLOCK l c 5000", world=world)
        self.assertEqual(world.out, {3: [("ok",)]})

    def test_a_joint_waiter_that_writes_is_a_writer_in_all_queues(self):
        world = World()
        world.settings["policy"] = "prefer-writers"
        world = play("1: MLOCK a 5000 WRITE 2 k l", "2: RLOCK k b 5000 BLOCK 0",
                     "3: MLOCK c 5000 READ 1 k WRITE 1 l BLOCK 0",
                     "4: WLOCK k d 5000 BLOCK 0", "5: MLOCK e 5000 READ 2 k l BLOCK 0", world=world)
        self.assertEqual([w.slot for w in turns.order(world, 0, "k")], [3, 4, 2, 5])

    def test_what_a_joint_waiter_is_told_when_its_time_is_up(self):
        world = play("1: RLOCK k a 9000", "2: WLOCK k b 5000 BLOCK 0",
                     "3: MLOCK c 5000 READ 2 k l BLOCK 100")
        end = world.now + 9000
        world = world.branches(lambda w: apply.pass_time(w, w.now + 200))[0]
        self.assertEqual(world.out, {3: [("ms", [end])]})

    def test_who_takes_all_in_one_step_closes_no_circle(self):
        world = play("1: MLOCK a 5000 WRITE 2 k l", "2: MLOCK b 5000 WRITE 2 k l BLOCK 0",
                     "3: MLOCK c 5000 WRITE 2 l k BLOCK 0", "1: MUNLOCK a WRITE 2 k l")
        self.assertEqual(world.out[2], [("ok",)])

    def test_who_holds_one_before_can_close_a_circle(self):
        world = play("1: WLOCK k a 5000", "2: MLOCK b 5000 WRITE 2 k l BLOCK 0",
                     "3: WLOCK l a 5000 BLOCK 0")
        self.assertEqual(world.out[3][0][0], "deadlock")

    def test_names_that_share_keys_clash(self):
        world = play("1: MLOCK a 5000 WRITE 2 k {k}")
        self.assertEqual(world.out, {1: [("err", "ERR key clash with lock ")]})

    def test_a_lapse_serves_the_queue(self):
        world = play("1: WLOCK k a 5000", "2: RLOCK k b 5000 BLOCK 0")
        world = world.branches(lambda w: apply.pass_time(w, w.now + 5001))[0]
        self.assertEqual(world.out, {2: [("ok",)]})


if __name__ == "__main__":
    unittest.main()
