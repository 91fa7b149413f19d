//! Links at a fixed address by our own script.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    println!("cargo:rerun-if-changed=layout.ld");
    println!("cargo:rustc-link-arg-bins=-T{folder}/layout.ld");
    // Nobody relocates us: addresses are final when they are linked.
    println!("cargo:rustc-link-arg-bins=--no-pie");
}
