//! Tests of what the tests rely on, `tests/support`.

mod servers;
