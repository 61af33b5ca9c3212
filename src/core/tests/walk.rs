//! Random walks of three owners over one lock. After each step the rules and the model must
//! have given the same reply, and must have the same holds.

use super::cases;
use super::model::Model;
use super::world::{Step, World};
use proptest::prelude::*;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..80)
}

/// A random step. Leases are so short, compared with the time that elapses, that holds often
/// lapse.
fn step() -> impl Strategy<Value = Step> {
    let owner = || 0_u8..3;
    let lease = || 1_i64..40;
    prop_oneof![
        6 => (owner(), lease(), any::<bool>())
            .prop_map(|(owner, lease, once)| Step::Read { owner, lease, once }),
        6 => (owner(), lease(), any::<bool>(), proptest::option::of(lease()))
            .prop_map(|(owner, lease, once, reserve)| Step::Write { owner, lease, once, reserve }),
        2 => owner().prop_map(Step::GiveRead),
        2 => owner().prop_map(Step::GiveWrite),
        2 => owner().prop_map(Step::GiveAny),
        1 => owner().prop_map(Step::GiveAll),
        2 => (owner(), lease()).prop_map(|(owner, lease)| Step::Renew { owner, lease }),
        3 => (owner(), lease()).prop_map(|(owner, lease)| Step::Upgrade { owner, lease }),
        3 => (owner(), lease()).prop_map(|(owner, lease)| Step::Downgrade { owner, lease }),
        1 => Just(Step::Persist),
        5 => (1_i64..15).prop_map(Step::Elapse),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(4096, 20), failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_rules_and_the_model_agree(steps in steps()) {
        let (mut world, mut model) = (World::new(), Model::default());
        for step in steps {
            prop_assert_eq!(world.step(step), model.step(step), "the reply to {:?}", step);
            prop_assert_eq!(world.info(), model.info(), "the lock after {:?}", step);
            world.check();
        }
    }
}
