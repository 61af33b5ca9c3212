//! The announcement of each change of mode. All combinations are tested.

use crate::core::Announcement::{ReadFreed, WriteEnded};
use crate::core::Mode::{Read, Write};
use crate::core::{announcement, Mode};

const AFTER: [Option<Mode>; 3] = [None, Some(Read), Some(Write)];

#[test]
fn a_change_of_a_free_lock_announces_nothing() {
    for after in AFTER {
        for lapsed in [false, true] {
            assert_eq!(announcement(None, lapsed, after), None);
        }
    }
}

#[test]
fn the_last_read_hold_is_announced() {
    assert_eq!(announcement(Some(Read), false, None), Some(ReadFreed));
    assert_eq!(announcement(Some(Read), false, Some(Read)), None);
    // An upgrade keeps the read hold.
    assert_eq!(announcement(Some(Read), false, Some(Write)), None);
}

#[test]
fn the_end_of_writing_is_announced() {
    assert_eq!(announcement(Some(Write), false, None), Some(WriteEnded));
    assert_eq!(announcement(Some(Write), false, Some(Read)), Some(WriteEnded));
    assert_eq!(announcement(Some(Write), false, Some(Write)), None);
}

#[test]
fn a_lapse_is_announced_also_when_the_lock_is_held_again() {
    for after in AFTER {
        assert_eq!(announcement(Some(Read), true, after), Some(ReadFreed));
        assert_eq!(announcement(Some(Write), true, after), Some(WriteEnded));
    }
}
