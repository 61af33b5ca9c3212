//! The settings. They come from the arguments of `loadmodule`, from CONFIG SET and from the
//! server's configuration file. One table describes all of them.

use super::events::note;
use crate::core::Policy;
use crate::engine::{Change, Settings};
use crate::ffi::{ConfigKind, Ctx, MainThread, OnConfig};
use crate::store::{Channels, ClusterPublish};
use std::cell::Cell;
use std::ffi::CStr;

/// A row of the table.
struct Setting {
    name: &'static CStr,
    kind: ConfigKind,
    get: fn(&Settings) -> i64,
    set: fn(&mut Settings, i64),
}

/// All settings. `docs/settings.md` explains each.
const TABLE: [Setting; 9] = [
    Setting {
        name: c"policy",
        kind: ConfigKind::Word(&[c"fifo", c"prefer-readers", c"prefer-writers"]),
        get: |settings| place_of(settings.policy, &POLICIES),
        set: |settings, value| settings.policy = at_place(value, &POLICIES),
    },
    Setting {
        name: c"deadlock-detection",
        kind: ConfigKind::YesNo,
        get: |settings| i64::from(settings.deadlock_detection),
        set: |settings, value| settings.deadlock_detection = value != 0,
    },
    Setting {
        name: c"max-waiters",
        kind: ConfigKind::Number(0, 1_000_000_000),
        get: |settings| i64::try_from(settings.max_waiters).unwrap_or(i64::MAX),
        set: |settings, value| settings.max_waiters = usize::try_from(value).unwrap_or(0),
    },
    Setting {
        name: c"fence-ttl",
        kind: ConfigKind::Number(0, MAX_MS),
        get: |settings| settings.fence_ttl,
        set: |settings, value| settings.fence_ttl = value,
    },
    Setting {
        name: c"events",
        kind: ConfigKind::Word(&[c"redisson", c"owner", c"all", c"none"]),
        get: |settings| place_of(settings.events, &CHANNELS),
        set: |settings, value| settings.events = at_place(value, &CHANNELS),
    },
    Setting {
        name: c"cluster-publish",
        kind: ConfigKind::Word(&[c"sharded", c"global"]),
        get: |settings| place_of(settings.cluster_publish, &CLUSTER_PUBLISH),
        set: |settings, value| settings.cluster_publish = at_place(value, &CLUSTER_PUBLISH),
    },
    Setting {
        name: c"log-slower-than",
        kind: ConfigKind::Number(-1, MAX_MS),
        get: |settings| settings.log_slower_than,
        set: |settings, value| settings.log_slower_than = value,
    },
    Setting {
        name: c"log-holds-over",
        kind: ConfigKind::Number(-1, MAX_MS),
        get: |settings| settings.log_holds_over,
        set: |settings, value| settings.log_holds_over = value,
    },
    Setting {
        name: c"log-max-len",
        // Each entry takes up to 4 KB.
        kind: ConfigKind::Number(0, 100_000),
        get: |settings| i64::try_from(settings.log_max_len).unwrap_or(i64::MAX),
        set: |settings, value| settings.log_max_len = usize::try_from(value).unwrap_or(0),
    },
];

/// The longest time that can be set, in ms: about 31,000 years. The sum with the present time
/// still fits into 64 bits.
const MAX_MS: i64 = 1_000_000_000_000_000;

/// The values that the words of [`TABLE`] stand for, in the same order.
const POLICIES: [Policy; 3] = [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters];
const CHANNELS: [Channels; 4] =
    [Channels::Redisson, Channels::Owner, Channels::All, Channels::None];
const CLUSTER_PUBLISH: [ClusterPublish; 2] = [ClusterPublish::Sharded, ClusterPublish::Global];

/// The place of `one` in `all`; 0 if it is not there.
fn place_of<T: PartialEq>(one: T, all: &[T]) -> i64 {
    (0..).zip(all).find(|(_, other)| **other == one).map_or(0, |(place, _)| place)
}

/// The value at this place; the first one if there is no such place.
fn at_place<T: Copy>(place: i64, all: &[T]) -> T {
    usize::try_from(place).ok().and_then(|place| all.get(place)).copied().unwrap_or(all[0])
}

/// The settings as CONFIG shows them. The engine gets a copy when a CONFIG SET is done, because
/// a CONFIG SET that fails takes back the values that it has set.
static CURRENT: MainThread<Cell<Settings>> = MainThread::new(Cell::new(Settings::DEFAULT));

/// Registers the settings and returns their first values. The module's arguments are the
/// defaults. A value in the server's configuration file overrides an argument, because CONFIG
/// REWRITE writes to that file. The error says which setting is wrong.
pub fn load_settings(ctx: Ctx<'_>, args: &[&[u8]]) -> Result<Settings, String> {
    let defaults = arguments(args)?;
    CURRENT.set(defaults);
    for (number, Setting { name, kind, get, .. }) in TABLE.iter().enumerate() {
        if !ctx.register_config::<Live>(number, name, *kind, get(&defaults)) {
            return Err(format!("the server does not take the setting {name:?}"));
        }
    }
    if !ctx.load_configs() {
        return Err("a setting cannot have the value that the server's configuration \
                    gives it; the line above says which, and what it can be"
            .into());
    }
    Ok(CURRENT.get())
}

/// The callbacks of CONFIG.
struct Live;

impl OnConfig for Live {
    fn get(number: usize) -> i64 {
        TABLE.get(number).map_or(0, |setting| (setting.get)(&CURRENT.get()))
    }

    fn set(number: usize, value: i64) {
        if let Some(setting) = TABLE.get(number) {
            let mut settings = CURRENT.get();
            (setting.set)(&mut settings, value);
            CURRENT.set(settings);
        }
    }

    fn changed() {
        note(Change::Settings(CURRENT.get()));
    }
}

/// Reads the arguments of `loadmodule`: pairs of a name and a value.
fn arguments(args: &[&[u8]]) -> Result<Settings, String> {
    let mut settings = Settings::DEFAULT;
    let mut given = Vec::new();
    for pair in args.chunks(2) {
        let shown = pair[0].escape_ascii();
        let is_it = |setting: &&Setting| setting.name.to_bytes().eq_ignore_ascii_case(pair[0]);
        let Some(setting) = TABLE.iter().find(is_it) else {
            let names = TABLE.iter().map(|setting| setting.name);
            return Err(format!("unknown argument '{shown}': it must be {}", any_of(names)));
        };
        let [_, value] = pair else {
            return Err(format!("argument '{shown}' has no value"));
        };
        if given.contains(&setting.name) {
            return Err(format!("argument '{shown}' is given twice"));
        }
        given.push(setting.name);
        let Some(number) = number_of(value, setting.kind) else {
            let (value, allowed) = (value.escape_ascii(), allowed(setting.kind));
            return Err(format!("argument '{shown}' cannot be '{value}': it must be {allowed}"));
        };
        (setting.set)(&mut settings, number);
    }
    Ok(settings)
}

/// The number for a text, read by the rules of CONFIG SET. None: the text is not allowed.
fn number_of(text: &[u8], kind: ConfigKind) -> Option<i64> {
    match kind {
        ConfigKind::Word(words) => place_of_word(text, words),
        ConfigKind::YesNo => place_of_word(text, &YES_NO),
        ConfigKind::Number(min, max) => {
            let text = std::str::from_utf8(text).ok()?;
            let number: i64 = text.parse().ok()?;
            ((min..=max).contains(&number) && number.to_string() == text).then_some(number)
        }
    }
}

const YES_NO: [&CStr; 2] = [c"no", c"yes"];

fn place_of_word(text: &[u8], words: &[&CStr]) -> Option<i64> {
    let mut places = (0..).zip(words);
    places.find(|(_, word)| word.to_bytes().eq_ignore_ascii_case(text)).map(|(place, _)| place)
}

/// The allowed values, for an error text.
fn allowed(kind: ConfigKind) -> String {
    match kind {
        ConfigKind::Word(words) => any_of(words.iter().copied()),
        ConfigKind::YesNo => any_of(YES_NO.into_iter().rev()),
        ConfigKind::Number(min, max) => format!("a whole number from {min} to {max}"),
    }
}

/// `this, that or another`.
fn any_of(words: impl Iterator<Item = &'static CStr>) -> String {
    let words: Vec<_> = words.map(CStr::to_string_lossy).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
