//! Compiles the functions of the module API that take any number of arguments.

fn main() {
    println!("cargo:rerun-if-changed=src/variadic.c");
    cc::Build::new().file("src/variadic.c").compile("variadic");
}
