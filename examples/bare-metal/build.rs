//! Links at a fixed address with our own linker script.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    println!("cargo:rerun-if-changed=layout.ld");
    println!("cargo:rustc-link-arg-bins=-T{folder}/layout.ld");
    // Nothing relocates the program: addresses are final at link time.
    println!("cargo:rustc-link-arg-bins=--no-pie");
}
